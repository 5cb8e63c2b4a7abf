"""A package from outside brings a family, a task, a device and a callback; a recipe names them, and it trains.

The package is a folder on the path with the metadata that pip would leave there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from textwrap import dedent

import pytest

from paddock.testing.commands import paddock
from paddock.testing.tiny import losses

ENTRY_POINTS = """
[paddock.families]
bag_of_words = orchard.family:BagOfWordsFamily
[paddock.tasks]
next_number = orchard.task:ENTRY
[paddock.devices]
abacus = orchard.device:ABACUS
[paddock.callbacks]
diary = orchard.callback:Diary
"""

FAMILY = '''
"""A model that guesses the next number from the mean of those before it."""
from typing import ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional as F

from paddock.models.config import BEGIN, FINISH, ModelConfig, UnitCost
from paddock.models.family import Family
from paddock.models.layers.initialization import Initial
from paddock.models.model import Model


class BagOfWordsConfig(ModelConfig):
    family: Literal["bag_of_words"] = "bag_of_words"
    """The model family."""
    vocab: int = 16
    """Numbers that it knows."""
    width: int = 8
    """Of its vectors."""
    depth: int = 4
    """Layers."""

    def units(self, shape, *, sequence=False, recompute=False):
        size = self.width**2
        layers = [UnitCost(f"layers.{i}", size, 2.0 * size, output=self.width) for i in range(self.depth)]
        embedding = self.vocab * self.width
        return [
            UnitCost(BEGIN, embedding, 0.0, output=self.width),
            *layers,
            UnitCost(FINISH, 0, 2.0 * embedding, shared={"embedding.weight": embedding}),
        ]

    def task(self):
        return "next_number"

    def vocabulary(self):
        return self.vocab


class BagOfWords(Model):
    inputs: ClassVar = ("tokens", "labels")

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        layers = (nn.Linear(config.width, config.width, bias=False) for _ in range(config.depth))
        self.layers = nn.ModuleDict({str(number): layer for number, layer in enumerate(layers)})

    def begin(self, batch, cache=None):
        return {"x": self.embedding(batch["tokens"]).mean(1)}

    def units(self):
        return [f"layers.{name}" for name in self.layers]

    def run(self, unit, carry, batch, cache=None):
        return {"x": carry["x"] + torch.tanh(self.get_submodule(unit)(carry["x"]))}

    def finish(self, carry, batch, cache=None):
        logits = carry["x"] @ self.embedding.weight.T
        labels = batch.get("labels")
        return logits if labels is None else F.cross_entropy(logits, labels, reduction="sum")

    def initial(self, name):
        return Initial(std=0.3)


class BagOfWordsFamily(Family):
    name: ClassVar = "bag_of_words"

    def config_class(self):
        return BagOfWordsConfig

    def build(self, config):
        return BagOfWords(config)

    def example(self, config, samples, shape, generator):
        tokens = torch.randint(config.vocab, (samples, shape.source), generator=generator)
        return {"tokens": tokens, "labels": tokens[:, 0]}
'''

TASK = '''
"""Given some numbers, which are all the same, say that number."""
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from paddock.data.config import DataConfig
from paddock.models.config import SampleShape
from paddock.tasks.registry import TaskEntry
from paddock.tasks.task import Task


class NumbersData(DataConfig):
    source: Literal["numbers"] = "numbers"
    """Where the data comes from."""
    length: int = 4
    """Numbers in a sample."""

    def sample_shape(self):
        return SampleShape(self.length)


@dataclass
class Numbers:
    vocab: int
    length: int
    samples_per_epoch: float = 64.0

    def __len__(self):
        return self.vocab

    def __getitem__(self, index):
        if index >= 10**9:
            raise IndexError(index)
        return {"number": index % self.vocab}


@dataclass
class Ready:
    tokenizer: None = None
    classes: tuple = ()


class NextNumber(Task):
    measures: ClassVar = {"loss": "MINIMIZE"}
    judges_outputs: ClassVar = False
    next_command: ClassVar = "evaluate {run}"

    @classmethod
    def prepare(cls, data, tokenizer, model):
        return Ready()

    @classmethod
    def build(cls, data, prepared, model, seed):
        task = cls()
        task.samples = Numbers(model.vocabulary(), data.length)
        return task

    def training_samples(self):
        return self.samples

    def validation_samples(self):
        return self.samples

    def collate(self, samples):
        numbers = torch.tensor([sample["number"] for sample in samples])
        return {"tokens": numbers[:, None].expand(-1, self.samples.length).contiguous(), "labels": numbers}

    def count(self, batch):
        return len(batch["labels"])

    def metrics(self, judgement):
        return {"loss": judgement.sums["loss"] / max(judgement.sums["count"], 1.0)}


ENTRY = TaskEntry("next_number", task=NextNumber, data=NumbersData)
'''

DEVICE = '''
"""The CPU under another name."""
import dataclasses

from paddock.devices.cpu import CPU

ABACUS = dataclasses.replace(CPU, name="abacus")
'''

CALLBACK = '''
"""Writes down what happens, and adds a metric."""
from paddock.training.callbacks import Callback


class Diary(Callback):
    def note(self, run, text):
        if run.world.is_main:
            with open(run.run_dir / "diary.txt", "a") as stream:
                stream.write(text + "\\n")

    def on_start(self, run):
        self.note(run, f"start on {run.world.adapter.name}")

    def on_step(self, run, metrics):
        if metrics is not None:
            metrics["train.diary"] = float(run.progress.step)

    def on_evaluate(self, run, metrics):
        self.note(run, f"evaluate {sorted(metrics)}")

    def on_save(self, run, checkpoint):
        self.note(run, f"save {checkpoint.name}")

    def on_end(self, run):
        self.note(run, f"end at {run.progress.step}")
'''

RECIPE = """
task: next_number
model: {family: bag_of_words, width: 8}
data: {source: numbers, length: 4}
batch: {micro: 4, global: 16}
optimizer: {lr: 0.05}
schedule: {name: constant}
train: {steps: 30, device: abacus, callbacks: [diary]}
evaluate: {every: 15}
checkpoint: {every: 15}
log: {every: 1}
"""


@pytest.fixture
def orchard(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is installed."""
    package = tmp_path / "site" / "orchard"
    package.mkdir(parents=True)
    files = {"__init__": "", "family": FAMILY, "task": TASK, "device": DEVICE, "callback": CALLBACK}
    for name, text in files.items():
        (package / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    metadata = tmp_path / "site" / "orchard-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    paths = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param([], id="one process"),
        pytest.param(["--nproc-per-node", "2"], id="data 2", marks=pytest.mark.slow),
        pytest.param(["--nproc-per-node", "2", "--parallel.pipeline", "2"], id="pipeline 2"),
    ],
)
def test_all_four_by_name(orchard: dict[str, str], tmp_path: Path, layout: list[str]) -> None:
    run = tmp_path / "run"
    done = paddock("train", str(tmp_path / "recipe.yaml"), "--run-dir", str(run), *layout, **orchard)
    assert done.returncode == 0, done.stderr
    found = losses(run)
    assert len(found) == 30 and found[-1] < 0.5 * found[0]
    assert losses(run, "train.diary") == [float(step) for step in range(1, 31)]
    diary = (run / "diary.txt").read_text(encoding="utf-8").splitlines()
    assert diary[0] == "start on abacus" and diary[-1] == "end at 30"
    assert "evaluate ['loss']" in diary and "save step-00000030" in diary
    evaluated = paddock("evaluate", str(run), "--json", **orchard)
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["val.loss"] == pytest.approx(losses(run, "val.loss")[-1], rel=1e-5)


