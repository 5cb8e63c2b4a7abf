"""Layer alignment on the simulated accelerator: nothing found where nothing is wrong, and what is wrong is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.alignment.layers.alignment import align_layers
from paddock.alignment.layers.parts import PartRunner
from paddock.alignment.layers.record import Recorder, compare_records, read_record
from paddock.cli.align import layers_page
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named
from paddock.errors import ConfigError
from paddock.testing.commands import paddock
from paddock.testing.pool import ProcessPool
from paddock.testing.simulated import Injection, name_modules, simulated_device, write_package
from paddock.testing.simulated.census import operators_of
from paddock.testing.tiny import TINY
from paddock.training.compilation import find_compiler

RECIPES = ("gpt2/tiny", "bert/tiny", "t5/tiny", "mt5/tiny", "resnet/tiny-synthetic")
ERRORS = [
    ("gpt2/tiny", Injection("aten.addmm", "layers.1.attention.qkv", 1e-4, "forward")),
    ("gpt2/tiny", Injection("aten.gelu_backward", "layers.2.feed_forward", 1e-3, "backward")),
    ("bert/tiny", Injection("aten.mm", "layers.0.feed_forward.input", 1e-3, "backward")),
    ("t5/tiny", Injection("aten.mm", "decoder.1.cross_attention.key_value", 1e-3, "forward")),
    ("mt5/tiny", Injection("aten.mm", "encoder.0.attention.qkv", 1e-3, "backward")),
    ("resnet/tiny-synthetic", Injection("aten.convolution_backward", "layer3.0.conv2", 1e-3, "backward")),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    """A process in which nothing has gone backward yet: torch takes a device that comes later for one without."""
    with ProcessPool(1) as found:
        yield found


def recipe_of(name: str, **train: Any) -> Recipe:
    changes = {"precision": {"compute": "float32"}, "batch": {"micro": 2, "global": 2}, "train": train}
    return recipe_from_dict(merge(load_recipe(name).to_dict(), changes))


def align(
    rank: int, jobs: list[tuple[str, Injection | None]], folder: str | None = None, nondeterministic: float = 0.0
) -> list[dict[str, Any]]:
    """For a pool: what is found of each recipe, with an error or without."""
    found = []
    for name, injection in jobs:
        wrong = [] if injection is None else [injection]
        with simulated_device("npu", injections=wrong, nondeterministic=nondeterministic) as device:
            result = align_layers(
                name,
                recipe_of(name),
                adapter_named("npu"),
                adapter_named("cpu"),
                folder=None if folder is None else Path(folder),
                prepare_model=name_modules,
            )
            applied = device.injections.applied if device.injections is not None else 0
            found.append(result.to_dict() | {"applied": applied, "page": layers_page(result)})
    return found


def test_nothing_is_found_where_nothing_is_wrong(pool: ProcessPool) -> None:
    (found,) = pool.run(align, [(name, None) for name in RECIPES])
    for name, result in zip(RECIPES, found, strict=True):
        assert result["aligned"] and result["culprit"] is None, (name, result["failures"][:3])
        assert result["compared"] > 30


def test_what_is_wrong_is_named(pool: ProcessPool) -> None:
    (found,) = pool.run(align, ERRORS)
    for (name, injection), result in zip(ERRORS, found, strict=True):
        assert result["applied"] and not result["aligned"], name
        first = result["operators"][0]
        assert first["operator"].startswith(f"{injection.operator}."), (name, first)
        assert (first["module"], first["direction"]) == (injection.module, injection.direction)
        assert first["distance"]["whole"] == pytest.approx(injection.size, rel=0.05)
        parts = {one["part"] for one in result["failures"]}
        assert len(parts) == 1, f"no error reaches another part: {parts}"
        inside = result["modules"][parts.pop()]
        outputs = [row for row in inside if row["direction"] == "forward" and not row["agrees"]]
        assert [row["part"] for row in outputs[:1]] == [injection.module] * (injection.direction == "forward"), name
        assert f"  {injection.module} " in result["page"]


def test_rounding_is_no_error(pool: ProcessPool) -> None:
    """A device whose products differ in their last digits, everywhere."""
    eps = torch.finfo(torch.float32).eps
    jobs: list[tuple[str, Injection | None]] = [
        ("gpt2/tiny", Injection("aten.mm", None, 2 * eps, "backward")),
        ("t5/tiny", Injection("aten.mm", None, 2 * eps, "forward")),
    ]
    (found,) = pool.run(align, jobs)
    for job, result in zip(jobs, found, strict=True):
        assert result["aligned"], (job, result["failures"][:3])
    assert any(result["applied"] for result in found)


def test_a_wrong_update_is_named(pool: ProcessPool) -> None:
    """The optimizer's own operators: those of the new weights, and of what it keeps."""
    errors = {"aten.addcdiv": set(), "aten.lerp": {"exp_avg"}, "aten.addcmul": {"exp_avg_sq"}}
    jobs: list[tuple[str, Injection | None]] = [("gpt2/tiny", Injection(operator)) for operator in errors]
    (found,) = pool.run(align, jobs)
    for (operator, kept), result in zip(errors.items(), found, strict=True):
        assert result["applied"] and result["culprit"] == "optimizer", operator
        assert {(row["part"], row["direction"]) for row in result["failures"]} == {("optimizer", "update")}
        assert {row["tensor"].split()[0] for row in result["failures"]} == {"new"} | kept, operator
        assert max(row["distance"]["whole"] for row in result["failures"]) == pytest.approx(1e-3, rel=0.05)
        assert all(row["noise"] == {"whole": 0.0, "worst": 0.0} for row in result["failures"])


