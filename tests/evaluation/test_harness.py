"""EleutherAI's harness on a model of ours: the same numbers as by Paddock, and as by the harness's own class for
transformers, example by example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from paddock.config.load import merge
from paddock.config.measuring import for_measure, recipe_of_weights
from paddock.data.language.embedded import embedded_documents
from paddock.errors import ConfigError, DataError
from paddock.testing.commands import paddock
from paddock.testing.measuring import measure, passages, write_language_model, write_passages

pytest.importorskip("lm_eval", reason="lm-eval is not installed: make test-harness installs it")
pytest.importorskip("accelerate", reason="the harness's class for transformers needs it: make test-harness installs it")

from lm_eval.api.instance import Instance
from lm_eval.api.registry import Registry
from lm_eval.models.huggingface import HFLM

from paddock.evaluation.harness import PaddockLM

ROOT = Path(__file__).parents[2]
TEXTS = passages(41)
LONG = embedded_documents()[2][:1200]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "gpt2")


@pytest.fixture(scope="module")
def ours(folder: Path) -> PaddockLM:
    found = PaddockLM(run=str(folder))
    found.asked.model.double()  # so that which token is the likeliest does not depend on rounding
    return found


@pytest.fixture(scope="module")
def theirs(folder: Path) -> HFLM:
    return HFLM(pretrained=str(folder), device="cpu", dtype="float64", batch_size=4)


def asked(kind: str, *arguments: Any) -> list[Instance]:
    return [Instance(kind, {}, given, number) for number, given in enumerate(arguments)]


def lambada_requests() -> list[Instance]:
    """Those that lambada_openai and lambada_standard make of these texts."""
    pairs = ((" ".join(text.split(" ")[:-1]), " " + text.split(" ")[-1]) for text in TEXTS)
    return asked("loglikelihood", *pairs)


def test_lambada_is_that_of_the_harness_example_by_example(
    folder: Path, ours: PaddockLM, theirs: HFLM, tmp_path: Path
) -> None:
    file = write_passages(tmp_path / "passages.jsonl", TEXTS)
    recipe = recipe_of_weights(str(folder))
    assert recipe is not None
    values = merge(for_measure(recipe, "lambada", str(file)).to_dict(), {"data": {"form": "harness"}})
    ((metrics, records),) = measure(0, [values])
    by_paddock = [(total, said is None) for _, total, said in sorted(records)]
    by_adapter, by_harness = (model.loglikelihood(lambada_requests()) for model in (ours, theirs))
    assert 0 < sum(right for _, right in by_harness) < len(TEXTS)
    for one, other, expected in zip(by_paddock, by_adapter, by_harness, strict=True):
        assert one == (pytest.approx(expected[0], rel=1e-5), expected[1])
        assert other == (pytest.approx(expected[0], rel=1e-5), expected[1])
    assert metrics["lambada_accuracy"] == sum(right for _, right in by_harness) / len(TEXTS)


@pytest.mark.parametrize("tokens_at_once", [1, 8192])
def test_continuations(folder: Path, theirs: HFLM, tokens_at_once: int) -> None:
    """Also without a context, of several tokens, and longer than the model's context."""
    pairs = [
        ("", "the name"),
        ("a", " b c d"),
        ("class ", "object"),
        (LONG, " value"),
        ("<|endoftext|>", "x"),
        *[("a", " b")] * 2,
    ]
    model = PaddockLM(run=str(folder), tokens_at_once=tokens_at_once)
    model.asked.model.double()
    expected = theirs.loglikelihood(asked("loglikelihood", *pairs))
    for found, wanted in zip(model.loglikelihood(asked("loglikelihood", *pairs)), expected, strict=True):
        assert found == (pytest.approx(wanted[0], rel=1e-5), wanted[1])


def test_rolling(ours: PaddockLM, theirs: HFLM) -> None:
    texts = [(LONG,), ("one",), (TEXTS[3],)]
    found, expected = (model.loglikelihood_rolling(asked("loglikelihood_rolling", *texts)) for model in (ours, theirs))
    assert found == pytest.approx(expected, rel=1e-5)


def test_writing(ours: PaddockLM, theirs: HFLM) -> None:
    settings = {"until": ["\n", "ame"], "max_gen_toks": 12, "do_sample": False}
    longer = {"until": [], "max_gen_toks": 20, "do_sample": False}
    requests = [(text, settings if number % 3 else longer) for number, text in enumerate(TEXTS[:10])]
    requests.append((LONG, settings))
    found, expected = (model.generate_until(asked("generate_until", *requests)) for model in (ours, theirs))
    assert found == expected and any(found)
    sampled = asked("generate_until", ("the", {"do_sample": True, "temperature": 0.9, "top_p": 0.8, "max_gen_toks": 9}))
    assert ours.generate_until(sampled) == ours.generate_until(sampled)


def test_what_cannot_be_asked(folder: Path, ours: PaddockLM, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_gen_toks = 256"):
        ours.generate_until(asked("generate_until", ("the", {"until": ["\n"]})))
    with pytest.raises(ConfigError, match="there is no such option"):
        ours.generate_until(asked("generate_until", ("the", {"max_gen_toks": 4, "topp": 0.3})))
    with pytest.raises(DataError, match="a continuation has"):
        ours.loglikelihood(asked("loglikelihood", ("a", LONG)))
    with pytest.raises(DataError):
        PaddockLM(run=str(tmp_path))
    with pytest.raises(ConfigError, match="there is no such device"):
        PaddockLM(run=str(folder), device="abacus:0")


def test_the_harness_finds_the_entry_point() -> None:
    """As its registry takes one in."""
    with open(ROOT / "pyproject.toml", "rb") as stream:
        entries = tomllib.load(stream)["project"]["entry-points"]["lm_eval.models"]
    registry: Registry[Any] = Registry("model")
    registry.register("paddock", target=EntryPoint("paddock", entries["paddock"], "lm_eval.models"))
    assert registry.get("paddock") is PaddockLM


def harness(folder: Path, flags: str) -> subprocess.CompletedProcess[str]:
    """Its command, in a folder where it can leave what it likes."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "paddock.evaluation.harness", *flags.split()]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, **offline})


def test_the_harness_by_its_own_command(folder: Path, tmp_path: Path) -> None:
    file = write_passages(tmp_path / "passages.jsonl", TEXTS)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "local.yaml").write_text(
        f"""
task: lambada_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: loglikelihood
test_split: test
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list:
  - {{metric: perplexity, aggregation: perplexity, higher_is_better: false}}
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""
    )
    named = f"--model paddock --model_args run={folder} --tasks lambada_local --include_path tasks"
    result = harness(tmp_path, f"{named} --output_path out.json")
    assert result.returncode == 0, result.stderr
    (written,) = tmp_path.glob("out*.json")
    found = json.loads(written.read_text())["results"]["lambada_local"]
    same = paddock("evaluate", str(folder), "--lambada", str(file), "--data.form", "harness", "--json")
    expected = json.loads(same.stdout)
    assert found["acc,none"] == pytest.approx(expected["val.lambada_accuracy"])
    assert found["perplexity,none"] == pytest.approx(expected["val.lambada_perplexity"], rel=1e-4)
    wrong = harness(tmp_path, named.replace(str(folder), "nowhere"))
    assert wrong.returncode == 4 and "error: there is no nowhere" in wrong.stderr and "Traceback" not in wrong.stderr
