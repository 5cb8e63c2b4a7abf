"""A step does not wait for its device: at most one read of it between two logging steps, none per micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.parallel.world import World
from paddock.tasks.registry import prepare_data
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.testing.host_reads import HostReads, accelerated
from paddock.testing.layouts import small_bert, small_recipe, small_t5, this_world
from paddock.testing.pool import ProcessPool
from paddock.training.loop import TrainingLoop
from paddock.training.run import TrainingRun
from paddock.training.step import StepResult, TrainingStep

PoolOf = Callable[[int], ProcessPool]
STEPS = 5
SECTIONS: dict[str, Any] = {
    "train": {"steps": STEPS, "samples": None, "epochs": None},
    "batch": {"micro": 2, "global": 8},
    "evaluate": {"every": None},
    "log": {"every": 100},
    "checkpoint": {"every": None},
}
IMAGES: dict[str, Any] = {
    "model": {"arch": "resnet18", "width": 8, "small_images": True, "classes": 5},
    "data": {"source": "synthetic", "image_size": 32},
}
FAMILIES = ["gpt2", "t5", "question_answering", "sequence_classification", "masked_language_modeling", "resnet"]


def recipe_of(family: str, folder: Path) -> Recipe:
    if family == "gpt2":
        recipe = small_recipe(model={"dropout": 0.1})
    elif family == "t5":
        recipe = small_t5("t5", model={"dropout": 0.1})
    elif family == "resnet":
        recipe = recipe_from_dict(merge(load_recipe("resnet/18").to_dict(), IMAGES))
    else:
        recipe = small_bert(family, str(folder), model={"dropout": 0.1})
    return recipe_from_dict(merge(recipe.to_dict(), SECTIONS))


def reads_of_steps(recipe: Recipe, folder: Path) -> tuple[list[dict[str, int]], list[dict[str, int]], int]:
    """What the host reads in the halves of every step of a real training loop, and how often it waits."""
    launches: list[dict[str, int]] = []
    completions: list[dict[str, int]] = []
    launch, complete = TrainingStep.launch, TrainingStep.complete

    def watched_launch(step: TrainingStep, *arguments: Any) -> None:
        with HostReads() as reads:
            launch(step, *arguments)
        launches.append(dict(reads.by_name))

    def watched_complete(step: TrainingStep, *arguments: Any, **named: Any) -> StepResult:
        with HostReads() as reads:
            result = complete(step, *arguments, **named)
        completions.append(dict(reads.by_name))
        return result

    with accelerated() as adapter, pytest.MonkeyPatch.context() as patch:
        here = this_world()
        world = World(here.rank, here.size, adapter, torch.device("cpu"))
        patch.setattr(TrainingStep, "launch", watched_launch)
        patch.setattr(TrainingStep, "complete", watched_complete)
        run = TrainingRun(recipe, check_recipe(recipe, world.size), prepare_data(recipe), folder, world)
        with run.checkpoints:
            TrainingLoop(run, MetricStream(), ThroughputMeter()).train()
        return launches, completions, adapter.waits


def check(
    launches: list[dict[str, int]], completions: list[dict[str, int]], waits: int, pipeline: bool = False
) -> None:
    begins = (
        1 if pipeline else 0
    )  # torch's stages agree once, before their first step, on whether they were told shapes
    assert launches[begins:] == [{}] * (STEPS - begins), "forward and backward passes read something back"
    assert [sum(reads.values()) for reads in completions] == [1] * STEPS
    assert waits == 2  # at the logging steps: the first and the last


@pytest.mark.parametrize("family", FAMILIES)
def test_one_read_a_step(family: str, tmp_path: Path) -> None:
    recipe = recipe_of(family, tmp_path / "cache")
    assert check_recipe(recipe, 1).batch.accumulation == 4  # a read in every micro-batch would be seen
    check(*reads_of_steps(recipe, tmp_path / "run"))


def in_a_pool(rank: int, values: dict[str, Any], folder: str) -> Any:
    return reads_of_steps(recipe_from_dict(values), Path(folder))


@pytest.mark.parametrize(
    ("family", "layout"),
    [
        ("gpt2", "pp2"),
        ("gpt2", "pp2,schedule=zbv"),
        ("gpt2", "dp2,shard=parameters"),
        ("gpt2", "tp2,sequence=true"),
        ("t5", "pp2"),
    ],
)
def test_one_read_a_step_in_a_layout(pool_of: PoolOf, family: str, layout: str, tmp_path: Path) -> None:
    # A CPU that plays an accelerator has no generator that dropout in tensor parallelism could fork.
    dropout = {"model": {"dropout": 0.0 if layout.startswith("tp") else 0.1}}
    recipe = recipe_from_dict(merge(recipe_of(family, tmp_path / "cache").to_dict(), dropout))
    for found in pool_of(2).run(in_a_pool, with_layout(recipe, layout).to_dict(), str(tmp_path / "run")):
        check(*found, pipeline=layout.startswith("pp"))


def test_reads_are_seen() -> None:
    """Each way to read that the tests above would have to see."""
    x = torch.arange(4.0)
    ways: list[Callable[[], object]] = [
        lambda: x.sum().item(),
        lambda: x.tolist(),
        lambda: bool(x[0] > 0),
        lambda: float(x[0]),
        lambda: x.numpy(),
        lambda: x.cpu(),
        lambda: x[x > 1],
        lambda: x.nonzero(),
        lambda: torch.where(x > 1),
        lambda: torch.equal(x, x),
    ]
    for number, way in enumerate(ways):
        with HostReads() as reads:
            way()
        assert reads.count == 1, (number, reads.by_name)
    with HostReads() as reads:
        (x * 2).sum() + x.gather(0, torch.tensor([1]))
    assert reads.count == 0