JITTER = 1e-5


def test_a_device_that_differs_from_itself_aligns(pool: ProcessPool) -> None:
    """Its sums come in any order; that is far more than rounding, and not an error."""
    names = ("gpt2/tiny", "bert/tiny", "resnet/tiny-synthetic")
    (found,) = pool.run(align, [(name, None) for name in names], None, JITTER)
    for name, result in zip(names, found, strict=True):
        assert result["aligned"], (name, result["failures"][:3])
        assert result["deterministic"] is False and result["noise"]["whole"] > JITTER / 10, name
        assert "npu is not deterministic: what it computes twice differs by up to" in result["page"]
    ((steady,),) = pool.run(align, [("gpt2/tiny", None)])
    assert steady["deterministic"] is True and "deterministic" not in steady["page"]
    assert [line.split()[:4] for line in steady["page"].splitlines()[2:4]] == [
        ["part", "forward", "backward", "noise"],
        ["begin", "0.0e+00", "0.0e+00", "0.0e+00"],
    ]


def test_an_error_above_the_noise_is_named(pool: ProcessPool) -> None:
    errors = [(name, replace(injection, size=100 * JITTER)) for name, injection in ERRORS[1:3]]
    (found,) = pool.run(align, errors, None, JITTER)
    for (name, injection), result in zip(errors, found, strict=True):
        assert not result["aligned"] and result["deterministic"] is False, name
        first = result["operators"][0]
        assert first["operator"].startswith(f"{injection.operator}."), (name, first)
        assert (first["module"], first["direction"]) == (injection.module, injection.direction)
        assert len({one["part"] for one in result["failures"]}) == 1, (name, result["failures"])


def test_a_script_shows_the_error_by_itself(pool: ProcessPool, tmp_path: Path) -> None:
    error = Injection("aten.addmm", None, 0.01)
    ((result,),) = pool.run(align, [("gpt2/tiny", error)], str(tmp_path / "scripts"))
    (script,) = result["scripts"]
    write_package(tmp_path / "package", "npu", injections=[vars(error)])
    environment = {"PYTHONPATH": f"{tmp_path / 'package'}:{Path(__file__).parents[3]}", "PATH": "/usr/bin:/bin"}
    told = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True).stdout
    assert told.startswith("aten.addmm.default: relative error 0.01")


