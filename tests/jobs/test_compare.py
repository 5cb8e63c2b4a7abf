"""`paddock benchmark --compare`: the same work beside another library."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from paddock.benchmarking.peers import PEERS, _blocks, _renamed, check_peer, peer_optimizer, peer_step
from paddock.benchmarking.sides import Measured
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import select
from paddock.errors import ConfigError, MachineError
from paddock.jobs import benchmark
from paddock.models.registry import example_batch
from paddock.testing.layouts import small_bert, small_recipe, small_t5
from paddock.training.config import OptimizerConfig
from paddock.training.optimization.optimizer import build_optimizer

TINY = ["--model.layers", "2", "--data.sequence-length", "32", "--benchmark.iterations", "2", "--benchmark.warmup", "1"]


def recipes() -> dict[str, Recipe]:
    resnet = load_recipe("resnet/tiny-synthetic")
    return {
        "gpt2": small_recipe(),
        "bert": small_bert("masked_language_modeling", "/nonexistent"),
        "bert questions": small_bert("question_answering", "/nonexistent"),
        "t5": small_t5("t5"),
        "mt5": small_t5("mt5"),
        "resnet": resnet,
    }


@pytest.mark.parametrize("name", sorted(recipes()))
def test_the_peer_does_the_same_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loss begins where ours does, about that of a guess, and its step changes its weights."""
    recipe = recipes()[name]
    seen: list[Any] = []
    built_by = PEERS["hf"].build

    def watched(config: Any) -> Any:
        seen.append(built_by(config))
        return seen[0]

    monkeypatch.setitem(PEERS, "hf", type(PEERS["hf"])("transformers", PEERS["hf"].families, watched))
    step = peer_step(recipe, "hf", "default", True, select("cpu"))
    batch = example_batch(recipe.model, recipe.batch.micro or 1, recipe.data.sample_shape(), 0)
    before = [parameter.detach().clone() for parameter in seen[0].model.parameters()]
    assert torch.isfinite(seen[0].loss(batch))
    step()
    after = list(seen[0].model.parameters())
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    theirs = sum(parameter.numel() for parameter in after if parameter.requires_grad)
    assert theirs == pytest.approx(recipe.model.num_parameters(), rel=0.02)  # ours has no unused ones
    peer_step(recipe, "hf", "tuned", False, select("cpu"))()


