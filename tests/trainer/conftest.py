"""A language model that is trained once, in a second, for all tests here that only look at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock import Trainer
from paddock.testing.samples.texts import sample_prompts

SMALL: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 32, "heads": 2, "context": 32, "vocab": 400, "dropout": 0.0},
    "data": {"sequence_length": 32},
    "batch": {"micro": 4, "global": 8},
    "train.steps": 4,
    "evaluate": {"every": 2, "batches": 1},
    "checkpoint.every": 4,
    "log.every": 1,
    "schedule": {"warmup": 1, "decay_steps": 4},
}
MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTrainer:
    """Makes a trainer of a tiny GPT-2 on prompts, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(**arguments: Any) -> Trainer:
        overrides = SMALL | arguments.pop("overrides", {})
        given = {"train_dataset": sample_prompts(), "run_dir": tmp_path / "run"} | arguments
        return Trainer(model="gpt2/tiny", overrides=overrides, **given)

    return make


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """One that has come to its end."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    trainer = Trainer(model="gpt2/tiny", overrides=SMALL, train_dataset=sample_prompts(), run_dir=run_dir)
    trainer.train()
    return trainer
