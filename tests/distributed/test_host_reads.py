"""A step does not wait for its device: the host reads it once from one launch to the next, and not per micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.data.loading.loader import StepLoader
from paddock.parallel.world import World
from paddock.tasks.registry import prepare_data
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.testing.host_reads import HostReads, accelerated
from paddock.testing.layouts import small_bert, small_recipe, small_t5, this_world
from paddock.testing.pool import ProcessPool
from paddock.training.callbacks import Callback
from paddock.training.feed import StepFeed
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


def reads_of_steps(
    recipe: Recipe, folder: Path, callbacks: Sequence[Callback] = ()
) -> tuple[list[dict[str, int]], list[dict[str, int]], int]:
    """What the host reads in the launch of every step of a real training loop, and from there to the next launch: in
    the rest of the step, its callbacks, its average of the weights, its records and the next batch. And how often it
    waits."""
    launches: list[dict[str, int]] = []
    steps: list[dict[str, int]] = []
    launch, complete = TrainingStep.launch, TrainingStep.complete
    reads = HostReads()

    def taken() -> dict[str, int]:
        found = dict(reads.by_name)
        reads.by_name.clear()
        return found

    def watched_launch(step: TrainingStep, *arguments: Any) -> None:
        if launches:
            steps.append(taken())
        reads.by_name.clear()  # what comes before the first step
        launch(step, *arguments)
        launches.append(taken())

    def watched_complete(step: TrainingStep, *arguments: Any, **named: Any) -> StepResult:
        result = complete(step, *arguments, **named)
        if len(launches) == STEPS:  # behind the last step, the run is saved
            steps.append(taken())
        return result

    def aside(function: Callable[..., Any]) -> Callable[..., Any]:
        """What only handles tensors of the host, which cannot be told from the device's here."""

        def uncounted(*arguments: Any, **named: Any) -> Any:
            before = dict(reads.by_name)
            result = function(*arguments, **named)
            reads.by_name.clear()
            reads.by_name.update(before)
            return result

        return uncounted

    start_sum = World.start_all_reduce_sum
    with accelerated() as adapter, pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepLoader, "next_step", aside(StepLoader.next_step))
        patch.setattr(StepFeed, "_work", aside(StepFeed._work))
        patch.setattr(World, "start_all_reduce_sum", lambda *arguments: aside(aside(start_sum)(*arguments)))
        here = this_world()
        world = World(here.rank, here.size, adapter, torch.device("cpu"))
        patch.setattr(TrainingStep, "launch", watched_launch)
        patch.setattr(TrainingStep, "complete", watched_complete)
        run = TrainingRun(
            recipe, check_recipe(recipe, world.size), prepare_data(recipe), folder, world, callbacks=callbacks
        )
        kind = type(run.task)  # the task itself goes to processes that read
        patch.setattr(kind, "skipped", aside(kind.skipped))
        with run.checkpoints, reads:
            TrainingLoop(run, MetricStream(), ThroughputMeter()).train()
        return launches, steps, adapter.waits


def check(launches: list[dict[str, int]], steps: list[dict[str, int]], waits: int, pipeline: bool = False) -> None:
    begins = (
        1 if pipeline else 0
    )  # torch's stages agree once, before their first step, on whether they were told shapes
    assert launches[begins:] == [{}] * (STEPS - begins), "forward and backward passes read something back"
    assert [sum(reads.values()) for reads in steps] == [1] * STEPS, steps
    assert waits == 2  # at the logging steps: the first and the last


@pytest.mark.parametrize("family", FAMILIES)
def test_one_read_a_step(family: str, tmp_path: Path) -> None:
    recipe = recipe_of(family, tmp_path / "cache")
    assert check_recipe(recipe, 1).batch.accumulation == 4  # a read in every micro-batch would be seen
    check(*reads_of_steps(recipe, tmp_path / "run"))


class Looks(Callback):
    """What somebody may write: after every step it reads a weight."""

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        next(run.engine.models[0].parameters()).sum().item()


def test_what_is_read_between_steps_is_seen(tmp_path: Path) -> None:
    _, steps, _ = reads_of_steps(recipe_of("gpt2", tmp_path), tmp_path / "run", [Looks()])
    assert [sum(reads.values()) for reads in steps] == [2] * (STEPS - 1) + [1]


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
