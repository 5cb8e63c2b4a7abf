"""Machines that are compared before a job, with launchers as threads: one word everywhere about who does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.config.load import load_recipe
from paddock.errors import MachineError
from paddock.jobs import evaluate, generate
from paddock.launch import preflight
from paddock.launch.facts import Facts, own_facts
from paddock.launch.options import LaunchOptions
from paddock.launch.preflight import Meeting, check_same_data, check_writable, compared, inspection
from paddock.launch.rendezvous.nodes import agreed
from paddock.testing.hosts import hosts
from paddock.testing.processes import reserved_port

Made = Callable[[Facts], Facts]


def meet(recipes: list[Mapping[str, Any]], patience: float = 60, nnodes: int = 0) -> list[Meeting | Exception]:
    """What machines with these recipes make of each other, or what each of them raises."""

    def machine(rank: int, port: int) -> Meeting | Exception:
        count = nnodes or len(recipes)
        options = LaunchOptions(nnodes=count, node_rank=rank, master_addr="127.0.0.1", master_port=port)
        try:
            # One that only begins to listen is not given up meanwhile: machine 0's patience is what is looked at.
            found = inspection(options, "cpu", recipes[rank], 60 if rank else patience)
            assert found is not None
            with agreed(options, lambda: "", lambda _: None, found):
                return found.meeting
        except Exception as error:
            return error

    with reserved_port() as port, ThreadPoolExecutor(len(recipes)) as machines:
        return list(machines.map(lambda rank: machine(rank, port), range(len(recipes))))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Made], None]:
    """Changes what machines say of themselves."""

    def change(make: Made) -> None:
        monkeypatch.setattr(preflight, "own_facts", lambda *known: make(own_facts(*known)))

    return change


def test_machines_that_fit_together_meet() -> None:
    first, *others = meet([{"model": {"layers": 2}}] * 3)
    assert isinstance(first, Meeting), first
    assert [one.machine for one in first.machines] == [0, 1, 2]
    assert first.findings == [] and set(first.clocks) == {1, 2}
    assert all(abs(ahead) < preflight.SECONDS_APART for ahead in first.clocks.values())
    assert others == [Meeting(), Meeting()]


def test_another_recipe_stops_all_with_the_same_words() -> None:
    errors = meet([{"model": {"layers": 2}}, {"model": {"layers": 2}}, {"model": {"layers": 3}}])
    assert {type(error) for error in errors} == {MachineError}
    assert len({str(error) for error in errors}) == 1
    assert "machine 2: model.layers = 3, and 2 elsewhere" in str(errors[0])


def test_another_version_stops_all(made_up: Callable[[Made], None]) -> None:
    made_up(lambda one: replace(one, versions={**one.versions, "torch": f"2.{max(one.machine, 1)}"}))
    errors = meet([{}] * 3)
    assert len({str(error) for error in errors}) == 1
    assert "machine 2: install torch 2.1 there, as elsewhere" in str(errors[0])


def test_a_device_that_is_missing_stops_all(made_up: Callable[[Made], None]) -> None:
    made_up(lambda one: own_facts(1, 1, "sdaa", {}) if one.machine == 1 else one)
    errors = meet([{}] * 2)
    assert len({str(error) for error in errors}) == 1
    assert 'machine 1: device "sdaa" cannot be used on this machine' in str(errors[0])


def test_whoever_does_not_come_is_named() -> None:
    errors = meet([{}] * 2, patience=0.5, nnodes=4)
    assert len({str(error) for error in errors}) == 1
    assert str(errors[0]).startswith("machine 2 and machine 3 are not ready")
    assert "machine 3: start the same command there, with --node-rank 3" in str(errors[0])


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1", "nothing listens at that port"), ("no-such-machine.invalid", "the name cannot be resolved")],
)
def test_a_wrong_address_of_machine_0_is_told_from_others(address: str, why: str) -> None:
    with reserved_port() as port:
        options = LaunchOptions(nnodes=2, node_rank=1, master_addr=address, master_port=port)
        with pytest.raises(MachineError, match="machine 0 cannot be reached") as caught:
            inspection(options, "cpu", {}, patience=0)
    assert why in caught.value.why and "--node-rank 0" in caught.value.fix


def test_a_clock_that_is_wrong_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    skewed = """
import sys, time
now = time.time
time.time = lambda: now() - 3600
from paddock.launch.rendezvous.nodes import agreed
from paddock.launch.options import LaunchOptions
from paddock.launch.preflight import compared
with compared(LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=int(sys.argv[1])), "cpu", {}):
    pass
