"""The launchers of several machines, as threads: one decision, and every error everywhere."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from paddock.errors import DataError, MachineError, UserError
from paddock.launch.options import LaunchOptions
from paddock.launch.rendezvous import nodes
from paddock.launch.rendezvous.membership import join_job
from paddock.launch.rendezvous.nodes import agreed
from paddock.parallel.rendezvous import serve_store

Follow = Callable[[int, str], object]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def no_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not come, whatever the reason, holds the others for a minute, and not for a quarter of an
    hour."""
    monkeypatch.setattr(nodes, "SECONDS_TO_MEET", 60)


def meet(decide: Callable[[], str], follow: Follow) -> list[str | Exception]:
    """What three machines agree on, or what each of them raises."""
    port = free_port()

    def machine(rank: int) -> str | Exception:
        options = LaunchOptions(nnodes=3, node_rank=rank, master_addr="127.0.0.1", master_port=port)
        try:
            with agreed(options, decide, lambda decision: follow(rank, decision)) as decision:
                return decision
        except Exception as error:
            return error

    with ThreadPoolExecutor(3) as machines:
        return list(machines.map(machine, range(3)))


def test_machine_0_decides_and_the_others_follow() -> None:
    followed: list[tuple[int, str]] = []
    assert meet(lambda: "runs/one", lambda rank, decision: followed.append((rank, decision))) == ["runs/one"] * 3
    assert sorted(followed) == [(1, "runs/one"), (2, "runs/one")]


def test_an_error_of_any_machine_is_raised_on_all() -> None:
    def follow(rank: int, decision: str) -> None:
        if rank == 2:
            raise DataError("the gate is shut", why="nobody opened it", fix="open it")

    errors = meet(lambda: "runs/one", follow)
    assert [type(error) for error in errors] == [DataError] * 3
    told = ["machine 2: the gate is shut", "machine 2: the gate is shut", "the gate is shut"]
    assert [error.what for error in errors if isinstance(error, UserError)] == told
    assert all(error.fix == "open it" for error in errors if isinstance(error, UserError))


def test_nobody_follows_a_machine_0_that_failed() -> None:
    followed: list[int] = []

    def decide() -> str:
        raise KeyError("a bug")

    errors = meet(decide, lambda rank, decision: followed.append(rank))
    assert [type(error) for error in errors] == [KeyError, UserError, UserError]
    assert str(errors[1]) == "machine 0: KeyError: 'a bug'"
    assert followed == []


def test_a_machine_that_was_sent_away_is_not_waited_for_any_longer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store = serve_store("127.0.0.1", 0)
    join_job(store, LaunchOptions(nnodes=2, master_addr="127.0.0.1"))
    with pytest.raises(MachineError, match="does not fit"):
        join_job(store, LaunchOptions(nnodes=3, node_rank=1, master_addr="127.0.0.1"))
    monkeypatch.setattr(nodes, "SECONDS_TO_MEET", 0)
    error = nodes._hear_from(store, 1).error
    assert isinstance(error, MachineError) and error.what == "machine 1 did not come within 0 s"
    assert "was sent away: machine 1 does not fit the job" in capfd.readouterr().err


def test_the_others_hear_that_machine_0_has_gone(tmp_path: Path) -> None:
    port, deciding = free_port(), tmp_path / "deciding"
    code = f"""
import time
from pathlib import Path
from paddock.launch.rendezvous.nodes import agreed
from paddock.launch.options import LaunchOptions
def decide():
    Path({str(deciding)!r}).touch()
    time.sleep(600)
with agreed(LaunchOptions(nnodes=2, master_addr="127.0.0.1", master_port={port}), decide, print):
    pass
"""
    first = subprocess.Popen([sys.executable, "-c", code])
    try:
        with ThreadPoolExecutor(1) as second:
            options = LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=port)
            waiting = second.submit(lambda: agreed(options, lambda: "", print).__enter__())
            while not deciding.exists():
                assert first.poll() is None
            TCPStore("127.0.0.1", port, is_master=False).wait(["paddock/here/1"])
            os.kill(first.pid, signal.SIGKILL)
            with pytest.raises(MachineError, match="could not meet"):
                waiting.result()
    finally:
        first.kill()
        first.wait()