def record(rank: int, name: str, injection: Injection | None, path: str, **train: Any) -> None:
    """For a pool: a record of the simulated device."""
    recorder, recipe = Recorder(), recipe_of(name, **train)
    with simulated_device("npu", injections=[] if injection is None else [injection]):
        adapters = (adapter_named("npu"), adapter_named("cpu"))
        align_layers(name, recipe, *adapters, on_tensor=recorder.hear, prepare_model=name_modules)
    recorder.record(recipe.to_dict(), "npu", "float32").write(Path(path))


@contextmanager
def counted_passes() -> Iterator[Counter[str]]:
    """How often each part of a model is computed, on whichever device."""
    counted: Counter[str] = Counter()
    forward = PartRunner.forward

    def counting(runner: PartRunner, part: str, inputs: Any) -> Any:
        counted[part] += 1
        return forward(runner, part, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartRunner, "forward", counting)
        yield counted


def passes(rank: int, name: str, recording: bool) -> Counter[str]:
    """For a pool."""
    hear = Recorder().hear if recording else None
    with simulated_device("npu"), counted_passes() as counted:
        align_layers(name, recipe_of(name), adapter_named("npu"), adapter_named("cpu"), on_tensor=hear)
    return counted


@pytest.mark.parametrize("recording", [False, True])
def test_a_part_is_computed_three_times_at_most(pool: ProcessPool, recording: bool) -> None:
    (found,) = pool.run(passes, "gpt2/tiny", recording)
    assert set(found) == {"begin", *(f"layers.{number}" for number in range(4)), "finish"}
    assert max(found.values()) == 3, found


def passes_of_itself(rank: int, name: str) -> tuple[Counter[str], bool]:
    """For a pool: the passes where the CPU is recorded, which is the reference; and whether the record is that of a CPU
    that is taken for another device."""
    cpu, recipe, itself, other = adapter_named("cpu"), recipe_of(name), Recorder(), Recorder()
    with counted_passes() as counted:
        found = align_layers(name, recipe, cpu, cpu, on_tensor=itself.hear)
    assert found.deterministic is None
    align_layers(name, recipe, cpu, cpu, on_tensor=other.hear, prepare_model=lambda model: None)
    records = [one.record(recipe.to_dict(), "cpu", "float32") for one in (itself, other)]
    return counted, records[0] == records[1]


def test_the_reference_records_what_it_has_computed(pool: ProcessPool) -> None:
    ((counted, same),) = pool.run(passes_of_itself, "gpt2/tiny")
    assert set(counted.values()) == {2} and same  # itself, and moved by a rounding


