"""Jobs in place and in several processes: results, streams and failures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cores import num_cores
from paddock.errors import ConfigError, DataError, MachineError
from paddock.launch import supervisor
from paddock.launch.environment import worker_environment
from paddock.launch.failure import WorkerFailed
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.testing.commands import Command
from paddock.testing.processes import is_gone, reserved_port, wait_for

JOBS = "paddock.testing.jobs:"
COMMAND = str(Path(__file__).with_name("command.py"))
TWO = LaunchOptions(nproc_per_node=2)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in (
        "OMP_NUM_THREADS",
        "GLOO_SOCKET_IFNAME",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    ):
        monkeypatch.delenv(name, raising=False)


def fail(tmp_path, **payload):
    """Run failing_job in two processes, of which the other would wait for ever; returns the error once all are gone."""
    with pytest.raises(Exception) as caught:
        run(JOBS + "failing_job", {"directory": str(tmp_path), **payload}, TWO, tmp_path)
    for rank in (0, 1):
        assert is_gone((tmp_path / f"rank{rank}.pid").read_text())
    return caught.value


def test_a_message_at_the_very_end_is_no_failure(tmp_path):
    """Threads of collective libraries outlive a job: they must not find an interpreter that is being taken down."""
    run(JOBS + "unfinished_job", {"directory": str(tmp_path)}, TWO, tmp_path)


def test_one_process_runs_in_place(tmp_path):
    payload = {"directory": str(tmp_path), "sizes": (1, 2)}
    run(JOBS + "report_job", payload, LaunchOptions(), tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["pid"] == os.getpid()
    assert report["payload"]["sizes"] == [1, 2]
    with pytest.raises(ConfigError):  # and errors propagate as they are
        run("paddock.launch.target:check_target", {}, LaunchOptions(nproc_per_node=0), tmp_path)


@pytest.mark.parametrize("target", ["os:system", "paddock", "paddock.x", "paddock.x:", "paddock.x:a.b", "paddockx.y:z"])
@pytest.mark.parametrize("options", [LaunchOptions(), TWO])
def test_foreign_targets_are_refused(target, options, tmp_path):
    with pytest.raises(ConfigError, match="cannot launch"):
        run(target, {}, options, tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_restarts": 1}, {"model.layers": "2"}),
        ({"min_nodes": 1, "rdzv_id": "job"}, {"model.layers": "2"}),
        ({}, {}),
    ],
    ids=["--max-restarts", "elastic", "neither"],
)
def test_what_was_asked_tells_machines_apart_where_they_may_be_replaced(options, told, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr("paddock.launch.run.run_attempts", jobs.append)
    machines = LaunchOptions(nnodes=2, master_addr="127.0.0.1", **options)
    run(JOBS + "report_job", {}, machines, tmp_path, node_counts=[1, 2], asked={"model.layers": "2"})
    [job] = jobs
    assert job.policy.asked == told


def test_two_processes(tmp_path, capfd):
    (tmp_path / "errors").mkdir()
    (tmp_path / "errors" / "rank7.txt").write_text("of an earlier attempt")
    run(JOBS + "all_reduce_job", {"directory": str(tmp_path)}, TWO, tmp_path)
    for rank in (0, 1):
        seen = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert seen["sum"] == 3
        assert seen["world_size"] == 2
        assert seen["threads"] == max(1, num_cores() // 2)
        assert seen["interface"] in ("lo", "lo0")
        assert seen["ours"], "a worker may be tuned as a whole"
        assert seen["session"], "a terminal's Ctrl-C must not reach the workers themselves"
    captured = capfd.readouterr()
    assert captured.out == "rank 0 sum 3\n"
    assert captured.err.splitlines()[1:] == ["rank 0 complains"]  # in particular no word of the agent
    assert list((tmp_path / "errors").iterdir()) == []
    assert "OMP_NUM_THREADS" not in os.environ


def test_threads_and_interface(monkeypatch):
    monkeypatch.setattr("paddock.launch.environment.num_cores", lambda: 8)
    assert worker_environment(LaunchOptions(nproc_per_node=3))["OMP_NUM_THREADS"] == "2"
    assert worker_environment(LaunchOptions(nproc_per_node=16))["OMP_NUM_THREADS"] == "1"
    assert "GLOO_SOCKET_IFNAME" not in worker_environment(LaunchOptions(nnodes=2, master_addr="a"))
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert worker_environment(TWO) == {}


def test_how_long_a_job_that_failed_is_waited_for():
    """All ranks are gone within 15 s, as far as that is the launcher's: a busy machine may take longer."""
    terminating = 2 * supervisor.SECONDS_TO_TERMINATE  # what is left of the ranks, and the agent itself
    assert supervisor.SECONDS_FOR_THE_CAUSE + terminating + supervisor.SECONDS_FOR_GRANDCHILDREN < 15