def test_layouts_agree_and_are_planned(orchard: dict[str, str], tmp_path: Path) -> None:
    recipe = str(tmp_path / "recipe.yaml")
    parity = paddock("check", "parity", recipe, "--layouts", "dp2", "pp2", "--steps", "4", "--json", **orchard)
    assert parity.returncode == 0, parity.stderr
    assert json.loads(parity.stdout)["agrees"]
    plan = paddock("train", recipe, "--dry-run", "--world", "4", "--parallel.pipeline", "2", "--json", **orchard)
    assert plan.returncode == 0, plan.stderr
    assert json.loads(plan.stdout)["parameters"] == 16 * 8 + 4 * 64


def test_help_and_errors_know_them(orchard: dict[str, str], tmp_path: Path) -> None:
    page = paddock("train", str(tmp_path / "recipe.yaml"), "--help", **orchard)
    assert page.returncode == 0 and "--model.width" in page.stdout and "--data.length" in page.stdout, page.stdout
    assert "abacus" in paddock("doctor", **orchard).stdout
    wrong = paddock("train", str(tmp_path / "recipe.yaml"), "--train.callbacks", "dairy", **orchard)
    assert wrong.returncode == 2 and "diary" in wrong.stderr
    (tmp_path / "other.yaml").write_text(RECIPE.replace("bag_of_words", "bag_of_word"), encoding="utf-8")
    wrong = paddock("train", str(tmp_path / "other.yaml"), **orchard)
    assert wrong.returncode == 2 and "bag_of_words" in wrong.stderr
