"""What Python gets has examples in its docstrings: all of it, and those of a trained model run."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import paddock
from paddock import Callback, Stop, Trainer
from paddock.devices import cpu
from paddock.inference.generation.options import GenerationOptions
from paddock.models.family import Family
from paddock.tasks.registry import TaskEntry
from paddock.telemetry.jsonl import read_metrics
from paddock.testing.samples.texts import sample_prompts
from paddock.training.callbacks import register_callback

MAKING = Path(__file__).parents[2] / "docs" / "making"
RUN = ("History", "Picture", "Alignment", "LoadedModel", "load", "GenerationOptions", "read_metrics")
"""Whose examples need nothing but a trained model."""
NAMES: dict[str, Any] = {"Callback": Callback, "Family": Family, "GenerationOptions": GenerationOptions, "Stop": Stop}
NAMES |= {"TaskEntry": TaskEntry, "paddock": paddock, "read_metrics": read_metrics, "torch": torch, "replace": replace}
NAMES |= {"CPU": cpu.CPU, "register_callback": register_callback, "Trainer": Trainer}


def documented() -> Iterator[tuple[str, Any]]:
    """Everything on the page of what Python gets: classes and functions, and their public methods and properties."""
    sys.path.insert(0, str(MAKING))
    try:
        listed = importlib.import_module("python_api")
    finally:
        sys.path.remove(str(MAKING))
    wanted = [(module, name) for module, names in [*listed._exported(), *listed.ALSO.items()] for name in names]
    for module, name in dict.fromkeys(wanted):
        thing = getattr(importlib.import_module(module), name)
        yield name, thing
        for inner, member in vars(thing).items() if isinstance(thing, type) else ():
            is_shown = callable(member) or hasattr(member, "fget") or hasattr(member, "func")
            if not inner.startswith("_") and is_shown and not (name == "Callback" and inner.startswith("on_")):
                yield f"{name}.{inner}", member


EVERYTHING = dict(documented())


def examples_of(thing: Any) -> list[str]:
    found = doctest.DocTestParser().get_examples(thing.__doc__ or "")
    return [example.source for example in found]


@pytest.mark.parametrize("name", EVERYTHING)
def test_it_has_an_example(name: str) -> None:
    examples = examples_of(EVERYTHING[name])
    assert examples, f"{name} has no >>> in its docstring"
    for example in examples:
        compile(example, name, "single")


def test_the_list_has_what_users_meet() -> None:
    assert {"Trainer", "Trainer.train", "History.plot", "Picture.save", "load", "LoadedModel.perplexity"} <= set(
        EVERYTHING
    )
    assert {"register_family", "register_task", "register", "read_metrics", "Alignment.save"} <= set(EVERYTHING)


def test_examples_of_a_trained_model_run(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    longer = {"model.context": 128}  # room for what is written without being told how much
    trainer = small(train_dataset=sample_prompts(), run_dir="runs/tour", overrides=longer)
    trainer.train()
    reference = small(train_dataset=sample_prompts(), run_dir="runs/reference", overrides=longer)
    reference.train()
    frame = type("pandas", (), {"DataFrame": list})
    names = NAMES | {"trainer": trainer, "loaded": paddock.load("runs/tour"), "pandas": frame}
    for name, thing in EVERYTHING.items():
        if name.split(".")[0] in RUN:
            for example in examples_of(thing):
                exec(compile(example, name, "single"), names)  # noqa: S102  ours
    assert Path("losses.svg").exists() and Path("report.html").exists()
