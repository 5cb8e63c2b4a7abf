"""`paddock check device`: a good device passes every check, and what is wrong with another fails in its own row."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paddock.alignment.conformance import runs, suite
from paddock.alignment.conformance.alone import WHOLE_TYPES, checks_alone
from paddock.alignment.conformance.checks import Wrong
from paddock.alignment.conformance.operators import Call, Finding, replay
from paddock.alignment.conformance.report import FOR_ALL_KINDS, Report, Row, Tier, Verdict
from paddock.alignment.conformance.runs import check_following
from paddock.alignment.conformance.small import FAMILIES, host, small_models
from paddock.alignment.conformance.suite import _together
from paddock.alignment.conformance.together import CHECKS, CHECKS_OF_ALL_KINDS, PROCESSES
from paddock.checkpoint.tensors import tensors_of
from paddock.cli.main import run
from paddock.devices import adapter_named, select
from paddock.errors import CheckFailed
from paddock.parallel.world import World
from paddock.testing.commands import paddock
from paddock.testing.pool import ProcessPool
from paddock.testing.simulated import Injection, SimulatedDevice, kernels, simulated_device, write_package
from paddock.testing.simulated.kernels import Kernels
from paddock.testing.simulated.memory import on_host
from paddock.testing.simulated.module import DeviceModule
from paddock.training.compilation import find_compiler

NAME = "npu"


def report(*verdicts: tuple[Tier | None, Verdict], claims: Tier = "full 3D") -> Report:
    rows = [Row(f"check {number}", tier, verdict) for number, (tier, verdict) in enumerate(verdicts)]
    return Report("abacus", "wooden", {"torch": "2.13"}, claims, rows, {})


INFERENCE, DATA, FULL = (
    ("inference", "pass"),
    ("data parallel", "pass"),
    ("full 3D", "pass"),
)


@pytest.mark.parametrize(
    ("verdicts", "claims", "earned", "failed"),
    [
        ((INFERENCE, DATA, FULL), "full 3D", "full 3D", 0),
        ((INFERENCE, DATA, FULL), "data parallel", "full 3D", 0),
        ((INFERENCE, DATA, ("full 3D", "fail")), "full 3D", "data parallel", 1),
        ((INFERENCE, DATA, ("full 3D", "fail")), "data parallel", "data parallel", 0),
        ((INFERENCE, ("data parallel", "skipped"), FULL), "full 3D", "inference", 0),
        ((("inference", "fail"), DATA, FULL), "data parallel", None, 1),
        ((INFERENCE, DATA, FULL, (None, "fail")), "full 3D", "full 3D", 0),
    ],
)
def test_tiers(verdicts: Any, claims: Tier, earned: Tier | None, failed: int) -> None:
    found = report(*verdicts, claims=claims)
    assert (found.earned, len(found.failed)) == (earned, failed)
    assert found.to_dict()["passes"] == (failed == 0)
    assert found.markdown().count("\n| check ") == len(verdicts) + 1
    if failed:
        with pytest.raises(CheckFailed) as error:
            found.raise_if_failed()
        assert error.value.exit_code == 7
    else:
        found.raise_if_failed()


def test_replays_allow_for_rounding_alone() -> None:
    """The host's own error, or what rounded inputs make of the result, and nothing beyond."""
    here = torch.device("cpu")
    x = torch.rand(16, 16)
    assert replay(Call(torch.ops.aten.mm.default, (x, x), {}, "forward"), here).holds
    near = torch.rand(4000) - 0.5
    cancels = Call(torch.ops.aten.sum.default, (torch.cat([near, -near]),), {}, "backward")
    assert replay(cancels, here).holds
    writes = Call(torch.ops.aten.add_.Tensor, (x.clone(), x), {}, "update")
    assert replay(writes, here).holds and replay(writes, here).holds  # what it was given stays as it is
    assert replay(Call(torch.ops.aten.bernoulli.default, (x,), {}, "forward"), here).holds
    assert not Finding("aten.mm", error=1e-3, allowed=1e-5).holds
    assert not Finding("aten.mm", error=float("nan"), allowed=1e-5).holds
    assert not Finding("aten.mm", missing=True).holds


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(1) as pool:
        yield pool


