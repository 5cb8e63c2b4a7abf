"""What is told before hours are wasted: one sentence for each thing, and none where nothing is wrong."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.checkpoint.config import FOLDER
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named
from paddock.devices.cpu import CPU
from paddock.errors import MachineError
from paddock.planning import concerns
from paddock.planning.concerns import Plan, checkpoint_bytes
from paddock.telemetry import format as show
from paddock.testing.tiny import TINY

Usage = namedtuple("Usage", "total used free")


def plan(tmp_path: Path, total_steps: int = 100, **sections: dict[str, Any]) -> Plan:
    recipe = recipe_from_dict(merge(load_recipe("gpt2/tiny").to_dict(), sections))
    return Plan(recipe, tmp_path / "run", 0, total_steps, 50.0, 20)


def told(one: Plan) -> list[str]:
    return list(one.concerns(adapter_named("cpu")))


def with_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(concerns.shutil, "disk_usage", lambda path: Usage(10**15, 0, free))


def test_nothing_is_told_of_a_usual_run(tmp_path: Path) -> None:
    assert told(plan(tmp_path)) == []


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        ({"warmup": 200}, 200),
        ({"warmup": 0.5, "decay_steps": 1000}, 500),
        ({"warmup": 3, "unit": "epochs"}, 150),
    ],
)
def test_a_warm_up_longer_than_the_run(tmp_path: Path, schedule: dict[str, Any], steps: int) -> None:
    (one,) = told(plan(tmp_path, schedule=schedule))
    assert f"warms up for {steps} steps" in one and "ends at step 100" in one and "--schedule.warmup" in one
    assert told(plan(tmp_path, total_steps=steps, schedule=schedule)) == []


def test_numbers_that_the_processor_has_no_instructions_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = plan(tmp_path, precision={"compute": "float16"})
    monkeypatch.setattr("paddock.devices.cpu.cpu_flags", lambda: {"avx2"})
    (one,) = told(half)
    assert "float16" in one and "twenty times slower than float32" in one and "--precision.compute float32" in one
    monkeypatch.setattr("paddock.devices.cpu.cpu_flags", lambda: {"avx512_fp16", "avx512_bf16"})
    assert told(half) == []
    assert list(half.concerns(replace(CPU, slow_types={}))) == []


def test_a_validation_part_of_one_sample(tmp_path: Path) -> None:
    (one,) = told(replace(plan(tmp_path), held_out=1))
    assert "one sample" in one
    assert told(replace(plan(tmp_path), held_out=2)) == told(replace(plan(tmp_path), held_out=None)) == []


def test_a_disk_that_will_not_hold_the_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = plan(tmp_path, checkpoint={"every": 10, "keep": 3}, evaluate={"every": None})
    size = checkpoint_bytes(often.recipe)
    with_room(monkeypatch, 5 * size)  # three, the best, and one that is being written
    assert told(often) == []
    with_room(monkeypatch, 5 * size - 1)
    (one,) = told(often)
    assert "up to 5 of" in one and "--checkpoint.keep" in one and str(often.run_dir) in one
    (often.run_dir / FOLDER / "step-00000010").mkdir(parents=True)
    assert told(often) == [], "one of them is there already"
    everything = plan(tmp_path / "other", checkpoint={"every": 10, "keep": None}, evaluate={"every": None})
    assert "up to 10 of" in told(everything)[0] and "all are kept" in told(everything)[0]
    with_room(monkeypatch, size - 1)
    with pytest.raises(MachineError, match="no room for a checkpoint"):
        told(everything)


@pytest.mark.parametrize("flags", [[], ["--optimizer.name", "sgd"], ["--train.ema", "0.9"]])
def test_a_checkpoint_is_as_large_as_was_said(tmp_path: Path, flags: list[str]) -> None:
    # Wide enough that names, headers and sums of the small files do not count.
    wide = ["--model.hidden", "256", "--steps", "1", "--evaluate.every", "None"]
    assert run(["train", *TINY, *wide, *flags, "--run-dir", str(tmp_path / "run")]) == 0
    written = checkpoint_size(tmp_path / "run" / FOLDER / "step-00000001")
    recipe: Recipe = load_recipe(tmp_path / "run" / "config.yaml")
    assert checkpoint_bytes(recipe) == pytest.approx(written, rel=0.03)
    shutil.rmtree(tmp_path / "run")


def test_training_tells_them_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *TINY, "--schedule.warmup", "100", "--run-dir", str(tmp_path / "run")]) == 0
    error = capsys.readouterr().err
    assert "warning: the learning rate warms up for 100 steps, and the run ends at step 6" in error
    assert error.index("warning:") < error.index("parameters")


def test_the_card_says_what_the_disk_will_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = ["--model.hidden", "256", "--evaluate.every", "2", "--run-dir", str(tmp_path / "run")]
    assert run(["train", *TINY, *wide]) == 0
    (row,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("disk: ")]
    each, many = row.removeprefix("disk: ").split("; ")[0].split(" a checkpoint, at most 4 at once: ")
    sizes = [checkpoint_size(path) for path in (tmp_path / "run" / FOLDER).glob("step-*")]
    assert "GB free" in row or "TB free" in row
    assert 2 <= len(sizes) <= 4  # of steps 2, 3, 4 and 6: those of evaluations, if they were the best
    assert all(in_bytes(each) == pytest.approx(size, rel=0.03) for size in sizes)
    assert in_bytes(many) == pytest.approx(4 * sizes[0], rel=0.03)


def in_bytes(words: str) -> float:
    number, unit = words.split()
    return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def checkpoint_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*"))


@pytest.mark.parametrize(
    ("begun", "total", "every", "evaluates", "keep", "most"),
    [
        (0, 100, 10, None, None, 10),  # the last step is one of them
        (0, 101, 10, None, None, 11),
        (0, 100, None, None, None, 1),
        (0, 100, 10, 10, None, 10),  # evaluated when it is saved anyway
        (0, 100, 10, 15, None, 13),  # and at 15, 45 and 75
        (50, 100, 10, None, None, 5),
        (0, 100, 10, 10, 3, 5),
    ],
)
def test_how_many_checkpoints_there_may_be(
    tmp_path: Path, begun: int, total: int, every: int | None, evaluates: int | None, keep: int | None, most: int
) -> None:
    sections = {"checkpoint": {"every": every, "keep": keep}, "evaluate": {"every": evaluates}}
    one = replace(plan(tmp_path, total_steps=total, **sections), begun_step=begun)
    size = checkpoint_bytes(one.recipe)
    saved = {step for step in range(begun + 1, total + 1) if step % (every or total) == 0 or step == total}
    saved |= {step for step in range(begun + 1, total + 1) if evaluates and step % evaluates == 0}
    assert most == (len(saved) if keep is None else min(len(saved), keep + 2))
    assert one.disk().startswith(f"{show.bytes_(size)} a checkpoint")
    assert (f"at most {most} at once: {show.bytes_(most * size)}" in one.disk()) == (most > 1)
