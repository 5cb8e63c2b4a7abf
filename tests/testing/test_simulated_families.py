"""Every family does on a simulated device what it does on the host: through the adapter and the ways of a vendor's.

Its memory is one that the host cannot look into. What else it is like, its adapter says: one vendor's has float64,
fused optimizers and images in another order, another's has none of them. torch gives no plug-in a name that is its own,
so devices that torch itself brings are played under another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.alignment.trace import Trace, record_trace
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.devices import DeviceAdapter, adapter_named, device_names, register, select
from paddock.devices.cuda import CUDA
from paddock.devices.xpu import XPU
from paddock.parallel.world import World
from paddock.tasks.registry import build_task, prepare_data
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.testing.layouts import small_bert, small_recipe, small_t5
from paddock.testing.pool import ProcessPool
from paddock.testing.samples.images import encoded, picture
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
ALIKE = {"like_cuda": CUDA, "like_xpu": XPU}
VENDORS: dict[str, list[tuple[str, str]]] = {
    "like_cuda": [("gpt2", "float32"), ("resnet", "float32"), ("gpt2", "float16"), ("resnet", "bfloat16")],
    "like_xpu": [("gpt2", "bfloat16"), ("resnet", "float32"), ("resnet", "float16")],
    "mlu": [("gpt2", "float32"), ("resnet", "float32"), ("resnet", "float16")],
    "sdaa": [("gpt2", "float16"), ("resnet", "float32"), ("resnet", "float16")],
}
"""Devices, and what is trained on them."""
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


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


def adapter_played(name: str) -> DeviceAdapter:
    """A vendor's adapter; or one alike, which is registered when it is first asked for."""
    if name in ALIKE and name not in device_names():
        played = {"name": name, "torch_type": name, "package": f"torch_{name}", "backend": f"{name}_collectives"}
        register(replace(ALIKE[name], **played))
    return adapter_named(name)


class Ways(TorchDispatchMode):
    """Notes by which of the ways that an adapter tells of a device something was computed there."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._device_type = device_type
        self.fused = self.double = self.channels_last = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if isinstance(result, Tensor) and result.device.type == self._device_type:
            self.double |= result.dtype == torch.float64
            if name == "convolution" and min(result.shape[1:]) > 1:  # of others, both orders are the same
                self.channels_last |= result.is_contiguous(memory_format=torch.channels_last)
        self.fused |= name.startswith("_fused_") and args[0][0].device.type == self._device_type
        return result


def trains(rank: int, family: str, cache: str, precision: str, name: str = NAME) -> None:
    sections: dict[str, Any] = {"precision": {"compute": precision}}
    if precision != "float32":
        sections["parallel"] = {"recompute": "selective"}
    adapter = adapter_played(name)
    recipe = recipe_of(family, cache, **sections)
    with simulated_device(name):
        here = traced(recipe, "cpu")
        with Ways(adapter.torch_type) as ways:
            there = traced(recipe, name)
    assert there.losses == pytest.approx(here.losses, rel=TOLERANCES[precision])
    assert there.norms == pytest.approx(here.norms, rel=TOLERANCES[precision])
    assert (ways.fused, ways.double) == (adapter.fused_optimizer, adapter.float64)
    assert ways.channels_last == (family == "resnet")  # as its recipe says


@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_as_on_the_host(pool: ProcessPool, family: str, tmp_path: Path) -> None:
    pool.run(trains, family, str(tmp_path), "float32")


@pytest.mark.parametrize("name", list(VENDORS))
def test_other_vendors_devices(name: str, tmp_path: Path) -> None:
    with ProcessPool(1) as pool:  # a process has one such device for good
        for family, precision in VENDORS[name]:
            pool.run(trains, family, str(tmp_path), precision, name)


@pytest.mark.parametrize(
    ("family", "precision"), [("gpt2", "float16"), ("t5", "bfloat16"), ("question_answering", "bfloat16")]
)
def test_it_trains_in_fewer_bits(pool: ProcessPool, family: str, precision: str, tmp_path: Path) -> None:
    pool.run(trains, family, str(tmp_path), precision)


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
    Path(folder).mkdir(exist_ok=True)
    here, there, image = (Path(folder) / part for part in ("here", "there", "picture.jpg"))
    image.write_bytes(encoded(picture(1)))
    adapter_played(name)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VENDORS))
def test_a_run_lives_on_other_vendors_devices(name: str, tmp_path: Path) -> None:
    with ProcessPool(1) as pool:
        for family in COMMANDS:
            pool.run(lives, family, name, str(tmp_path / family))
