"""Signals sent to the launcher of a job with two processes."""

import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.launch.stop import STOPPING
from paddock.testing.commands import Command
from paddock.testing.processes import is_gone, reserved_port, wait_for

COMMAND = Path(__file__).with_name("command.py")
STARTED = "starting 2 processes\n"


def stepping(directory, **payload):
    return launched("stepping_job", directory, **payload)


@contextmanager
def launched(job, directory, **payload):
    """A launcher of two such jobs, once both have left their process ids."""
    words = [f"paddock.testing.jobs:{job}", json.dumps({"directory": str(directory), **payload}), str(directory)]
    environment = os.environ | {"TMPDIR": str(directory)}
    launcher = Command(*words, "nproc_per_node=2", program=COMMAND, environment=environment)
    try:
        files = [directory / f"rank{rank}.pid" for rank in (0, 1)]
        wait_for(lambda: all(file.exists() for file in files) or launcher.poll() is not None)
        yield launcher, [int(file.read_text()) for file in files]
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.parametrize(
    ("number", "early"),
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True)],
    ids=["SIGTERM", "SIGHUP", "SIGINT while starting"],
)
def test_clean_stop(number, early, tmp_path):
    with stepping(tmp_path, early=early) as (launcher, pids):
        launcher.send_signal(number)
        output, errors = launcher.communicate()
        assert launcher.returncode == 0, errors
        assert output == ""
        assert errors == f"{STARTED}{STOPPING}\n"
        assert [(tmp_path / f"rank{rank}.stopped").read_text() for rank in (0, 1)] == [number.name] * 2
        assert all(is_gone(pid) for pid in pids)
    assert not (tmp_path / "errors").exists()
    assert not list(tmp_path.glob("paddock-scratch-*"))


def test_second_interrupt_kills(tmp_path):
    with stepping(tmp_path, deaf=True) as (launcher, pids):
        launcher.send_signal(signal.SIGINT)
        assert launcher.stderr.readline() == STARTED
        assert launcher.stderr.readline() == STOPPING + "\n"
        launcher.send_signal(signal.SIGTERM)  # a repeated SIGTERM is patient
        time.sleep(0.5)
        assert launcher.poll() is None
        assert not any(is_gone(pid) for pid in pids)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait() == 130
        assert all(is_gone(pid) for pid in pids)
    assert not list(tmp_path.glob("*.stopped"))
    assert not list(tmp_path.glob("paddock-scratch-*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_job_without_a_stop_request_just_ends(number, code, tmp_path):
    with stepping(tmp_path, plain=True) as (launcher, pids):
        launcher.send_signal(number)
        _, errors = launcher.communicate()
        assert (launcher.returncode, errors) == (code, STARTED)
        assert all(is_gone(pid) for pid in pids)
    assert not list(tmp_path.glob("*.stopped"))


@pytest.mark.parametrize(("plain", "said"), [(False, STOPPING + "\n"), (True, "")])
def test_a_node_without_rank_0_answers_for_itself(plain, said, tmp_path):
    payload = {"directory": str(tmp_path)} | ({"plain": True} if plain else {})
    words = ["paddock.testing.jobs:stepping_job", json.dumps(payload), str(tmp_path)]
    with reserved_port() as port:
        words += [f"master_port={port}", "master_addr=127.0.0.1", "nnodes=2"]
        nodes = [Command(*words, f"node_rank={rank}", program=COMMAND) for rank in (0, 1)]
        try:
            files = [tmp_path / f"rank{rank}.pid" for rank in (0, 1)]
            wait_for(lambda: all(file.exists() for file in files) or any(node.poll() is not None for node in nodes))
            nodes[1].send_signal(signal.SIGINT)
            assert nodes[1].stderr.readline() == said
            nodes[0].send_signal(signal.SIGINT)
            nodes[1].wait()
        finally:
            for node in nodes:
                node.kill()
                node.communicate()
    assert nodes[1].returncode == (130 if plain else 0)


def test_a_stop_ends_a_wait_for_what_never_comes(tmp_path):
    """One rank waits in a collective, inside C++, and the other in Python; neither looks whether it is to stop."""
    with launched("waiting_job", tmp_path, patience=0.5) as (launcher, pids):
        launcher.send_signal(signal.SIGTERM)
        _, errors = launcher.communicate()
        assert launcher.returncode == 128 + signal.SIGTERM, errors
        assert STOPPING in errors and "leaving at once, without saving" in errors
        assert all(is_gone(pid) for pid in pids)
    assert not list(tmp_path.glob("paddock-scratch-*"))


def test_a_killed_launcher_takes_its_workers_along(tmp_path):
    with stepping(tmp_path, deaf=True) as (launcher, pids):
        assert not any(is_gone(pid) for pid in pids)
        launcher.kill()
        wait_for(lambda: all(is_gone(pid) for pid in pids))
    assert not list(tmp_path.glob("*.stopped"))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def server_of(pids: list[int]) -> int:
    (found,) = {parent(pid) for pid in pids}
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_to_every_process_of_a_job_stops_it_cleanly(number, tmp_path):
    """As a cluster's scheduler sends it."""
    with stepping(tmp_path) as (launcher, pids):
        server = server_of(pids)
        assert parent(server) == launcher.pid
        for pid in (server, *pids, launcher.pid):
            os.kill(pid, number)
        _, errors = launcher.communicate()
        assert launcher.returncode == 0, errors
        assert [(tmp_path / f"rank{rank}.stopped").read_text() for rank in (0, 1)] == [number.name] * 2
        wait_for(lambda: all(is_gone(pid) for pid in (server, *pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked")
def test_a_killed_server_takes_its_workers_along_and_the_job_fails(tmp_path):
    with stepping(tmp_path, deaf=True) as (launcher, pids):
        os.kill(server_of(pids), signal.SIGKILL)
        _, errors = launcher.communicate()
        assert launcher.returncode == 3 and "SIGKILL" in errors, errors
        wait_for(lambda: all(is_gone(pid) for pid in pids))  # the system ends them, in its own time
    assert not list(tmp_path.glob("paddock-scratch-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked")
def test_beside_a_plug_in_of_torch_workers_are_programs_of_their_own(tmp_path, monkeypatch):
    """A vendor's package may hold its driver open, which no fork would bear."""
    packages = tmp_path / "packages"
    information = packages / "vendor-1.0.dist-info"
    information.mkdir(parents=True)
    (packages / "vendor_of_ours.py").write_text("def load():\n    pass\n")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nours = vendor_of_ours:load\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    with launched("stepping_job", tmp_path) as (launcher, pids):
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in pids]
        assert all(b"paddock.launch.worker" in command for command in commands)
        launcher.send_signal(signal.SIGTERM)
        launcher.communicate()
        assert launcher.returncode == 0