"""
    with reserved_port() as port:
        other = subprocess.Popen([sys.executable, "-c", skewed, str(port)])
        try:
            options = LaunchOptions(nnodes=2, master_addr="127.0.0.1", master_port=port)
            found = inspection(options, "cpu", {})
            assert found is not None
            with agreed(options, str, lambda _: None, found):
                assert found.meeting.clocks[1] == pytest.approx(-3600, abs=preflight.SECONDS_APART)
        finally:
            assert other.wait() == 0
    assert "its clock is 3600." in (said := capfd.readouterr().err) and "s behind machine 0's" in said


def test_it_can_be_left_out() -> None:
    options = LaunchOptions(nnodes=2, node_rank=1, master_addr="192.0.2.1", preflight="off")
    assert inspection(options, "cpu", {}) is None
    with compared(options, "cpu", {}):
        pass


def test_other_data_is_described() -> None:
    check_same_data({"training data": "812 samples"}, {"training data": "812 samples"})
    with pytest.raises(MachineError, match="other data than machine 0") as caught:
        check_same_data({"training data": "812 samples"}, {"training data": "811 samples"})
    assert caught.value.why == "training data: 811 samples, and 812 samples on machine 0"


def test_where_a_run_cannot_be_written(tmp_path: Path) -> None:
    check_writable(str(tmp_path / "runs" / "new"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot write"):
        check_writable("/proc/runs/new")


@pytest.mark.usefixtures("network")
def test_a_machine_that_cannot_reach_another_is_named() -> None:
    """Machine 1 reaches the store, and not machine 2, as with a firewall between them."""
    with hosts(3) as machines:
        route = ["ip", "route", "add", "unreachable", f"{machines[2].address}/32"]
        assert machines[1].start(route).wait() == 0
        job = ["doctor", "--nnodes", "3", "--master-addr", machines[0].address, "--device", "cpu", "--node-rank"]
        processes = [
            host.start([sys.executable, "-m", "paddock", *job, str(rank)], stderr=subprocess.PIPE, env=os.environ)
            for rank, host in enumerate(machines)
        ]
        said = [process.communicate()[1].partition("error: ")[2] for process in processes]
    assert [process.returncode for process in processes] == [3] * 3, said
    assert said[0] == said[1] == said[2]
    assert said[0].startswith("machine 1 (host1) is not ready")
    assert f"machine 1: it cannot reach machine 2 (host2) at {machines[2].address}" in said[0]


def test_machines_compare_what_was_asked_for_and_not_where_a_copy_of_it_lies(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    def refuse(launch: LaunchOptions, device: str, asked: Mapping[str, Any]) -> None:
        raise Asked(asked)

    address = f"file://{trained_run}"
    recipe = load_recipe(trained_run / "config.yaml")
    settings = recipe.checkpoint.model_copy(update={"load": address})
    for job in (evaluate, generate):
        monkeypatch.setattr(job, "compared", refuse)
    with pytest.raises(Asked) as asked:
        evaluate.evaluate(recipe.model_copy(update={"checkpoint": settings}), LaunchOptions())
    assert asked.value.args[0]["checkpoint"]["load"] == address
    with pytest.raises(Asked) as asked:
        next(iter(generate.continue_text(generate.TextJob(address, prompts=("a",)))))
    assert asked.value.args[0]["model"] == address
