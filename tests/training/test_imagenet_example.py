"""Runs of PyTorch's ImageNet example go on: a loop like the example's, with torch's own SGD, is the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint
from paddock.cli.arguments import parse_recipe_command
from paddock.cli.main import run
from paddock.cli.train import TrainOptions
from paddock.config.recipe import Recipe
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.tasks.registry import build_task
from paddock.testing.commands import paddock
from paddock.testing.tiny import losses
from paddock.trainer import Trainer

FLAGS = [
    *"resnet -a resnet18 --dummy -b 4 -j 0 -p 1 --lr 0.05 --wd 0 --epochs 3 --model.width 8 --model.classes 4".split(),
    *"--data.image-size 32 --data.training-images 8 --data.validation-images 6 --schedule.step-size 2".split(),
]
STEPS_PER_EPOCH, EPOCHS, BATCH = 2, 3, 4


def recipe_of(*flags: str) -> Recipe:
    return parse_recipe_command(TrainOptions, "train", [*FLAGS, *flags]).recipe


class Example:
    """Trains epoch by epoch, as the example does, and saves what it saves."""

    def __init__(self, *flags: str) -> None:
        recipe = recipe_of(*flags)
        self.model = build_model(recipe.model).train()
        initialize(self.model, recipe.train.seed)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.1)
        self.losses: list[float] = []
        self.epoch = 0
        self._task = build_task(recipe)

    def train_epoch(self) -> None:
        samples = self._task.training_samples()
        for number in range(self.epoch * STEPS_PER_EPOCH, (self.epoch + 1) * STEPS_PER_EPOCH):
            numbers = range(number * BATCH, (number + 1) * BATCH)
            batch = self._task.transform_on_device(self._task.collate([samples[index] for index in numbers]))
            loss = torch.nn.functional.cross_entropy(self.model(batch["images"]), batch["labels"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        self.scheduler.step()
        self.epoch += 1

    def save(self, path: Path, **changes: Any) -> Path:
        weights = {f"module.{name}": tensor for name, tensor in self.model.state_dict().items()}
        counters = {name.replace("running_mean", "num_batches_tracked") for name in weights if "running_mean" in name}
        content = {
            "epoch": self.epoch,
            "arch": "resnet18",
            "state_dict": weights | {name: torch.tensor(2) for name in counters},
            "best_acc1": torch.tensor(99.5),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }
        torch.save({key: value for key, value in (content | changes).items() if value is not None}, path)
        return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Example]:
    """What was saved after two epochs of three, and the whole run."""
    example = Example()
    path = tmp_path_factory.mktemp("example") / "checkpoint.pth.tar"
    for _ in range(EPOCHS):
        if example.epoch == 2:
            example.save(path)
        example.train_epoch()
    return path, example


def test_a_run_goes_on_as_if_nothing_had_happened(saved: tuple[Path, Example], tmp_path: Path) -> None:
    path, whole = saved
    assert run(["train", *FLAGS, "--resume", str(path), "--run-dir", str(tmp_path / "run")]) == 0
    assert losses(tmp_path / "run") == pytest.approx(whole.losses[4:], rel=1e-5)
    assert losses(tmp_path / "run", "train.lr") == pytest.approx([0.005, 0.005]), "a third epoch's rate"
    checkpoint = find_checkpoint(tmp_path / "run")
    stored = StoredTensors(checkpoint, "model.")
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(stored[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    description = describe_checkpoint(checkpoint)
    assert (description.step, description.samples) == (6, 24)
    assert description.best == {"top1": 99.5}, "six images were not all right, so the old best stays"
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()


def test_a_trainer_goes_on_too(saved: tuple[Path, Example], tmp_path: Path) -> None:
    path, whole = saved
    trainer = Trainer(args=recipe_of().to_dict(), run_dir=tmp_path / "run")
    assert trainer.train(resume_or_finetune_from_checkpoint=path)["step"] == 6
    assert losses(tmp_path / "run") == pytest.approx(whole.losses[4:], rel=1e-5)


def test_momentum_matters(saved: tuple[Path, Example], tmp_path: Path) -> None:
    """The weights alone begin at the first step, and from the same place they go another way."""
    path, whole = saved
    flags = ["--checkpoint.load", str(path), "--run-dir", str(tmp_path / "run")]
    assert run(["train", *FLAGS, *flags, "--steps", "2", "--lr", "0.005"]) == 0
    assert len(losses(tmp_path / "run")) == 2
    assert losses(tmp_path / "run")[1] != pytest.approx(whole.losses[5], rel=1e-3)


def test_two_processes_go_on_with_their_parts(tmp_path: Path) -> None:
    example = Example("--model.norm", "group")
    example.train_epoch()
    path = example.save(tmp_path / "checkpoint.pth.tar")
    example.train_epoch()
    layout = ["--model.norm", "group", "--nproc-per-node", "2", "--parallel.shard", "optimizer", "--epochs", "2"]
    done = paddock("train", *FLAGS, *layout, "--resume", str(path), "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "run") == pytest.approx(example.losses[2:], rel=1e-5)


def test_other_settings_are_told(
    saved: tuple[Path, Example], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--resume", str(saved[0]), "--run-dir", str(tmp_path / "run"), "--steps", "5"]
    assert run(["train", *FLAGS, *flags, "--lr", "0.1", "--momentum", "0.8"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "epoch 2, step 4; lr 0.01, where it had 0.005; momentum 0.8, where it had 0.9" in told


def two_groups(example: Example) -> dict[str, Any]:
    matrices, vectors = ([p for p in example.model.parameters() if (p.dim() > 1) == is_matrix] for is_matrix in (1, 0))
    return torch.optim.SGD([{"params": matrices}, {"params": vectors}], 0.1).state_dict()


def without_one(example: Example) -> dict[str, Any]:
    state = example.optimizer.state_dict()
    return {**state, "state": {number: entry for number, entry in state["state"].items() if number != 3}}


def misshapen(example: Example) -> dict[str, Any]:
    state = example.optimizer.state_dict()
    return {**state, "state": {number: {"momentum_buffer": torch.zeros(7)} for number in state["state"]}}


@pytest.mark.parametrize(
    ("optimizer", "says"),
    [
        (two_groups, "not one SGD over all parameters"),
        (without_one, "62 parameters, 61 with momentum"),
        (misshapen, "momentum of conv1.weight has the shape [7]"),
        (lambda example: None, "it has no optimizer;"),
        (lambda example: {"state": 3}, "not one SGD"),
    ],
)
def test_files_that_cannot_go_on(tmp_path: Path, optimizer: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = Example()
    example.train_epoch()
    path = example.save(tmp_path / "checkpoint.pth.tar", optimizer=optimizer(example))
    assert run(["train", *FLAGS, "--resume", str(path), "--run-dir", str(tmp_path / "run")]) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert says in told and "--pretrained" in told
    assert not (tmp_path / "run").exists()


def test_commands_that_cannot_go_on(
    saved: tuple[Path, Example], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, whole = saved
    torch.save(whole.model.state_dict(), tmp_path / "weights.pth")
    for number, (flags, code, says) in enumerate(
        [
            (["--resume", str(tmp_path / "weights.pth")], 4, "it has no epoch, state_dict, best_acc1, optimizer"),
            (["--resume", str(path), "--epochs", "2"], 2, "has trained 2 epochs already"),
            (["--resume", str(path), "--optimizer.name", "adamw"], 2, "optimizer.name = adamw"),
            (["--resume", str(path), "-a", "resnet34"], 4, "do not fit the model"),
            (["--resume", str(path), "--checkpoint.weights-only"], 2, "checkpoint.resume"),
            (["--checkpoint.resume"], 2, "checkpoint.resume"),
        ]
    ):
        assert run(["train", *FLAGS, *flags, "--run-dir", str(tmp_path / f"run{number}")]) == code, flags
        assert says in " ".join(capsys.readouterr().err.split())


def test_an_evaluation_takes_the_weights(saved: tuple[Path, Example], capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["train", *FLAGS, "-e", "--resume"], ["evaluate", *FLAGS, "--checkpoint.load"]):
        assert run([*flags, str(saved[0]), "--json"]) == 0
        assert '"val.samples": 6' in capsys.readouterr().out