def rows_of(
    rank: int,
    folder: str,
    families: Sequence[str],
    wanted: Sequence[str],
    fallback: Any = "error",
    claims: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, tuple[str, str]]:
    """Verdict and detail of the checks whose names begin so; `claims` is what the adapter says besides."""
    with simulated_device(NAME, **settings) as device:
        adapter = replace(select(NAME), **claims or {})
        world = World(0, 1, adapter, adapter.activate(0))
        found = {}
        with adapter.falling_back(fallback) as ledger:
            for check in checks_alone(world, small_models(families), Path(folder), compiles=True):
                if check.name.startswith(tuple(wanted)):
                    row = check.row()
                    found[row.name] = (str(row.verdict), row.detail)
        found["computed by the host"] = ("", " ".join(ledger.entries))
        applied = 0 if device.injections is None else device.injections.applied
        return found | {"applied": ("", str(applied))}


def all_rows(rank: int, folder: str, families: Sequence[str], *rest: Any) -> dict[str, tuple[str, str]]:
    return rows_of(rank, folder, families, *rest)


@pytest.mark.parametrize("families", [("gpt2",), pytest.param(FAMILIES, marks=pytest.mark.slow)])
def test_every_check_passes_on_a_good_device(pool: ProcessPool, families: Sequence[str], tmp_path: Path) -> None:
    [found] = pool.run(all_rows, str(tmp_path), families, [""])
    verdicts = {name: verdict for name, (verdict, _) in found.items() if verdict}
    assert verdicts.pop("eager and compiled") == "skipped" and "no code for npu" in found["eager and compiled"][1]
    assert set(verdicts.values()) == {"pass"}, {name: row for name, row in found.items() if row[0] == "fail"}
    for small in small_models(families):
        assert int(found[f"operators of {small.name}, backward"][1].split()[0]) > 10
    assert {"host reads", "checkpoint", "writing of gpt2", "loss scaling", "type bool"} <= set(verdicts)


GELU = ("aten.gelu", "aten.gelu_backward")
OPERATORS = ("operators of gpt2", "training of gpt2", "memory")


def lacking(rank: int, folder: str, fallback: str) -> dict[str, tuple[str, str]]:
    return rows_of(rank, folder, ["gpt2"], OPERATORS, fallback, lacks=GELU)


def test_a_missing_operator_fails_in_its_row(pool: ProcessPool, tmp_path: Path) -> None:
    [found] = pool.run(lacking, str(tmp_path), "error")
    assert found["operators of gpt2, forward"] == ("fail", "1 of 47: aten.gelu: no kernel")
    assert found["operators of gpt2, backward"][1].endswith(": aten.gelu_backward: no kernel")
    assert found["training of gpt2"] == ("fail", "no kernel for aten::gelu.out")
    assert found["operators of gpt2, update"][0] == found["memory accounting"][0] == "pass"
    [found] = pool.run(lacking, str(tmp_path), "cpu")
    assert {verdict for verdict, _ in found.values() if verdict} == {"pass"}
    assert sorted(found["computed by the host"][1].split()) == sorted(GELU)


def wrong(rank: int, folder: str, injection: Injection, wanted: Sequence[str]) -> dict[str, tuple[str, str]]:
    return rows_of(rank, folder, ["gpt2"], wanted, injections=[injection])


@pytest.mark.parametrize("size", [1e-4, 5e-2])
@pytest.mark.parametrize(("direction", "operator"), [("forward", "aten.addmm"), ("backward", "aten.mm")])
def test_a_wrong_operator_fails_in_its_row(
    pool: ProcessPool, direction: Any, operator: str, size: float, tmp_path: Path
) -> None:
    injection = Injection(operator, None, size, direction)
    [found] = pool.run(wrong, str(tmp_path), injection, ["operators of gpt2", "gradients of gpt2"])
    failed = {name: detail for name, (verdict, detail) in found.items() if verdict == "fail"}
    assert f"{operator}: off by {size:.1e}" in failed[f"operators of gpt2, {direction}"]
    assert "gradients of gpt2" in failed
    other = "backward" if direction == "forward" else "forward"
    assert f"operators of gpt2, {other}" not in failed


