"""A torch module of the user's own: it trains as in a loop written by hand, in one process and in two, and goes on as
if it had not been stopped."""

from __future__ import annotations

import copy
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

from paddock import Trainer, plugins
from paddock.cli.main import run
from paddock.errors import ConfigError, DataError, UserError

SETTINGS: dict[str, Any] = {
    "batch.global": 8,
    "optimizer": {"lr": 0.01, "weight_decay": 0.1, "clip": 1.0},
    "schedule": {"name": "constant"},
    "data.shuffle": False,
    "log.every": 1,
    "train.steps": 6,
    "train.device": "cpu",
}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The file with the modules, importable by its name."""
    monkeypatch.setattr(plugins, "_modules", {})
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield importlib.import_module("own_modules")


def losses(trainer: Trainer) -> list[float]:
    return list(trainer.history["train.loss"].values())


def train_by_hand(module: nn.Module, samples: list[Any], steps: int) -> list[float]:
    """The loop that everybody writes, with the settings above."""
    matrices = [weight for weight in module.parameters() if weight.dim() > 1]
    vectors = [weight for weight in module.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    found = []
    for step in range(steps):
        batch = default_collate([samples[(step * 8 + place) % len(samples)] for place in range(8)])
        loss = module(**batch)["loss"] if isinstance(batch, dict) else module(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


def test_it_trains_as_a_loop_by_hand_does(own: ModuleType, tmp_path: Path) -> None:
    module, samples = own.Regression(), own.make_records()
    before = copy.deepcopy(module)
    trainer = Trainer(
        model=module, train_dataset=samples, eval_dataset=samples[:5], overrides=SETTINGS, run_dir=tmp_path / "run"
    )
    outcome = trainer.train()
    expected = copy.deepcopy(module)
    assert losses(trainer) == pytest.approx(train_by_hand(expected, samples, 6), rel=1e-5)
    assert outcome["step"] == 6 and trainer.history.columns[:2] == ["train.loss", "val.loss"]
    assert list(trainer.history["val.loss"]) == [3, 6], "an epoch has three steps"
    assert isinstance(trainer.model, own.Regression) and not trainer.model.training
    for name, weight in trainer.model.named_parameters():
        assert torch.allclose(weight, dict(expected.named_parameters())[name], atol=1e-5)
        assert torch.equal(dict(module.named_parameters())[name], dict(before.named_parameters())[name]), "untouched"
    assert trainer.model.first.weight is trainer.model.second.weight
    with torch.no_grad():
        held_out = float(expected.eval()(**default_collate(samples[:5]))["loss"])
    assert trainer.evaluate()["loss"] == pytest.approx(held_out, rel=1e-5)
    assert repr(trainer).startswith("<Trainer of Regression (own_loss, ")


@pytest.mark.parametrize("form", ["tensor", "tuple", "object"])
def test_every_form_of_a_loss(own: ModuleType, form: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, samples = own.Positional(form), own.make_pairs()
    dataset = TensorDataset(*(torch.stack(column) for column in zip(*samples, strict=True)))
    settings = SETTINGS | {"train.steps": 2}
    trainer = Trainer(model=module, train_dataset=dataset, overrides=settings, run_dir=tmp_path / "run")
    trainer.train()
    module.form = "tensor"
    assert losses(trainer) == pytest.approx(train_by_hand(copy.deepcopy(module), samples, 2), rel=1e-5)


def test_accumulation_and_shuffling_take_every_sample_once_an_epoch(own: ModuleType, tmp_path: Path) -> None:
    seen: list[float] = []

    class Seen(list):  # type: ignore[type-arg]
        def __getitem__(self, number: Any) -> Any:
            found = super().__getitem__(number)
            seen.append(float(found["index"]))
            return found

    samples = own.make_records()
    settings = SETTINGS | {"data.shuffle": True, "batch.micro": 2, "train.steps": None, "train.epochs": 2}
    trainer = Trainer(
        model=own.make_regression, train_dataset=Seen(samples), overrides=settings, run_dir=tmp_path / "r"
    )
    assert trainer.train()["step"] == 6
    epochs = seen[-48:-24], seen[-24:]
    everything = sorted(float(sample["index"]) for sample in samples)
    assert sorted(epochs[0]) == sorted(epochs[1]) == everything and epochs[0] != epochs[1]


def test_a_run_that_was_stopped_ends_as_one_that_was_not(own: ModuleType, tmp_path: Path) -> None:
    module, samples = own.Regression(), own.make_records()
    settings = SETTINGS | {"data.shuffle": True, "optimizer.lr": 0.003, "train.ema": 0.9}
    whole = Trainer(model=module, train_dataset=samples, overrides=settings, run_dir=tmp_path / "whole")
    whole.train()
    first = settings | {"train.steps": 3}
    Trainer(model=module, train_dataset=samples, overrides=first, run_dir=tmp_path / "parts").train()
    second = Trainer(model=module, train_dataset=samples, overrides=settings, run_dir=tmp_path / "parts")
    second.train(resume_or_finetune_from_checkpoint=True)
    assert losses(second) == losses(whole)
    for one, other in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert whole.model.passes == second.model.passes == 6


def test_settings_come_from_a_recipe_of_another_model_or_from_an_own_run(own: ModuleType, tmp_path: Path) -> None:
    given = {"model": own.Regression(), "train_dataset": own.make_records()}
    taken = Trainer(**given, recipe="gpt2/tiny").recipe
    assert taken.optimizer.lr == 2e-3 and taken.schedule.warmup == 20 and taken.train.steps == 600
    assert taken.task == "own_loss" and taken.tokenizer.kind == "none" and taken.evaluate.every is None
    bare = Trainer(**given, eval_dataset=own.make_records()).recipe
    assert (bare.train.epochs, bare.batch.micro, bare.batch.global_, bare.evaluate.every) == (1, None, 8, "epoch")
    assert Trainer(**given, args=bare.to_dict()).recipe.evaluate == bare.evaluate
    seeded = Trainer(**given, args={"train": {"seed": 3}, "data": {"shuffle": False}}).recipe
    assert seeded.model.seed == seeded.train.seed == 3 and not seeded.data.shuffle  # type: ignore[attr-defined]


def test_two_processes_train_as_one(own: ModuleType, tmp_path: Path) -> None:
    def trained(name: str, **layout: Any) -> Trainer:
        places = {"model": "own_modules:make_regression", "train_dataset": own.make_records}
        trainer = Trainer(
            **places, eval_dataset="own_modules:make_records", overrides=SETTINGS, run_dir=tmp_path / name, **layout
        )
        trainer.train()
        return trainer

    alone, together = trained("alone"), trained("together", parallel="dp2", nproc_per_node=2)
    assert losses(together) == pytest.approx(losses(alone), rel=1e-5)
    assert together.history["val.loss"] == pytest.approx(alone.history["val.loss"], rel=1e-5)
    assert together.align(alone).aligned
    for one, other in zip(alone.model.parameters(), together.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_what_cannot_be_is_refused_when_the_trainer_is_made(own: ModuleType) -> None:
    module, samples = own.Regression(), own.make_records()
    for layout, field in (("tp2", "parallel.tensor"), ("pp2", "parallel.pipeline")):
        with pytest.raises(ConfigError, match=rf"{field} = 2(.|\n)*one piece(.|\n)*dp2"):
            Trainer(model=own.make_regression, train_dataset=own.make_records, parallel=layout, nproc_per_node=2)
    with pytest.raises(ConfigError, match="model is Regression, an object of this process"):
        Trainer(model=module, train_dataset=own.make_records, nproc_per_node=2)
    with pytest.raises(ConfigError, match="train_dataset is list.*, an object of this process"):
        Trainer(model=own.make_regression, train_dataset=samples, nproc_per_node=2)
    with pytest.raises(ConfigError, match="no samples"):
        Trainer(model=module)
    with pytest.raises(ConfigError, match="data.train is texts.txt"):
        Trainer(model=module, train_dataset="texts.txt")
    with pytest.raises(DataError, match="train_dataset is empty"):
        Trainer(model=module, train_dataset=[])
    with pytest.raises(ConfigError, match="no_such_file:make cannot be imported"):
        Trainer(model="no_such_file:make", train_dataset=samples)
    with pytest.raises(ConfigError, match=r"own_modules has no make_regresion(.|\n)*make_regression"):
        Trainer(model="own_modules:make_regresion", train_dataset=samples)
    with pytest.raises(ConfigError, match="made an object of type list"):
        Trainer(model=own.make_pairs, train_dataset=samples)
    with pytest.raises(ConfigError, match="nothing to learn"):
        Trainer(model=nn.Flatten(), train_dataset=samples)


@pytest.mark.parametrize(
    ("form", "samples", "message"),
    [
        ("none", None, r"a tensor of shape \[8\], and no loss"),
        ("tensor", [{"x": "a text"}], "a batch has x as list"),
        ("tensor", [(torch.zeros(3),), (torch.zeros(4),)], "do not make a batch"),
    ],
)
def test_what_shows_when_it_runs_is_told(
    form: str, samples: list[Any] | None, message: str, own: ModuleType, tmp_path: Path
) -> None:
    trainer = Trainer(
        model=own.Positional(form),
        train_dataset=samples or own.make_pairs(),
        overrides=SETTINGS,
        run_dir=tmp_path / "r",
    )
    with pytest.raises(UserError, match=message):
        trainer.train()


def test_what_a_trainer_was_lent_is_given_back(own: ModuleType) -> None:
    gc.collect()
    before = set(plugins._lent)
    trainer = Trainer(model=own.Regression(), train_dataset=own.make_records())
    lent = set(plugins._lent) - before
    assert len(lent) == 2
    with pytest.raises(ConfigError, match="did you mean"):
        Trainer(model=own.Regression(), train_dataset=own.make_records(), overrides={"train.stepz": 1})
    del trainer
    gc.collect()
    assert set(plugins._lent) == before


def test_a_run_whose_module_is_gone_says_so(
    own: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SETTINGS | {"train.steps": 1}
    parts = {"train_dataset": own.make_records(), "overrides": settings, "run_dir": tmp_path / "r"}
    Trainer(model=own.Regression(), **parts).train()
    told = capsys.readouterr().err
    assert f"next: paddock report {tmp_path / 'r'}" in told and "paddock evaluate" not in told
    gc.collect()
    assert run(["evaluate", str(tmp_path / "r")]) == 2
    assert run(["resume", str(tmp_path / "r"), "--train.steps", "2"]) == 2
    assert "a Trainer again" in capsys.readouterr().err
    assert run(["runs", "show", str(tmp_path / "r")]) == 0


def test_a_recipe_imports_no_code(own: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote it: only what a program has named is found, in the very place that it named."""
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    Trainer(model="own_modules:make_regression", train_dataset="own_modules:make_records")
    for place in ("trap:make", "os:getcwd", "own_modules:make_pairs", "paddock.cli.main:main"):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(
            f"task: own_loss\nmodel: {{family: own, module: '{place}'}}\n"
            f"data: {{source: own, train: '{place}'}}\ntrain: {{steps: 1}}\nevaluate: {{every: null}}\n"
        )
        with pytest.raises(ConfigError, match=f"{place} is code(.|\n)*cannot bring code"):
            Trainer(recipe=recipe, run_dir=tmp_path / "run").train()
        assert run(["train", str(recipe), "--run-dir", str(tmp_path / "run")]) == 2
        with pytest.raises(ConfigError, match="cannot bring code"):
            plugins.object_at(place)
    assert "trap" not in sys.modules
