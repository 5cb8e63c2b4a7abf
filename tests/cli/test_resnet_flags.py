"""The commands of PyTorch's ImageNet example, as its users type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.arguments import RecipeCommand, alias_page, parse_recipe_command
from paddock.cli.main import run
from paddock.cli.train import TrainOptions
from paddock.config.flags.tables import IMAGENET
from paddock.errors import ConfigError
from paddock.models.resnet.config import ARCHITECTURES


def parse(*arguments: str) -> RecipeCommand[TrainOptions]:
    return parse_recipe_command(TrainOptions, "train", list(arguments))


def test_the_command_of_the_example() -> None:
    recipe = parse("resnet", *"-a resnet18 --dummy -b 64 -p 10 --lr 0.1 -j 3 --momentum 0.8 --wd 1e-3".split()).recipe
    assert (recipe.model.arch, recipe.data.source, recipe.data.workers) == ("resnet18", "synthetic", 3)
    assert (recipe.batch.global_, recipe.batch.micro, recipe.log.every) == (64, None, 10)
    assert (recipe.optimizer.lr, recipe.optimizer.momentum, recipe.optimizer.weight_decay) == (0.1, 0.8, 1e-3)


@pytest.mark.parametrize(
    "words",
    [
        "images -a resnet50 -b 32",
        "-a resnet50 images -b 32",
        "-a resnet50 --channels-last images -b 32",
        "-a resnet50 -b 32 images",
    ],
)
def test_the_data_folder_stands_anywhere_between_the_flags(words: str) -> None:
    recipe = parse("resnet", *words.split()).recipe
    assert (recipe.data.source, recipe.data.path, recipe.batch.global_) == ("folder", "images", 32)


def test_a_value_is_not_taken_for_the_folder() -> None:
    assert parse("resnet", "--data.source", "shapes", "--model.classes", "8").recipe.data.path is None


def test_training_settings_of_the_example() -> None:
    base = parse("resnet").recipe
    assert (base.train.epochs, base.schedule.name, base.schedule.unit) == (90, "step", "epochs")
    assert (base.schedule.step_size, base.schedule.factor, base.batch.global_) == (30, 0.1, 256)
    changed = parse("resnet", *"--epochs 5 --seed 3 --logfile out.txt --on-error skip".split()).recipe
    assert (changed.train.epochs, changed.train.seed, changed.log.file) == (5, 3, "out.txt")
    assert changed.data.on_error == "skip"


def test_weights_to_go_on_from_and_to_begin_with() -> None:
    resumed = parse("resnet", "--resume", "runs/a").recipe.checkpoint
    begun = parse("resnet", "--pretrained", "w.pth").recipe.checkpoint
    assert (resumed.load, resumed.weights_only, resumed.resume) == ("runs/a", False, True)
    assert (begun.load, begun.weights_only, begun.resume) == ("w.pth", True, False)


def test_several_machines() -> None:
    words = "--dist-url tcp://10.0.0.7:23456 --dist-backend nccl --multiprocessing-distributed --world-size 2 --rank 1"
    launch = parse("resnet", *words.split(), "--nproc-per-node", "4").launch
    assert (launch.nnodes, launch.node_rank, launch.nproc_per_node) == (2, 1, 4)
    assert (launch.master_addr, launch.master_port) == ("10.0.0.7", 23456)


def test_one_machine_needs_no_meeting_place(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--dist-url tcp://127.0.0.1:23456 --multiprocessing-distributed --world-size 1 --rank 0 --start-epoch 2"
    command = parse("resnet", *words.split())
    assert (command.launch.nnodes, command.launch.master_addr) == (1, None)
    notes = capsys.readouterr().err
    assert "--nproc-per-node says how many" in notes and "knows its epoch" in notes


def test_rank_stays_our_own_without_a_world_size() -> None:
    options = parse("resnet", "--dry-run", "--world", "4", "--rank", "3").options
    assert (options.world, options.rank) == (4, 3)


def test_an_unreadable_meeting_place() -> None:
    with pytest.raises(ConfigError, match="dist-url"):
        parse("resnet", "--world-size", "2", "--dist-url", "env://")


def test_an_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("resnet", "-a", "resnet19")
    assert all(name in caught.value.why for name in ARCHITECTURES)
    assert caught.value.fix == 'did you mean "resnet18" or "resnet152" or "resnet101"?'


def test_flags_of_the_example_are_for_resnet_only() -> None:
    with pytest.raises(ConfigError, match="there is no flag --dummy"):
        parse("gpt2/tiny", "--dummy")
    assert all(flag in alias_page() for alias in IMAGENET for flag in alias.flags)


def test_a_batch_that_does_not_divide(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train resnet --dummy -b 65 --nproc-per-node 2 --steps 1".split()) == 2
    assert "batch.global = 65" in capsys.readouterr().err


def test_random_weights_are_not_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train resnet --dummy -b 8 -e".split()) == 2
    assert "no weights to evaluate" in capsys.readouterr().err


def test_a_parity_check_says_what_batch_norm_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check parity resnet/tiny-synthetic --layouts dp2".split()) == 2
    assert "--model.norm synchronised or group" in capsys.readouterr().err


def test_evaluate_and_train_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "resnet", "--dummy", "-e", "--run-dir", str(tmp_path / "run")]) == 2
    assert run(["train", "resnet", "--dummy", "-e", "--benchmark"]) == 2
    assert not (tmp_path / "run").exists()


def test_the_example_from_training_to_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "resnet -a resnet18 --dummy -b 4 --model.width 8 --data.image-size 32 -j 0 --model.classes 10"
    data = ["--data.training-images", "8", "--data.validation-images", "6"]
    run_dir = tmp_path / "run"
    flags = ["--epochs", "2", "-p", "1", "--logfile", str(tmp_path / "copy.txt"), "--run-dir", str(run_dir)]
    assert run(["train", *small.split(), *data, *flags]) == 0
    assert "step     4/4" in (tmp_path / "copy.txt").read_text()
    assert {path.name for path in (run_dir / "checkpoints").glob("step-*")} == {"step-00000002", "step-00000004"}
    capsys.readouterr()
    assert run(["train", *small.split(), *data, "-e", "--resume", str(run_dir), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["val.samples"] == 6 and 0 <= found["val.top1"] <= found["val.top5"] <= 100
    file = tmp_path / "resnet18.safetensors"
    assert run(["convert", str(run_dir), str(file)]) == 0
    capsys.readouterr()
    assert run(["train", *small.split(), *data, "-e", "--resume", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["val.loss"] == pytest.approx(
        found["val.loss"], rel=1e-5
    )
    other = [*small.replace("classes 10", "classes 3").split(), *data, "--epochs", "1"]
    for number, source in enumerate((str(run_dir), str(file))):
        command = ["train", *other, "--pretrained", source, "--steps", "1", "--run-dir"]
        assert run([*command, str(tmp_path / f"refused{number}")]) == 4
        assert run([*command, str(tmp_path / f"begun{number}"), "--model.reset-head"]) == 0