def test_a_layer_that_is_wrong_shows_in_gradients(pool: ProcessPool, tmp_path: Path) -> None:
    """No operator is wrong by itself: the error is in one module's backward pass."""
    injection = Injection("aten.mm", "layers.1.feed_forward", 1e-3, "backward")
    [found] = pool.run(wrong, str(tmp_path), injection, ["operators of gpt2", "gradients of gpt2"])
    failed = {name: detail for name, (verdict, detail) in found.items() if verdict == "fail"}
    assert set(failed) == {"gradients of gpt2"}
    assert "layers.1.feed_forward.output.weight" in failed["gradients of gpt2"].split(";")[0]


def in_any_order(rank: int, folder: str, size: float) -> dict[str, tuple[str, str]]:
    rest = ["type", "gradients", "training", "checkpoint", "determinism"]
    return rows_of(rank, folder, ["gpt2"], rest, nondeterministic=size)


@pytest.mark.parametrize("size", [1e-6, pytest.param(1e-7, marks=pytest.mark.slow)])
def test_sums_that_are_not_bit_stable_cost_no_tier(pool: ProcessPool, size: float, tmp_path: Path) -> None:
    """Atomic additions come in any order: only the row that asks for the same bits says so."""
    [found] = pool.run(in_any_order, str(tmp_path), size)
    assert {name for name, (verdict, _) in found.items() if verdict == "fail"} == {"determinism"}
    assert found["determinism"][1].startswith("two runs alike differ")
    assert found["checkpoint"] == ("pass", "112 tensors, bit for bit")


def test_what_follows_a_checkpoint() -> None:
    check_following([6.0, 5.0], [6.0 + 1e-5, 5.0])
    for found in ([6.0, 5.001], [5.999, 5.0], [math.nan, 5.0]):
        with pytest.raises(Wrong, match="loss"):
            check_following(found, [6.0, 5.0])


Defect = Callable[[pytest.MonkeyPatch], None]


