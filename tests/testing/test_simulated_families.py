"""Every family does on a simulated device what it does on the host: through the adapter and the ways of a vendor's.

The device has no float64, no fused optimizers, and memory that the host cannot look into.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.alignment.trace import Trace, record_trace
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.devices import select
from paddock.parallel.world import World
from paddock.tasks.registry import build_task, prepare_data
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.testing.images import encoded, picture
from paddock.testing.layouts import small_bert, small_recipe, small_t5
from paddock.testing.pool import ProcessPool
from paddock.testing.simulated import simulated_device
from paddock.testing.tiny import losses
from paddock.training.loop import TrainingLoop
from paddock.training.run import TrainingRun
from paddock.training.step import TrainingStep

NAME = "npu"
STEPS = 3
SECTIONS: dict[str, Any] = {
    "train": {"steps": STEPS, "samples": None, "epochs": None},
    "batch": {"micro": 2, "global": 4},
    "evaluate": {"every": None},
    "log": {"every": 100},
    "checkpoint": {"every": None},
}
IMAGES: dict[str, Any] = {
    "model": {"arch": "resnet18", "width": 8, "small_images": True, "classes": 5},
    "data": {"source": "synthetic", "image_size": 32, "workers": 0},
}
FEW = {"layers": 2}
BERTS = ("masked_language_modeling", "question_answering", "sequence_classification")
FAMILIES = ("gpt2", "t5", "mt5", *BERTS, "resnet")


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(1) as pool:
        yield pool


def recipe_of(family: str, cache: str, **sections: Any) -> Recipe:
    if family == "gpt2":
        recipe = small_recipe(model=FEW)
    elif family in ("t5", "mt5"):
        recipe = small_t5(family, model=FEW | {"decoder_layers": 2})
    elif family == "resnet":
        recipe = recipe_from_dict(merge(load_recipe("resnet/18").to_dict(), IMAGES))
    else:
        recipe = small_bert(family, cache, model=FEW)
    return recipe_from_dict(merge(merge(recipe.to_dict(), SECTIONS), sections))


def world_on(name: str) -> World:
    adapter = select(name)
    return World(0, 1, adapter, adapter.activate(0))


def traced(recipe: Recipe, name: str) -> Trace:
    return record_trace(recipe, build_task(recipe), world_on(name))


def trains(rank: int, family: str, cache: str, precision: str, tolerance: float, name: str = NAME) -> None:
    sections: dict[str, Any] = {"precision": {"compute": precision}}
    if precision != "float32":
        sections["parallel"] = {"recompute": "selective"}
    recipe = recipe_of(family, cache, **sections)
    with simulated_device(name):
        here, there = traced(recipe, "cpu"), traced(recipe, name)
    assert there.losses == pytest.approx(here.losses, rel=tolerance)
    assert there.norms == pytest.approx(here.norms, rel=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_as_on_the_host(pool: ProcessPool, family: str, tmp_path: Path) -> None:
    pool.run(trains, family, str(tmp_path), "float32", 1e-5)


def test_another_vendors_device(tmp_path: Path) -> None:
    with ProcessPool(1) as pool:  # a process has one such device for good
        pool.run(trains, "gpt2", str(tmp_path), "float32", 1e-5, "mlu")


@pytest.mark.parametrize(
    ("family", "precision", "tolerance"),
    [("gpt2", "float16", 1e-2), ("t5", "bfloat16", 5e-2), ("question_answering", "bfloat16", 5e-2)],
)
def test_it_trains_in_fewer_bits(
    pool: ProcessPool, family: str, precision: str, tolerance: float, tmp_path: Path
) -> None:
    pool.run(trains, family, str(tmp_path), precision, tolerance)


def reads(rank: int, family: str, folder: str) -> None:
    """What the host reads in every step of a real training loop, and how often it waits."""
    recipe = recipe_of(family, folder)
    if "dropout" in recipe.to_dict()["model"]:
        recipe = recipe_of(family, folder, model={"dropout": 0.1})
    steps: list[int] = []
    launch, complete = TrainingStep.launch, TrainingStep.complete
    with simulated_device(NAME) as device, pytest.MonkeyPatch.context() as patch:

        def watched_launch(step: TrainingStep, *arguments: Any) -> None:
            device.host_reads.clear()
            launch(step, *arguments)
            assert device.host_reads == Counter(), "forward and backward passes read something back"

        def watched_complete(step: TrainingStep, *arguments: Any, **named: Any) -> Any:
            result = complete(step, *arguments, **named)
            steps.append(device.host_reads.total())
            return result

        patch.setattr(TrainingStep, "launch", watched_launch)
        patch.setattr(TrainingStep, "complete", watched_complete)
        world = world_on(NAME)
        run = TrainingRun(recipe, check_recipe(recipe, 1), prepare_data(recipe), Path(folder) / "run", world)
        with run.checkpoints:
            TrainingLoop(run, MetricStream(), ThroughputMeter()).train()
        assert steps == [1] * STEPS
        assert device.waits == 2  # at the logging steps: the first and the last


@pytest.mark.parametrize("family", FAMILIES)
def test_one_read_a_step(pool: ProcessPool, family: str, tmp_path: Path) -> None:
    pool.run(reads, family, str(tmp_path))


TRAIN = ["--batch.micro", "2", "--batch.global", "4", "--train.steps", "4", "--log.every", "1"]
OFTEN = ["--checkpoint.every", "2", "--evaluate.every", "2", "--evaluate.batches", "1"]
SMALL = ["--model.layers", "1", "--model.hidden", "32", "--model.heads", "4"]
COMMANDS: dict[str, list[str]] = {
    "gpt2": ["gpt2/tiny", *SMALL, "--model.vocab", "512", "--model.context", "32", "--data.sequence-length", "32"],
    "t5": ["t5/tiny", *SMALL, "--model.head-size", "8", "--model.feed-forward", "64", "--model.vocab", "512"],
    "bert": ["bert/tiny", *SMALL, "--model.feed-forward", "64"],
    "resnet": ["resnet/tiny-synthetic", "--data.workers", "0"],
}
TEXT = ["--prompt", "The class of a", "--max-new-tokens", "5"]
CONTEXT = ["--context", "The tower was built in Rome.", "--question", "Where was it built?"]
IMAGE = "IMAGE"
"""In place of a picture, which the test makes."""
ASKED: dict[str, list[list[str]]] = {
    "gpt2": [
        ["generate", *TEXT, "--temperature", "0"],
        ["generate", *TEXT, "--temperature", "1", "--top-k", "5", "--num-return-sequences", "2"],
        ["generate", *TEXT, "--num-beams", "2"],
        ["generate", *TEXT, "--temperature", "0", "--format", "bfloat16"],
    ],
    "t5": [["generate", *TEXT], ["generate", *TEXT, "--num-beams", "2"]],
    "bert": [["predict", *CONTEXT]],
    "resnet": [["predict", IMAGE, "--top-k", "3"]],
}


def command(*arguments: object) -> str:
    said, told = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(told):
        code = run([str(argument) for argument in arguments])
    assert code == 0, (arguments, told.getvalue())
    return said.getvalue()


def lives(rank: int, family: str, name: str, folder: str) -> None:
    """A run's whole life on the device, beside the host's."""
    here, there, image = (Path(folder) / part for part in ("here", "there", "picture.jpg"))
    image.write_bytes(encoded(picture(1)))
    with simulated_device(name):
        for device, run_dir in (("cpu", here), (name, there)):
            command("train", *COMMANDS[family], *TRAIN, *OFTEN, "--device", device, "--run-dir", run_dir)
        assert losses(there) == pytest.approx(losses(here), rel=1e-5)
        assert losses(there, "val.loss") == pytest.approx(losses(here, "val.loss"), rel=1e-5)
        command("resume", there, "--train.steps", "6")
        command("resume", here, "--train.steps", "6", "--device", name)  # begun on the host, and gone on with there
        assert losses(there) == pytest.approx(losses(here), rel=1e-5)
        many = ["--batch.micro", "50", "--batch.global", "50", "--json"]
        found, right = (json.loads(command("evaluate", there, *many, "--device", one)) for one in (name, "cpu"))
        assert found["val.loss"] == pytest.approx(right["val.loss"], rel=1e-5)
        for verb, *asked in ASKED[family]:
            asked = [str(image) if word == IMAGE else word for word in asked]
            on_the_host, on_the_device = (command(verb, there, *asked, "--device", one) for one in ("cpu", name))
            assert on_the_device == on_the_host


@pytest.mark.parametrize("family", list(COMMANDS))
def test_a_run_lives_on_it(pool: ProcessPool, family: str, tmp_path: Path) -> None:
    pool.run(lives, family, NAME, str(tmp_path))
    assert torch.accelerator.current_accelerator() is None  # the test's own process has no such device
