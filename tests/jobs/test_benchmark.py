"""`paddock benchmark`: every family, forward and in training, alone and in several processes, without data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.models.config import SampleShape
from paddock.testing.commands import paddock

FEW = ["--benchmark.iterations", "3", "--benchmark.warmup", "1"]
RESNET = "resnet/18 --model.width 8 --model.classes 10 --data.image-size 32 -b 4".split()
GPT2 = "gpt2 --model.layers 2 --model.hidden 32 --model.heads 4 --model.vocab 128 --seq-length 16".split()
BERT = "bert/tiny --model.layers 1 --model.hidden 32 --model.heads 4 --model.vocab 128 --batch.micro 2".split()


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["benchmark", *arguments, *FEW, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("train", [False, True])
def test_images(capsys: pytest.CaptureFixture[str], train: bool) -> None:
    result = measured(capsys, *RESNET, *(["--benchmark.train"] if train else []))
    model = load_recipe("resnet/18").model.model_copy(update={"width": 8, "classes": 10})
    assert result["flops_per_sample"] == model.forward_flops(SampleShape(32)) * (3 if train else 1)
    assert result["mode"] == ("training steps" if train else "forward passes") and result["unit"] == "images"
    assert result["achieved_flops"] == pytest.approx(result["samples_per_second"] * result["flops_per_sample"])
    assert result["utilisation"] == pytest.approx(result["achieved_flops"] / result["peak_flops"])
    latency = result["latency"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"]
    assert result["samples_per_second"] == pytest.approx(4 / latency["mean"])
    assert result["iterations"] == 3 and result["memory"] > 0 and "tokens_per_second" not in result
    assert result["recipe"]["data"]["image_size"] == 32 and result["versions"]["torch"]


@pytest.mark.parametrize("flags", [GPT2, BERT])
@pytest.mark.parametrize("train", [False, True])
def test_languages(capsys: pytest.CaptureFixture[str], flags: list[str], train: bool) -> None:
    result = measured(capsys, *flags, *(["--benchmark.train"] if train else []))
    length = result["recipe"]["data"]["sequence_length"]
    assert result["tokens_per_second"] == pytest.approx(result["samples_per_second"] * length)


def test_the_numbers_come_with_the_whole_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["benchmark", *RESNET, *FEW]) == 0
    shown = capsys.readouterr()
    lines = shown.out.partition("\n\n")[0].splitlines()  # the recipe stands below
    for name in ("throughput", "latency", "achieved", "memory", "device", "versions"):
        assert sum(line.startswith(name) for line in lines) == 1
    assert "model: {family: resnet, arch: resnet18" in shown.out and "images/s" in shown.out


def test_two_processes_share_a_batch() -> None:
    done = paddock("benchmark", *RESNET, *FEW, "--json", "--nproc-per-node", "2", "--benchmark.train")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["processes"] == 2 and result["batch"].startswith("global 4 = micro 2 × data 2")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--benchmark.iterations", "0"], "benchmark.iterations = 0"),
        (["--checkpoint.load", "run"], "checkpoint.load"),
        (["-b", "5", "--nproc-per-node", "2"], "batch.global = 5"),
        (["--parallel.tensor", "2", "--nproc-per-node", "2"], "parallel.tensor"),
    ],
)
def test_what_cannot_be_measured(capsys: pytest.CaptureFixture[str], flags: list[str], says: str) -> None:
    assert run(["benchmark", *RESNET, *flags]) == 2
    assert says in capsys.readouterr().err


def test_the_flag_of_the_imagenet_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from paddock.jobs import benchmark

    seen: list[Any] = []
    monkeypatch.setattr(benchmark, "benchmark", lambda *arguments: seen.append(arguments))
    assert run("train resnet -a resnet34 -b 16 --benchmark".split()) == 0
    recipe, measurement, _ = seen[0]
    assert (recipe.model.arch, recipe.batch.global_) == ("resnet34", 16)
    assert (measurement.train, measurement.warmup, measurement.iterations) == (False, 5, 100)