def damages(dtype: str) -> Defect:
    """Copies to the device of numbers of a type lose one."""

    def damage(patch: pytest.MonkeyPatch) -> None:
        copy = Kernels._copy_from

        def copying(own: Kernels, source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
            done = copy(own, source, destination, non_blocking)
            if destination.device.type == NAME and destination.dtype == getattr(torch, dtype) and destination.numel():
                first = on_host(destination).view(-1)[:1]
                first.copy_(~first if dtype == "bool" else first + 1)
            return done

        patch.setattr(Kernels, "_copy_from", copying)

    return damage


def copies_late(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a copy: what is there is what the copy before it brought."""
    copy, before = Kernels._copy_from, dict[Any, Tensor]()

    def copying(own: Kernels, source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
        if non_blocking and source.is_cpu:
            kind = (source.shape, source.dtype)
            source, before[kind] = before.get(kind, source), source.clone()
        return copy(own, source, destination, non_blocking)

    patch.setattr(Kernels, "_copy_from", copying)


def rounds_what_is_saved(patch: pytest.MonkeyPatch) -> None:
    """Copies to the host, and they alone, have fewer bits, always the same."""
    copy = Kernels._copy_from

    def copying(own: Kernels, source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
        done = copy(own, source, destination, non_blocking)
        if destination.is_cpu and destination.dtype == torch.float32:
            destination.copy_(destination.bfloat16())
        return done

    patch.setattr(Kernels, "_copy_from", copying)


def forgets(kind: str) -> Defect:
    """A part of what was saved is not read again."""

    def forget(patch: pytest.MonkeyPatch) -> None:
        load = runs.load_models

        def loading(path: Path, models: Any, optimizer: Any) -> bool:
            done = load(path, models, optimizer)
            for name, tensor in tensors_of(models, optimizer).items():
                if name.startswith(kind):
                    tensor.detach().zero_()
            return done

        patch.setattr(runs, "load_models", loading)

    return forget


def ignores_seeds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeviceModule, "manual_seed_all", lambda module, seed: None)


def draws_the_same(patch: pytest.MonkeyPatch) -> None:
    generator_for = SimulatedDevice.generator_for
    patch.setattr(SimulatedDevice, "generator_for", lambda device, given: generator_for(device, given).manual_seed(1))


def counts_no_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeviceModule, "max_memory_allocated", lambda module, device=None: 2**20)


def counts_memory_twice(patch: pytest.MonkeyPatch) -> None:
    peak = DeviceModule.max_memory_allocated
    patch.setattr(DeviceModule, "max_memory_allocated", lambda module, device=None: 2**25 + 3 * peak(module, device))


def knows_no_infinity(patch: pytest.MonkeyPatch) -> None:
    """Numbers that float16 cannot hold become the largest that it can."""
    place, settled, copy = SimulatedDevice.place, kernels._settled, Kernels._copy_from

    def held(result: Any) -> Any:
        return result.nan_to_num_() if getattr(result, "dtype", None) == torch.float16 else result

    def copying(own: Kernels, source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
        done = copy(own, source, destination, non_blocking)
        if destination.device.type == NAME:
            held(on_host(destination))
        return done

    patch.setattr(SimulatedDevice, "place", lambda device, result: place(device, held(result)))
    patch.setattr(kernels, "_settled", lambda tensor, result: settled(tensor, held(result)))
    patch.setattr(Kernels, "_copy_from", copying)


DEFECTS: dict[str, tuple[str, Defect | Injection, str]] = {
    "a copy comes late": ("copies from the host", copies_late, "numbers change on the way"),
    "seeds do nothing": ("random numbers", ignores_seeds, "the same seed draws other masks"),
    "numbers are always the same": ("random numbers", draws_the_same, "another seed draws the same masks"),
    "dropout scales": ("random numbers", Injection("aten.native_dropout", size=1e-2), "by another factor than 4/3"),
    "writing": ("writing of gpt2", Injection("aten.mm", size=1e-2), "logits of pass 1 of 6 are off by 1.0e-02"),
    "products of few bits": ("autocast to bfloat16", Injection("aten.mm", size=1e-2), "a product is off by"),
    "gradients of few bits": (
        "autocast to float16",
        Injection("aten.mm", "layers.1.feed_forward", 5e-2, "backward"),
        "gradients are off by",
    ),
    "no infinity": ("loss scaling", knows_no_infinity, "are said to be finite in float16"),
    "norms": ("loss scaling", Injection("aten.linalg_vector_norm", size=1e-2), "off by 1.0e-02, 3.9e-03 allowed"),
    "no memory": ("memory accounting", counts_no_memory, "it says 1,048,576"),
    "twice the memory": ("memory accounting", counts_memory_twice, "bytes were used at most, then"),
    "weights are lost": ("checkpoint", forgets("model.embedding"), "is another, read on npu"),
    "momentum is lost": ("checkpoint", forgets("optimizer.exp_avg."), "is another, read on npu"),
    "bits are lost": ("checkpoint", rounds_what_is_saved, "is another, read on npu"),
}


def with_defects(rank: int, folder: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The row in which each defect is to show."""
    found = {}
    for name in names:
        row, defect, _ = DEFECTS[name]
        with pytest.MonkeyPatch.context() as patch:
            if not isinstance(defect, Injection):
                defect(patch)
            settings = {"injections": [defect]} if isinstance(defect, Injection) else {}
            found[name] = rows_of(rank, folder, ["gpt2"], [row], **settings)[row]
    return found


def test_a_defect_fails_in_its_row(pool: ProcessPool, tmp_path: Path) -> None:
    [found] = pool.run(with_defects, str(tmp_path), list(DEFECTS))
    for name, (_, _, words) in DEFECTS.items():
        verdict, detail = found[name]
        assert verdict == "fail" and words in detail, (name, verdict, detail)


TYPES = ("float32", "bfloat16", "float16", "float64", *WHOLE_TYPES)


def with_wrong_types(rank: int, folder: str) -> dict[str, dict[str, tuple[str, str]]]:
    def rows(defect: Defect | None = None, **settings: Any) -> dict[str, tuple[str, str]]:
        with pytest.MonkeyPatch.context() as patch:
            if defect is not None:
                defect(patch)
            found = rows_of(rank, folder, ["gpt2"], ["type "], claims={"float64": True}, **settings)
        return {name: row for name, row in found.items() if row[0] == "fail"}

    inexact = [Injection("aten.mm", size=1e-9)]  # nothing that float32 would notice
    return {
        "none": rows(float64=True),
        "claimed": rows(float64=False),
        "inexact": rows(float64=True, injections=inexact),
        **{dtype: rows(damages(dtype), float64=True) for dtype in TYPES},
    }


def test_a_wrong_type_fails_in_its_row(pool: ProcessPool, tmp_path: Path) -> None:
    [found] = pool.run(with_wrong_types, str(tmp_path))
    assert found["none"] == {}
    assert found["claimed"] == {"type float64": ("fail", "RuntimeError: a npu has no torch.float64")}
    assert list(found["inexact"]) == ["type float64"] and "off by 1.0e-09" in found["inexact"]["type float64"][1]
    for dtype in TYPES:
        assert list(found[dtype]) == [f"type {dtype}"]
        assert found[dtype][f"type {dtype}"][1] == "what comes back from the device is not what went there"


def compiled(rank: int, folder: str, defect: float) -> tuple[str, str]:
    """Of the host's row."""
    with pytest.MonkeyPatch.context() as patch:
        if defect:

            def wrongly(units: Sequence[nn.Module], world: World) -> None:
                for unit in units:
                    unit.register_forward_hook(lambda unit, inputs, output: output * (1 + defect))

            patch.setattr(runs, "_compile", wrongly)
        checks = checks_alone(host(), small_models(["gpt2"]), Path(folder), compiles=True)
        [row] = [check.row() for check in checks if check.name == "eager and compiled"]
    if not defect:
        assert import_module("torch._dynamo.utils").counters["stats"]["unique_graphs"] > 0
    return str(row.verdict), row.detail


def test_eager_against_compiled(pool: ProcessPool, tmp_path: Path) -> None:
    if find_compiler(adapter_named("cpu")) is None:
        pytest.skip("no compiler is installed")
    [(verdict, detail)] = pool.run(compiled, str(tmp_path), 0.0)
    assert verdict == "pass" and detail.startswith("losses off by"), detail
    [(verdict, detail)] = pool.run(compiled, str(tmp_path), 1e-2)
    assert verdict == "fail" and detail.startswith("compiled losses are off by"), detail


def reads_too_often(rank: int, folder: str) -> dict[str, tuple[str, str]]:
    from paddock.parallel.engine import Engine

    forward_backward = Engine.forward_backward

    def reading(engine: Engine, *arguments: Any) -> torch.Tensor:
        total = forward_backward(engine, *arguments)
        total.item()
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "forward_backward", reading)
        return rows_of(rank, folder, ["gpt2"], ["host reads"])


def test_reads_are_counted(pool: ProcessPool, tmp_path: Path) -> None:
    [found] = pool.run(reads_too_often, str(tmp_path))
    verdict, detail = found["host reads"]
    assert verdict == "fail" and detail.startswith("1 reads in the passes and 1 in the update, not 0 and 1")


def checked(*flags: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    done = paddock("check", "device", *flags, "--no-compile", "--json", **environment)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_the_command_says_what_was_left_out(tmp_path: Path) -> None:
    table = tmp_path / "cpu.md"
    code, found, said = checked("cpu", "--families", "gpt2", "--no-two", "--markdown", str(table))
    assert code == 0 and found["passes"] and (found["earned"], found["claims"]) == ("inference", "full 3D"), said
    left_out = {row["name"] for row in found["checks"] if row["verdict"] == "skipped"}
    assert left_out == {"eager and compiled", *(check.name for check in (*CHECKS, *CHECKS_OF_ALL_KINDS))}
    assert not any(row["verdict"] == "fail" for row in found["checks"])
    text = table.read_text(encoding="utf-8")
    assert "for which it lacks: collective all_reduce (skipped)" in text
    assert all(f"| {row['name']} |" in text for row in found["checks"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu", NAME])
def test_a_good_device_earns_what_it_claims(name: str, tmp_path: Path) -> None:
    write_package(tmp_path, NAME)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    code, found, said = checked(name, PYTHONPATH=path)
    assert code == 0 and found["passes"] and found["earned"] == found["claims"] == "full 3D", said
    all_kinds = {check.name for check in CHECKS_OF_ALL_KINDS}
    short = "each kind of parallelism by itself, over 2 processes"
    whole = "data × tensor × pipeline parallelism at once, over 8 processes"
    assert found["stands_on"] == (short if name == "cpu" else whole)
    left_out = {row["name"] for row in found["checks"] if row["verdict"] != "pass"}
    assert left_out == {"eager and compiled", *(all_kinds if name == "cpu" else ())}


@pytest.mark.slow
def test_a_broken_collective_ends_the_command_with_7(tmp_path: Path) -> None:
    write_package(tmp_path, NAME, broken_collectives=("allreduce",))
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    code, found, said = checked(NAME, "--families", "gpt2", PYTHONPATH=path)
    failed = {row["name"]: row["detail"] for row in found["checks"] if row["verdict"] == "fail"}
    assert code == 7 and found["earned"] == "inference", said
    assert failed["collective all_reduce"] == "1 of 1000 numbers are wrong" and f"{NAME}: {len(failed)} of" in said


def test_a_check_that_never_ends_is_ended(tmp_path: Path) -> None:
    payload = {"device": "cpu", "family": "gpt2", "fallback": "error", "patience": 0.001}
    rows = _together(select("cpu"), payload, tmp_path, two=True)
    assert [row.name for row in rows] == [check.name for check in (*CHECKS, *CHECKS_OF_ALL_KINDS)]
    assert [row.verdict for row in rows] == ["fail", *["skipped"] * (len(rows) - 1)]
    assert rows[0].detail and rows[1].detail == "not reached"


@pytest.mark.parametrize("count", [1, 2, 7, 8, 16])
def test_all_kinds_of_parallelism_are_asked_for_where_there_are_devices(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With eight devices a layout of all kinds must pass; with fewer, the report says what the tier stands on."""
    passes = lambda plans, *_: [Row(plan.name, plan.tier, "pass") for plan in plans]  # noqa: E731
    monkeypatch.setattr(type(select("cpu")), "count", lambda adapter: count)
    monkeypatch.setattr(suite, "_launched", passes)
    adapter = replace(select("cpu"), computes_on_host=False)
    rows = _together(adapter, {}, tmp_path, two=True)
    sizes = {row.name: row.devices for row in rows if row.verdict == "pass"}
    wanted = {PROCESSES: CHECKS if count >= PROCESSES else (), FOR_ALL_KINDS: CHECKS_OF_ALL_KINDS if count >= 8 else ()}
    assert sizes == {check.name: size for size, checks in wanted.items() for check in checks}
    found = Report("abacus", "wooden", {}, "full 3D", [Row("alone", "inference", "pass"), *rows], {})
    if count < 2:
        assert (found.earned, found.stands_on) == ("inference", "")
        assert {row.detail for row in rows} == {f"it takes {size} devices, and 1 is here" for size in (2, 8)}
    elif count < 8:
        assert (found.earned, found.stands_on) == ("full 3D", "each kind of parallelism by itself, over 2 processes")
        left_out = {(row.tier, row.detail) for row in rows if row.verdict == "skipped"}
        assert left_out == {(None, f"it takes 8 devices, and {count} are here")}
    else:
        assert found.stands_on == "data × tensor × pipeline parallelism at once, over 8 processes"
        failing = [replace(row, verdict="fail") if row.devices == 8 else row for row in found.rows]
        assert replace(found, rows=failing).earned == "data parallel"
    for text in (found.table(), found.markdown(), json.dumps(found.to_dict(), ensure_ascii=False)):
        assert found.stands_on in text


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["abacus"], "there is no such device"), (["cpu", "--families", "gpt3"], "gpt2")],
)
def test_bad_flags(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "device", *flags]) == 2
    assert words in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--help"]) == 0
    assert "paddock check device NAME" in capsys.readouterr().out