def test_user_error_crosses_the_border(tmp_path):
    # The other rank is deaf to SIGTERM, as one that is blocked in a collective: it must be killed.
    error = fail(tmp_path, rank=1, how="DataError", others="stubborn")
    assert type(error) is DataError
    assert (error.what, error.why, error.fix) == ("the gate is shut", "nobody opened it", "open it")
    assert error.exit_code == 4
    assert "in failing_job" in error.__cause__.traceback
    assert [path.name for path in (tmp_path / "errors").iterdir()] == ["rank1.txt"]


def test_exception_while_a_peer_waits_in_a_collective(tmp_path, capfd):
    error = fail(tmp_path, rank=1, how="exception", others="collective")
    assert isinstance(error, WorkerFailed)
    assert error.what == "rank 1 failed: RuntimeError: the bearing broke"
    assert error.exit_code == 1
    assert error.traceback.startswith("Traceback")
    assert error.traceback.endswith("RuntimeError: the bearing broke\n")
    assert str(tmp_path / "errors") in error.fix
    text = (tmp_path / "errors" / "rank1.txt").read_text()
    assert error.traceback in text
    assert "last words of rank 1" in text
    assert capfd.readouterr().out == ""


def test_rank_killed_in_the_middle_of_a_collective(tmp_path):
    error = fail(tmp_path, rank=1, how="SIGKILL", others="collective")
    assert isinstance(error, WorkerFailed)
    assert error.what == "rank 1 was killed by SIGKILL (often: out of memory)"
    assert error.exit_code == 3
    assert "SIGKILL" in (tmp_path / "errors" / "rank1.txt").read_text()


def test_crash_of_rank_0_leaves_its_stack(tmp_path):
    error = fail(tmp_path, rank=0, how="SIGSEGV", others="wait")
    assert error.what == "rank 0 was killed by SIGSEGV"
    assert "in failing_job" in error.traceback
    assert "in failing_job" in (tmp_path / "errors" / "rank0.txt").read_text()


def test_exit_without_a_word(tmp_path):
    error = fail(tmp_path, rank=0, how="exit", others="wait", offspring=True)
    assert error.what == "rank 0 exited with code 9 and left no traceback"
    assert error.exit_code == 3
    wait_for(lambda: is_gone((tmp_path / "offspring").read_text()))  # what a rank started goes with it


def test_a_port_that_is_taken(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        options = LaunchOptions(nproc_per_node=2, master_port=taken.getsockname()[1])
        with pytest.raises(MachineError, match="could not meet") as caught:
            run(JOBS + "report_job", {"directory": str(tmp_path)}, options, tmp_path)
    assert caught.value.exit_code == 3
    assert "in use" in caught.value.why


def test_two_nodes(tmp_path):
    payload = json.dumps({"directory": str(tmp_path)})
    words = [JOBS + "all_reduce_job", payload, str(tmp_path), "nnodes=2", "master_addr=127.0.0.1"]
    with reserved_port() as port:
        nodes = [Command(*words, f"master_port={port}", f"node_rank={rank}", program=Path(COMMAND)) for rank in (0, 1)]
        assert [node.communicate()[0] for node in nodes] == ["rank 0 sum 3\n", ""]
    assert [node.returncode for node in nodes] == [0, 0]


def test_two_pods_of_kubernetes(tmp_path):
    """Kubeflow's operator tells a pod its RANK and a WORLD_SIZE, as torchrun would a process."""
    payload = json.dumps({"directory": str(tmp_path)})
    words = [JOBS + "all_reduce_job", payload, str(tmp_path), "nnodes=2", "master_addr=localhost"]
    with reserved_port() as port:
        pod = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        nodes = [
            Command(
                *words,
                f"master_port={port}",
                f"node_rank={rank}",
                program=Path(COMMAND),
                environment=os.environ | pod | {"RANK": str(rank)},
            )
            for rank in (0, 1)
        ]
        assert [node.communicate()[0] for node in nodes] == ["rank 0 sum 3\n", ""]
    assert [node.returncode for node in nodes] == [0, 0]


def test_under_torchrun(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    payload = json.dumps({"directory": str(tmp_path)})
    command = [COMMAND, JOBS + "all_reduce_job", payload, str(tmp_path)]
    done = subprocess.run([*torchrun, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rank 0 sum 3" in done.stdout and "rank 1 sum 3" in done.stdout
    assert not (tmp_path / "errors").exists()


def test_torchrun_and_our_own_processes_do_not_mix(tmp_path, monkeypatch):
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="torchrun") as caught:
        run(JOBS + "report_job", {}, TWO, tmp_path)
    assert caught.value.exit_code == 2
    with pytest.raises(KeyError):  # a job that fails in place still leaves its own error file
        run(JOBS + "failing_job", {"rank": 0}, LaunchOptions(), tmp_path)
    assert "KeyError" in (tmp_path / "errors" / "rank0.txt").read_text()
