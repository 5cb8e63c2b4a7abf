"""`paddock check device`: a good device passes every check, and what is wrong with another fails in its own row."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.alignment.conformance.alone import checks_alone
from paddock.alignment.conformance.operators import Call, Finding, replay
from paddock.alignment.conformance.report import Report, Row, Tier, Verdict
from paddock.alignment.conformance.small import FAMILIES, small_models
from paddock.alignment.conformance.suite import _together
from paddock.alignment.conformance.together import CHECKS
from paddock.cli.main import run
from paddock.devices import select
from paddock.errors import CheckFailed
from paddock.parallel.world import World
from paddock.testing.commands import paddock
from paddock.testing.pool import ProcessPool
from paddock.testing.simulated import Injection, simulated_device, write_package

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
    **settings: Any,
) -> dict[str, tuple[str, str]]:
    """Verdict and detail of the checks whose names begin so."""
    with simulated_device(NAME, **settings) as device:
        adapter = select(NAME)
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
    assert left_out == {"eager and compiled", *(check.name for check in CHECKS)}
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
    assert {row["name"] for row in found["checks"] if row["verdict"] != "pass"} == {"eager and compiled"}


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
    assert [row.name for row in rows] == [check.name for check in CHECKS]
    assert [row.verdict for row in rows] == ["fail", *["skipped"] * (len(rows) - 1)]
    assert rows[0].detail and rows[1].detail == "not reached"


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
