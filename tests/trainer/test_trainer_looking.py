"""What a trainer has to show: curves, the model, what it writes, and itself in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import paddock
from paddock import Trainer
from paddock.errors import ConfigError, UserError

MakeTrainer = Callable[..., Any]


def test_the_history_is_a_table_of_what_was_recorded(trained: Trainer) -> None:
    history = trained.history
    assert trained.run_dir is not None
    lines = (trained.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged: dict[int, dict[str, float]] = {}
    for record in map(json.loads, lines):
        if record["type"] == "LOG" and record["step"]:
            logged.setdefault(record["step"][1], {}).update(record["data"])
    assert history.rows == [{"step": step, **data} for step, data in logged.items()]
    assert [row["step"] for row in history] == [1, 2, 3, 4] and len(history) == 4
    assert history["val.loss"] == {step: logged[step]["val.loss"] for step in (2, 4)}
    assert history.columns[:2] == ["train.loss", "val.loss"]
    with pytest.raises(ConfigError, match=r"has recorded no train\.los"):
        history["train.los"]


def test_the_history_looks_like_a_table(trained: Trainer) -> None:
    text, page = repr(trained.history), trained.history._repr_html_()
    title, head, *rows = text.splitlines()
    assert title == f"{trained.run_dir}: 4 steps recorded"
    assert head.split()[:3] == ["step", "train.loss", "val.loss"] and [row.split()[0] for row in rows] == list("1234")
    loss = f"{trained.history['train.loss'][3]:.4f}"
    assert loss in rows[2] and f"<td>{loss}</td>" in page
    assert page.count("<tr>") == page.count("</tr>") == 5


def test_plots_go_into_a_notebook_a_terminal_and_a_file(trained: Trainer, tmp_path: Path) -> None:
    picture = trained.history.plot("train.loss", "val.loss", smooth=2)
    assert "train.loss" in repr(picture) and "val.loss" in repr(picture) and "└" in repr(picture)
    drawing = ElementTree.fromstring(picture._repr_svg_())  # noqa: S314  ours
    assert drawing.tag.endswith("svg") and "val.loss" in picture._repr_svg_()
    assert picture.save(tmp_path / "new" / "losses.svg").read_text(encoding="utf-8") == picture._repr_svg_()
    alone = trained.history.plot()
    assert "train.loss" in repr(alone) and "val.loss" not in repr(alone)
    assert alone.save(tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"\.svg or \.png"):
        alone.save("loss.pdf")
    with pytest.raises(ConfigError, match="did you mean"):
        trained.history.plot("train.los")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda trainer: trainer.history.plot(smooth="a"), "smooth is 'a'(.|\n)*smooth=20"),
        (lambda trainer: trainer.history.plot(x="stp"), 'x = stp(.|\n)*did you mean "step"'),
        (lambda trainer: trainer.history.plot(log="a"), "log is 'a'"),
        (lambda trainer: trainer.history.plot().save(7), "path is 7"),
        (lambda trainer: trainer.generate(7), "prompts is 7(.|\n)*give a text, or a list of texts"),
        (lambda trainer: trainer.generate(["x", None]), r"prompts\[1\] is None"),
        (
            lambda trainer: trainer.generate("x", temperature="hot"),
            "temperature is 'hot'(.|\n)*such as temperature=0.9",
        ),
        (lambda trainer: trainer.generate("x", max_new_tokens="5"), "max_new_tokens is '5'(.|\n)*max_new_tokens=100"),
        (lambda trainer: trainer.generate("x", seed=None), "seed = None(.|\n)*leave it out"),
        (lambda trainer: trainer.generate("x", num_beams=2, early_stopping="nevr"), "early_stopping = 'nevr'"),
        (lambda trainer: trainer.generate("x", stop=7), "stop is 7"),
        (lambda trainer: trainer.generate("x", stop=[7]), r"stop is \[7\]"),
        (lambda trainer: trainer.predict(input_data="x", temperature="hot"), "temperature is 'hot'"),
        (lambda trainer: trainer.predict(input_data=["x", 7]), r"input_data\[1\] is 7"),
        (lambda trainer: paddock.load(str(trainer.run_dir)).perplexity(7), "text is 7"),
        (lambda trainer: paddock.load(str(trainer.run_dir)).perplexity("a b", stride="x"), "stride is 'x'"),
    ],
)
def test_values_of_wrong_types_are_refused_by_name(ask: Any, message: str, trained: Trainer) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(trained)


def test_numbers_of_numpy_are_numbers(trained: Trainer) -> None:
    import numpy as np

    options = {"max_new_tokens": np.int64(3), "temperature": np.float32(0.5), "seed": np.int32(1)}
    plain = {"max_new_tokens": 3, "temperature": 0.5, "seed": 1}
    assert trained.generate("a", **options) == trained.generate("a", **plain)


def test_the_model_and_its_tokenizer(trained: Trainer) -> None:
    model, tokenizer = trained.model, trained.tokenizer
    assert isinstance(model, torch.nn.Module) and not model.training and trained.model is model
    assert tokenizer.decode(tokenizer.encode("a castle on a cliff")) == "a castle on a cliff"
    assert repr(tokenizer) == f"<BPE tokenizer of {tokenizer.vocab_size} tokens: end_of_text <|endoftext|>>"
    texts = trained.generate(["a castle", "two"], max_new_tokens=5, temperature=0)
    loaded = paddock.load(str(trained.run_dir))
    assert texts == loaded.generate(["a castle", "two"], max_new_tokens=5, temperature=0) and len(texts) == 2
    for (name, mine), (other, theirs) in zip(model.named_parameters(), loaded.model.named_parameters(), strict=True):
        assert name == other and torch.equal(mine, theirs)


def test_what_is_exported_gives_the_same_logits_elsewhere(trained: Trainer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = trained.convert(tmp_path / "exported")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = torch.tensor([trained.tokenizer.encode("a castle on a cliff")])
    with torch.inference_mode():
        assert torch.allclose(theirs(tokens).logits, trained.model(tokens=tokens), atol=1e-5)
    with pytest.raises(ConfigError, match="did you mean"):
        trained.convert(tmp_path / "other", to="hugingface")  # type: ignore[arg-type]


def test_a_benchmark(trained: Trainer) -> None:
    found = trained.benchmark(train=True, warmup=0, iterations=1)
    assert found["mode"] == "training steps" and found["samples_per_second"] > 0 and found["iterations"] == 1


def test_a_trainer_tells_what_it_is(trained: Trainer) -> None:
    told = repr(trained)
    assert told.startswith("<Trainer of gpt2/tiny (language_modeling, ") and "parameters, text " in told
    assert told.endswith(f": {trained.run_dir}, done, step 4, loss {trained.history['train.loss'][4]:.4f}>")
    new = Trainer(model="bert/tiny", nproc_per_node=2)
    assert repr(new).endswith("synthetic) over 2 processes: not trained yet>")


def test_a_run_is_compared_with_another(trained: Trainer, small: MakeTrainer, tmp_path: Path) -> None:
    again = small(run_dir=tmp_path / "again")
    again.train()
    found = again.align(trained)
    assert found.aligned and repr(found).startswith(f"aligned: {again.run_dir} beside the reference {trained.run_dir}")
    page = found._repr_html_()
    assert page.startswith("<pre>aligned: ") and 'src="data:image/svg+xml;base64,' in page
    assert found.save(tmp_path / "new" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert found.save(tmp_path / "losses.svg").read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(UserError, match=r"\.html or \.svg"):
        found.save("report.pdf")
    other = small(run_dir=tmp_path / "other", overrides={"train.seed": 5})
    other.train()
    with pytest.raises(ConfigError, match="seed: 5 and 1234"):
        other.align(str(trained.run_dir))
    apart = other.align(trained, allow_differences=True, tolerance=1e-9)
    assert not apart.aligned and apart.to_dict()["beyond"] and "not aligned" in apart._repr_html_()
    with pytest.raises(ConfigError, match="agrees with itself"):
        trained.align(trained)


@pytest.mark.parametrize("wanted", ["history", "model", "tokenizer"])
def test_nothing_to_show_yet(wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"{wanted}: this trainer has no checkpoint yet"):
        getattr(Trainer(model="gpt2/tiny"), wanted)