def test_records_are_compared_elsewhere(pool: ProcessPool, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.layers" for name in ("right", "again", "wrong")}
    error = Injection("aten.gelu", "layers.1.feed_forward", 1e-3)
    for name, injection in (("right", None), ("again", None), ("wrong", error)):
        pool.run(record, "gpt2/tiny", injection, str(paths[name]))
    right, again, wrong = (read_record(paths[name]) for name in ("right", "again", "wrong"))
    assert all(one.agrees for one in compare_records(again, right))
    bad = [one for one in compare_records(wrong, right) if not one.agrees]
    assert bad and {one.part for one in bad} == {"layers.1"} and bad[0].tensor == "output x"
    assert paths["right"].stat().st_size < 1_000_000
    other = right.model_copy(update={"recipe": {**right.recipe, "model": {**right.recipe["model"], "layers": 3}}})
    with pytest.raises(ConfigError, match=r"different recipes: model\.layers"):
        compare_records(right, other)


def count(rank: int) -> list[tuple[str, str, str]]:
    """For a pool: the operators of a training step."""
    with simulated_device("npu"):
        return operators_of(recipe_of("gpt2/tiny"), adapter_named("npu"))


def test_operators_of_a_step(pool: ProcessPool) -> None:
    (found,) = pool.run(count)
    assert ("aten.addmm", "layers.1.attention.qkv", "forward") in found
    assert ("aten.gelu_backward", "layers.3.feed_forward", "backward") in found
    assert not any("empty" in operator or operator == "view" for operator, _, _ in found)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model.layers", "1", "--model.hidden", "16", "--model.heads", "2", "--batch.micro", "1"]
    assert run(["align", "--model", "gpt2/tiny", "--layers", *small]) == 2
    assert "it is the device itself" in capsys.readouterr().err
    assert run(["align", "record", "gpt2/tiny", *small, "--output", str(tmp_path / "cpu.json")]) == 2
    assert "end it in .layers" in capsys.readouterr().err
    path = str(tmp_path / "cpu.layers")
    assert run(["align", "record", "gpt2/tiny", *small, "--output", path]) == 0
    assert run(["align", path, path, "--json"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{path}: ") and json.loads(told[1])["aligned"] is True
    values = json.loads(Path(path).read_text())
    values["entries"][3]["sketch"][0] += values["entries"][3]["norm"]
    Path(tmp_path / "other.layers").write_text(json.dumps(values))
    assert run(["align", str(tmp_path / "other.layers"), path]) == 7
    seen = capsys.readouterr()
    assert seen.out.startswith("NOT ALIGNED") and "is not aligned with cpu" in seen.err
    Path(tmp_path / "cut.layers").write_text(json.dumps(values)[:500])
    assert run(["align", str(tmp_path / "cut.layers"), path]) == 4


SMALL = [
    "--model.layers",
    "1",
    "--model.hidden",
    "16",
    "--model.heads",
    "2",
    "--model.vocab",
    "64",
    "--batch.micro",
    "1",
]


def test_compiled_layers_align(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CI", "true")  # where torch's compiler refuses what it elsewhere makes of itself
    if find_compiler(adapter_named("cpu")) is None:
        pytest.skip("there is no C++ compiler")
    assert run(["align", "--model", "gpt2/tiny", "--compiled", *SMALL]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "aligned: gpt2/tiny on cpu, compiled beside cpu, float32, no dropout"
    rows = [line.split() for line in told[3:7]]
    assert [(row[0], row[-1]) for row in rows] == [
        (name, "agrees") for name in ("begin", "layers.0", "finish", "optimizer")
    ]


def test_layouts_align(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align", "--model", *TINY, "--steps", "2", "--layouts", "tp2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["layout"], row["agrees"]) for row in found["layouts"]] == [("tp2", True)]
    assert run(["align", "--model", *TINY, "--steps", "2", "--layouts", "tp3"]) == 2


def test_what_devices_exchange_is_compared(tmp_path: Path) -> None:
    """One kind of collective is wrong, and only that is named."""
    write_package(tmp_path, "npu", broken_collectives=("_reduce_scatter_base",))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    small = [*SMALL, "--device", "npu", "--nproc-per-node", "2", "--json"]
    told = paddock("align", "--model", "gpt2/tiny", *small, PYTHONPATH=path)
    assert told.returncode == 7, told.stderr
    found = json.loads(told.stdout)
    assert found["culprit"] == "exchange" and not found["operators"]
    names = [row["tensor"] for row in found["failures"]]
    assert {row["direction"] for row in found["failures"]} == {"collective"}
    assert all(name.startswith("reduce_scatter of ") for name in names)
    assert "reduce_scatter of gradient of layers.0.attention.qkv.weight" in names
    assert len(names) > 5 and len(names) == len(set(names))


def test_processes_of_one_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    several = ["--nnodes", "2", "--master-addr", "127.0.0.1"]
    assert run(["align", "--model", "gpt2/tiny", "--compiled", *several]) == 2
    assert "layers are compared on one machine" in capsys.readouterr().err
    assert run(["align", "record", "gpt2/tiny", "--nproc-per-node", "2"]) == 2
    assert "a record is of what one device computes" in capsys.readouterr().err