def test_batches_in_their_words() -> None:
    tokens, lengths = torch.arange(12).view(2, 6), torch.tensor([6, 4])
    asked = {"tokens": tokens, "token_types": tokens // 6, "lengths": lengths}
    words = _renamed(asked)
    assert set(words) == {"input_ids", "token_type_ids", "attention_mask"}
    assert words["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    few = {"labels": torch.tensor([[7, 8], [9, -100]]), "places": torch.tensor([[1, 3], [2, 0]])}
    assert _renamed({**asked, **few}, labels=True)["labels"].tolist() == [
        [-100, 7, -100, 8, -100, -100],
        [-100, -100, 9, -100, -100, -100],
    ]
    answers = _renamed({**asked, "labels": torch.tensor([[1, 2], [0, 3]])}, labels=True)
    assert [answers["start_positions"].tolist(), answers["end_positions"].tolist()] == [[1, 0], [2, 3]]
    t5 = recipes()["t5"]
    words = _renamed(example_batch(t5.model, 3, t5.data.sample_shape(), 0), labels=True)
    assert words["labels"].shape == words["decoder_input_ids"].shape != words["input_ids"].shape


def test_what_is_compiled() -> None:
    model = PEERS["hf"].build(recipes()["t5"].model).model
    assert len(_blocks(model)) == 3 + 5
    assert _blocks(torch.nn.Linear(2, 2))[0].__class__ is torch.nn.Linear


@pytest.mark.parametrize(
    ("peer", "name", "changes", "error", "words"),
    [
        ("hff", "gpt2", {}, ConfigError, "hf"),
        ("timm", "gpt2", {}, ConfigError, "compare with hf or litgpt"),
        ("litgpt", "gpt2", {"model": {"dropout": 0.1}}, ConfigError, r"dropout = 0.1(.|\n)*set --model.dropout 0.0"),
        ("timm", "resnet", {}, ConfigError, r"model.width = 16(.|\n)*timm knows width 64 alone"),
        ("torchvision", "resnet", {"model": {"width": 64, "norm": "group"}}, ConfigError, "norm batch alone"),
    ],
)
def test_refusals(peer: str, name: str, changes: Any, error: type[Exception], words: str) -> None:
    recipe = recipe_from_dict(merge(recipes()[name].to_dict(), changes))
    with pytest.raises(error, match=words):
        check_peer(peer, recipe)


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = type(PEERS["hf"])("a_package_that_nobody_has", ("gpt2",), PEERS["hf"].build)
    monkeypatch.setitem(PEERS, "absent", absent)
    with pytest.raises(MachineError, match="a_package_that_nobody_has"):
        check_peer("absent", small_recipe())


def test_a_peer_that_was_built_for_another_torch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchvision does beside a torch without its operators."""
    words = "operator torchvision::nms does not exist"
    (tmp_path / "built_for_another.py").write_text(f"raise RuntimeError('{words}\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PEERS, "strange", type(PEERS["hf"])("built_for_another", ("gpt2",), PEERS["hf"].build))
    with pytest.raises(MachineError) as error:
        check_peer("strange", small_recipe())
    what, why, fix = str(error.value).splitlines()
    assert what == f"built_for_another cannot be imported beside torch {torch.__version__}"
    assert why == f"  why: {words}" and "this torch" in fix


class Told(torch.nn.Module):
    """Stands in for a library's model: scores by one product, of what it was asked for."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.transformer = torch.nn.ModuleDict({"wte": torch.nn.Embedding(outputs, inputs)})
        self.lm_head = torch.nn.Linear(inputs, outputs, bias=False)

    def _init_weights(self, module: torch.nn.Module) -> None:
        for weight in module.parameters(recurse=False):
            torch.nn.init.normal_(weight, std=0.02)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found = given.mean((2, 3)) if given.dim() == 4 else self.transformer["wte"](given)
        return torch.as_tensor(self.lm_head(found))


def stand_in(package: str) -> ModuleType:
    """What we ask of a package, and no more."""
    module: Any = ModuleType(package)
    module.create_model = lambda arch, num_classes: Told(3, num_classes)
    module.models = SimpleNamespace(resnet18=lambda num_classes: Told(3, num_classes))
    module.Config = lambda **settings: SimpleNamespace(**settings)
    module.GPT = lambda config: Told(config.n_embd, config.padded_vocab_size)
    return module


@pytest.mark.parametrize(("peer", "name"), [("timm", "resnet"), ("torchvision", "resnet"), ("litgpt", "gpt2")])
def test_every_peer_computes(peer: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, or, where the library is not here or does not fit this torch, with what stands in for it."""
    public = {"model": {"width": 64, "classes": 10}, "batch": {"global": 4}} if name == "resnet" else {}
    recipe = recipe_from_dict(merge(recipes()[name].to_dict(), public))
    try:
        check_peer(peer, recipe)
        real = True
    except MachineError:
        monkeypatch.setitem(sys.modules, peer, stand_in(peer))
        check_peer(peer, recipe)
        real = False
    built = PEERS[peer].build(recipe.model)
    monkeypatch.setitem(PEERS, peer, replace(PEERS[peer], build=lambda config: built))
    batch = example_batch(recipe.model, recipe.batch.micro or 4, recipe.data.sample_shape(), 0)
    guess = math.log(recipe.model.vocabulary() or 10)
    assert built.loss(batch).item() == pytest.approx(guess, rel=0.3)
    before = [parameter.detach().clone() for parameter in built.model.parameters()]
    peer_step(recipe, peer, "default", True, select("cpu"))()
    after = list(built.model.parameters())
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    if real:
        assert sum(one.numel() for one in after) == pytest.approx(recipe.model.num_parameters(), rel=0.02)
    peer_step(recipe, peer, "tuned", False, select("cpu"))()


def test_ratios_are_those_of_the_same_turn() -> None:
    found = {
        "paddock": Measured([1.0, 2.0, 1.0], 100),
        "hf default": Measured([2.0, 4.0, 3.0], 200),
        "hf tuned": Measured([1.5, 1.0, 1.5], None),
        "best product": Measured([0.1, 0.2, 0.1]),
    }
    result = benchmark._comparison(small_recipe(), "hf", benchmark.Measurement(True, 1, 3), found)
    assert result["ratios"]["hf default"] == {"median": 2.0, "low": 2.0, "high": 3.0}
    assert result["ratios"]["hf tuned"] == {"median": 1.5, "low": 0.5, "high": 1.5}
    assert result["best"] == "hf tuned"
    assert result["memory_ratios"] == {"hf default": 0.5, "hf tuned": None}
    assert benchmark._ratio([1.0, 2.0, 4.0, 9.0], [1.0] * 4) == {"median": 3.0, "low": 1.0, "high": 9.0}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--compare", "hf", "--benchmark.train", "--benchmark.peer-settings", "default", "--threads", "1", "--json"]
    assert run(["benchmark", "gpt2/tiny", *flags, *TINY]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["sides"]) == {"paddock", "hf default"}
    assert result["turns"] == 2 and result["threads"] == 1 and result["ratios"]["hf default"]["median"] > 0
    assert run(["benchmark", "gpt2/tiny", "--compare", "hf", "--nproc-per-node", "2"]) == 2
    assert run(["benchmark", "gpt2/tiny", "--compare", "timm"]) == 2


def test_all_sides_have_the_threads_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four cores are busy; a number that is asked for goes before."""
    given: list[str | None] = []

    def start(*_: object, env: dict[str, str], **__: object) -> None:
        given.append(env.get("OMP_NUM_THREADS"))
        raise MachineError("that is enough")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("paddock.benchmarking.sides.subprocess.Popen", start)
    monkeypatch.setattr("paddock.launch.environment.is_ours", lambda: True)
    monkeypatch.setattr("paddock.devices.threads.num_cores", lambda: 4)
    monkeypatch.setattr("paddock.devices.threads.busy_since_the_beginning", lambda: 3.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for flags in ([], ["--threads", "2"]):
        assert run(["benchmark", "gpt2/tiny", "--compare", "hf", *flags, *TINY]) == 3
    assert given == ["1", "2"]


def test_what_goes_wrong_in_a_side_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--optimizer.name",
        "adafactor",
        "--benchmark.train",
        "--compare",
        "hf",
        "--benchmark.peer-settings",
        "default",
    ]
    assert run(["benchmark", "t5/tiny", *flags, "--benchmark.iterations", "1", "--benchmark.warmup", "0"]) == 2
    assert "adamw, adam or sgd" in capsys.readouterr().err


def test_a_peer_is_trained_with_the_settings_of_the_recipe() -> None:
    weights = [torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2))]
    config = OptimizerConfig(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3, lr=0.5)
    theirs, ours = peer_optimizer(config, weights, fused=None), build_optimizer(weights, config)

    def settings(optimizer: torch.optim.Optimizer) -> list[tuple[object, ...]]:
        names = ("lr", "betas", "eps", "weight_decay")
        return [(len(group["params"]), *(group[name] for name in names)) for group in optimizer.param_groups]

    assert settings(theirs) == settings(ours)
    sgd = peer_optimizer(OptimizerConfig(name="sgd", momentum=0.8), weights, fused=None)
    assert [group["momentum"] for group in sgd.param_groups] == [0.8, 0.8]
    with pytest.raises(ConfigError, match="adafactor"):
        peer_optimizer(OptimizerConfig(name="adafactor", weight_decay=0.0), weights, fused=None)
