"""Layer alignment on the simulated accelerator: nothing found where nothing is wrong, and what is wrong is named."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.alignment.layers import alignment
from paddock.alignment.layers.alignment import align_layers
from paddock.alignment.layers.parts import PartRunner
from paddock.alignment.layers.record import Recorder, compare_records, read_record
from paddock.cli.align import layers_page
from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named
from paddock.errors import ConfigError, DataError
from paddock.models.model import Model
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
    """A process that has the device before anything goes backward: torch takes one that comes later for one without."""
    with ProcessPool(1) as found:
        found.run(bring_device)
        yield found


def bring_device(rank: int) -> None:
    """For a pool."""
    with simulated_device("npu"):
        pass


def recipe_of(name: str, precision: str = "float32", **train: Any) -> Recipe:
    changes = {"precision": {"compute": precision}, "batch": {"micro": 2, "global": 2}, "train": train}
    return recipe_from_dict(merge(load_recipe(name).to_dict(), changes))


def align(
    rank: int,
    jobs: list[tuple[str, Injection | None]],
    folder: str | None = None,
    nondeterministic: float = 0.0,
    precision: str = "float32",
    every_operator: bool = False,
) -> list[dict[str, Any]]:
    """For a pool: what is found of each recipe, with an error or without."""
    found = []
    for name, injection in jobs:
        wrong = [] if injection is None else [injection]
        with simulated_device("npu", injections=wrong, nondeterministic=nondeterministic) as device:
            result = align_layers(
                name,
                recipe_of(name, precision),
                adapter_named("npu"),
                adapter_named("cpu"),
                folder=None if folder is None else Path(folder),
                prepare_model=name_modules,
                every_operator=every_operator,
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


FEW_BITS = ("bfloat16", "float16")
MANY_ROUNDINGS = {"bfloat16": 5e-2, "float16": 8e-3}
"""Of each type: an error of 6.4 or 8 of them."""


@pytest.mark.parametrize("precision", FEW_BITS)
def test_in_few_bits_nothing_is_found_where_nothing_is_wrong(pool: ProcessPool, precision: str) -> None:
    names = ("gpt2/tiny", "bert/tiny", "resnet/tiny-synthetic")
    (found,) = pool.run(align, [(name, None) for name in names], None, 0.0, precision)
    for name, result in zip(names, found, strict=True):
        assert result["aligned"] and not result["operators"], (name, result["failures"][:3])
        assert result["farthest"] > torch.finfo(torch.float16).eps / 8, "it rounds"


@pytest.mark.parametrize("precision", FEW_BITS)
def test_in_few_bits_many_roundings_are_an_error(pool: ProcessPool, precision: str) -> None:
    size, errors = MANY_ROUNDINGS[precision], ERRORS[:2]
    jobs: list[tuple[str, Injection | None]] = [(name, replace(one, size=size)) for name, one in errors]
    (found,) = pool.run(align, jobs, None, 0.0, precision)
    for (name, injection), result in zip(errors, found, strict=True):
        assert not result["aligned"] and result["failures"], name
        first = result["operators"][0]
        assert first["operator"].startswith(f"{injection.operator}."), (name, first)
        assert (first["module"], first["direction"]) == (injection.module, injection.direction)


HIDDEN = Injection("aten.addmm", "layers.1.attention.qkv", 7e-6, "forward")
"""In float32, sixty roundings, of which no more than rounding is left at the end of the layer."""


def test_every_operator_is_compared_where_it_is_asked_for(pool: ProcessPool) -> None:
    """Also in a part that agrees, as a whole."""
    (found,) = pool.run(align, [("gpt2/tiny", HIDDEN)])
    assert found[0]["applied"] and found[0]["aligned"] and not found[0]["operators"]
    ((wrong, right),) = pool.run(align, [("gpt2/tiny", HIDDEN), ("gpt2/tiny", None)], None, 0.0, "float32", True)
    assert right["aligned"] and not right["operators"]
    (operator,) = wrong["operators"]
    assert (operator["operator"], operator["module"]) == ("aten.addmm.default", HIDDEN.module)
    (failure,) = wrong["failures"]
    assert not wrong["aligned"] and wrong["culprit"] == HIDDEN.module
    assert (failure["part"], failure["tensor"]) == ("layers.1", f"aten.addmm.default in {HIDDEN.module}")
    assert "aten.addmm.default in layers.1.attention.qkv: 7.0e-06, allowed " in wrong["page"]


def test_an_error_below_the_tolerance_of_a_part_in_few_bits(pool: ProcessPool) -> None:
    hidden = replace(HIDDEN, size=1.5e-2)
    ((as_usual,),) = pool.run(align, [("gpt2/tiny", hidden)], None, 0.0, "bfloat16")
    assert as_usual["applied"] and as_usual["aligned"]
    ((looked,),) = pool.run(align, [("gpt2/tiny", hidden)], None, 0.0, "bfloat16", True)
    assert {one["module"] for one in looked["operators"]} == {hidden.module} and not looked["aligned"]


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


def passes(rank: int, name: str, recording: bool, nondeterministic: float = 0.0) -> tuple[Counter[str], bool]:
    """For a pool; and whether it is aligned."""
    hear = Recorder().hear if recording else None
    with simulated_device("npu", nondeterministic=nondeterministic), counted_passes() as counted:
        found = align_layers(name, recipe_of(name), adapter_named("npu"), adapter_named("cpu"), on_tensor=hear)
    return counted, found.aligned


@pytest.mark.parametrize("recording", [False, True])
def test_a_part_is_computed_three_times_at_most(pool: ProcessPool, recording: bool) -> None:
    ((found, aligned),) = pool.run(passes, "gpt2/tiny", recording)
    assert aligned and set(found) == {"begin", *(f"layers.{number}" for number in range(4)), "finish"}
    assert max(found.values()) == 3, found


@pytest.mark.parametrize("noise", [1e-6, 1e-5])
def test_a_part_of_a_noisy_device_is_computed_three_times(pool: ProcessPool, noise: float) -> None:
    """By the reference, by the device, and by the device again, which explains what is found."""
    ((found, aligned),) = pool.run(passes, "gpt2/tiny", False, noise)
    assert aligned and set(found.values()) == {3}, found


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


def test_a_record_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    path, recorder, recipe = tmp_path / "cpu.layers", Recorder(), recipe_of("gpt2/tiny")
    cpu = adapter_named("cpu")
    align_layers("gpt2/tiny", recipe, cpu, cpu, on_tensor=recorder.hear)
    whole = recorder.record(recipe.to_dict(), "cpu", "float32")
    part = whole.model_copy(update={"entries": whole.entries[:3]})
    for pair in ((part, whole), (whole, part)):
        lacking = [one for one in compare_records(*pair) if not one.agrees]
        assert len(lacking) == len(whole.entries) - 3
    whole.write(path)
    assert read_record(path).entries == whole.entries
    said = json.loads(path.read_text())
    older = {name: value for name, value in said.items() if name != "checksum"} | {"format": 1}
    path.write_text(json.dumps(older))
    assert read_record(path).entries == whole.entries
    freer = [{**entry, "allowed": 1e9} for entry in said["entries"]]
    for change, word in (({"entries": freer}, "damaged"), ({"format": 99}, "format 99"), ({"entries": []}, "entries")):
        path.write_text(json.dumps(said | change))
        with pytest.raises(DataError, match=word):
            read_record(path)


def no_number(rank: int, value: float, path: str) -> None:
    """For a pool: a record of a device whose second layer computes no numbers."""

    def spoil(model: Model) -> None:
        model.unit_modules()[1].register_forward_hook(lambda module, given, made: made * value)

    cpu, recipe, recorder = adapter_named("cpu"), recipe_of("gpt2/tiny"), Recorder()
    align_layers("gpt2/tiny", recipe, cpu, cpu, on_tensor=recorder.hear, prepare_model=spoil)
    recorder.record(recipe.to_dict(), "cpu", "float32").write(Path(path))


def not_json(word: str) -> None:
    raise AssertionError(f"JSON has no {word}")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_recorded(
    pool: ProcessPool, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = str(tmp_path / "right.layers"), str(tmp_path / "wrong.layers")
    pool.run(record, "gpt2/tiny", None, right)
    pool.run(no_number, value, wrong)
    json.loads(Path(wrong).read_text(), parse_constant=not_json)
    assert run(["align", wrong, right, "--json"]) == 7
    found = json.loads(capsys.readouterr().out, parse_constant=not_json)
    assert found["culprit"] == "layers.1" and {row["part"] for row in found["failures"]} == {"layers.1"}
    assert run(["align", right, wrong]) == 7 and run(["align", wrong, wrong]) == 7
    assert "ot aligned" in capsys.readouterr().err
    old = Path(wrong).read_text().replace('"NaN"', "null").replace('"Infinity"', "null")
    Path(wrong).write_text(json.dumps(json.loads(old) | {"format": 1}))  # as they once were written
    assert run(["align", wrong, right]) == 7


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
    values = json.loads(Path(path).read_text()) | {"format": 1}  # which has no checksum
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


def test_nothing_is_written_where_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither where all agree nor where something is wrong."""
    (tmp_path / "site").mkdir()
    write_package(tmp_path / "site", "npu", injections=[vars(Injection("aten.gelu", None, 0.01))])
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    places = {"PYTHONPATH": path, "TMPDIR": str(tmp_path / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"}
    told = paddock("align", "--model", "gpt2/tiny", *SMALL, "--device", "npu", cwd=tmp_path / "here", **places)
    assert told.returncode == 7 and "to blame:" in told.stdout and "script:" not in told.stdout, told.stderr
    assert not list((tmp_path / "here").rglob("*")) and not list((tmp_path / "temporary").rglob("*"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["here", "site", "temporary"]


def test_compiled_layers_have_no_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align", "--model", "gpt2/tiny", "--compiled", "--every-operator", *SMALL]) == 2
    assert "compiled layers have no operators of their own" in capsys.readouterr().err


def test_a_compiled_layer_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two compiled layers gives other numbers than its eager self."""
    monkeypatch.setenv("CI", "true")
    if find_compiler(adapter_named("cpu")) is None:
        pytest.skip("there is no C++ compiler")
    compile_all = alignment.compile_units

    def compile_one_wrong(units: Sequence[torch.nn.Module], *how: Any) -> None:
        compile_all(units, *how)
        right = units[1].forward
        monkeypatch.setattr(units[1], "forward", lambda *given, **named: right(*given, **named) * 1.001)

    monkeypatch.setattr(alignment, "compile_units", compile_one_wrong)
    two = ["2" if before == "--model.layers" else flag for before, flag in zip(["", *SMALL], SMALL, strict=False)]
    assert run(["align", "--model", "gpt2/tiny", "--compiled", *two, "--json"]) == 7
    seen = capsys.readouterr()
    found = json.loads(seen.out)
    assert found["culprit"] == "layers.1" and not found["operators"] and not found["modules"]
    assert {row["part"] for row in found["failures"]} == {"layers.1"}
    assert "cpu, compiled is not aligned with cpu" in seen.err


def test_layouts_align(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align", "--model", *TINY, "--steps", "2", "--layouts", "tp2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["layout"], row["agrees"]) for row in found["layouts"]] == [("tp2", True)]
    assert run(["align", "--model", *TINY, "--steps", "2", "--layouts", "tp3"]) == 2


slow = pytest.mark.slow
COLLECTIVES = [
    pytest.param("reduce_scatter", "_reduce_scatter_base"),
    pytest.param("all_reduce", "allreduce", marks=slow),
    pytest.param("all_gather", "_allgather_base", marks=slow),
    pytest.param("broadcast", "broadcast", marks=slow),
    pytest.param("send and recv", "recv", marks=slow),
]


@pytest.mark.parametrize(("kind", "broken"), COLLECTIVES)
def test_what_devices_exchange_is_compared(kind: str, broken: str, tmp_path: Path) -> None:
    """One kind of collective is wrong, and only that is named."""
    write_package(tmp_path, "npu", broken_collectives=(broken,))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    small = [*SMALL, "--device", "npu", "--nproc-per-node", "2", "--json"]
    told = paddock("align", "--model", "gpt2/tiny", *small, PYTHONPATH=path)
    assert told.returncode == 7, told.stderr
    found = json.loads(told.stdout)
    assert found["culprit"] == "exchange" and not found["operators"]
    names = [row["tensor"] for row in found["failures"]]
    assert {row["direction"] for row in found["failures"]} == {"collective"}
    assert all(name.startswith(f"{kind} of ") for name in names)
    assert f"{kind} of gradient of layers.0.attention.qkv.weight" in names
    assert len(names) > 5 and len(names) == len(set(names))


def test_processes_of_one_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    several = ["--nnodes", "2", "--master-addr", "127.0.0.1"]
    assert run(["align", "--model", "gpt2/tiny", "--compiled", *several]) == 2
    assert "layers are compared on one machine" in capsys.readouterr().err
    assert run(["align", "record", "gpt2/tiny", "--nproc-per-node", "2"]) == 2
    assert "a record is of what one device computes" in capsys.readouterr().err
