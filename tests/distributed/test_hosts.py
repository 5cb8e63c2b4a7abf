"""Jobs on several machines, which are network namespaces: what is trained across them has the numbers of one process,
and a slow network costs time and nothing else.

What the guide to clusters does on two machines (training, evaluating, generating), its own test compares likewise.
And what one machine cannot do (be reached by its name, write) is said of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import MachineError
from paddock.testing.hosts import Host, hosts
from paddock.testing.processes import wait_for
from paddock.testing.tiny import TINY, losses

pytestmark = pytest.mark.usefixtures("network")

TENSOR_AND_PIPELINE = ["--parallel.tensor", "2", "--parallel.pipeline", "2"]


PROMPTS = ["The function", "A class", "In the", "It is an error"]


def on_hosts(
    machines: Sequence[Host], folder: Path, *words: str, each: int, place: Sequence[str] = (), code: int = 0
) -> list[tuple[str, str]]:
    """Run a verb as one job over the machines; what each of them said. All must end with this exit code. Without
    another `place` to meet it is the address of the first."""
    processes = []
    for rank, host in enumerate(machines):
        own = [*(place or ("--master-addr", machines[0].address)), "--nproc-per-node", str(each)]
        own += [] if "--node-ips" in own else ["--nnodes", str(len(machines)), "--node-rank", str(rank)]
        command = [sys.executable, "-m", "paddock", *words, *own]
        processes.append(host.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [code] * len(machines), said
    return said


def same(run_dir: Path, right: Path) -> None:
    for name in ("train.loss", "train.grad_norm", "val.loss"):
        assert losses(run_dir, name) == pytest.approx(losses(right, name), rel=1e-5), name


@pytest.mark.slow
def test_a_slow_network_changes_nothing(trained_run: Path, tmp_path: Path) -> None:
    with hosts(2, ipv6=True, delay=0.02, rate="50mbit") as machines:
        on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", *TENSOR_AND_PIPELINE, each=2)
    same(tmp_path / "run", trained_run)


@pytest.mark.slow
def test_a_part_of_the_model_on_each_of_four_machines(trained_run: Path, tmp_path: Path) -> None:
    with hosts(4, delay=0.002) as machines:
        on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", *TENSOR_AND_PIPELINE, each=1)
    same(tmp_path / "run", trained_run)


class CutJob:
    """A job of two machines that may go on after a fault, and waits after its fourth step until it is let go on."""

    def __init__(self, machines: list[Host], folder: Path, timeout: int) -> None:
        self.machines, self.folder, self.timeout = machines, folder, timeout
        self.run_dir = folder / "run"
        self.launchers = [self.start(0), self.start(1)]
        wait_for(lambda: (self.run_dir / "at-4").exists() or any(one.poll() is not None for one in self.launchers))
        assert (self.run_dir / "at-4").exists(), [one.communicate() for one in self.launchers]

    def start(self, machine: int) -> subprocess.Popen[str]:
        begin = "import faulty; from paddock.cli.main import main; main()"
        command = [sys.executable, "-c", begin, "train", *TINY, "--run-dir", "run", "--train.callbacks", "Faulty"]
        command += ["--nnodes", "2", "--node-rank", str(machine), "--master-addr", self.machines[0].address]
        command += ["--max-restarts", "2", "--node-timeout", str(self.timeout), "--checkpoint.load", "auto"]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        environment = os.environ | {"PYTHONPATH": path, "FAULTS": "hold:4:0:*"}
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return self.machines[machine].start(command, cwd=self.folder, env=environment, **pipes)

    def go_on(self) -> None:
        (self.run_dir / "go-4").touch()

    def end(self) -> tuple[list[int], list[str]]:
        """Exit codes of the launchers, and what they said."""
        said = [launcher.communicate()[1] for launcher in self.launchers]
        return [launcher.returncode for launcher in self.launchers], said

    @property
    def attempts(self) -> list[str]:
        return sorted(path.name for path in (self.run_dir / "attempts").iterdir())


@pytest.fixture
def two_hosts() -> Iterator[list[Host]]:
    with hosts(2) as machines:
        yield machines


def read_until(launcher: subprocess.Popen[str], words: str) -> str:
    """What a launcher says, until it says this."""
    assert launcher.stderr is not None
    said = []
    while not said or words not in said[-1]:
        said.append(launcher.stderr.readline())
        assert said[-1], "".join(said)
    return "".join(said)


@pytest.mark.slow
def test_a_link_that_is_down_for_a_moment_costs_nothing(
    two_hosts: list[Host], trained_run: Path, tmp_path: Path
) -> None:
    job = CutJob(two_hosts, tmp_path, timeout=60)
    two_hosts[1].cut()
    job.go_on()
    time.sleep(2)
    two_hosts[1].mend()
    codes, said = job.end()
    assert (codes, job.attempts) == ([0, 0], ["1"]), said
    same(job.run_dir, trained_run)


@pytest.mark.slow
def test_a_link_that_is_down_until_both_sides_have_noticed_costs_an_attempt(
    two_hosts: list[Host], trained_run: Path, tmp_path: Path
) -> None:
    job = CutJob(two_hosts, tmp_path, timeout=8)
    two_hosts[1].cut()
    read_until(job.launchers[1], "machine 0 for 8 s: ending this attempt")
    two_hosts[1].mend()
    job.go_on()
    codes, said = job.end()
    assert codes == [0, 0], said
    assert "going on from the newest checkpoint (restart 1 of 2)" in said[0]
    assert "for a while: going on from the newest checkpoint" in said[1] or "for a while, and ended" in said[1]
    assert job.attempts == ["1", "2"]
    same(job.run_dir, trained_run)


@pytest.mark.slow
def test_a_machine_that_is_cut_off_for_good_ends_and_names_machine_0_and_a_fresh_one_takes_its_place(
    two_hosts: list[Host], trained_run: Path, tmp_path: Path
) -> None:
    job = CutJob(two_hosts, tmp_path, timeout=3)
    two_hosts[1].cut()
    _, said = job.launchers[1].communicate()
    assert job.launchers[1].returncode == MachineError.exit_code, said
    assert f"the place where the machines meet has gone: machine 0 ({two_hosts[0].address}, port" in said
    assert "start the same command" in said or "paddock resume" in said
    assert job.launchers[0].poll() is None  # it waits for another machine 1
    two_hosts[1].mend()
    job.go_on()
    job.launchers[1] = job.start(1)
    codes, told = job.end()
    assert codes == [0, 0], told
    assert "machine 1 has gone: nothing was heard of it for 3 s: going on" in told[0]
    same(job.run_dir, trained_run)


def writing(model: Path, *others: str) -> list[str]:
    """A command that continues some texts."""
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    return ["generate", str(model), *prompts, "--max-new-tokens", "8", "--device", "cpu", *others]


@pytest.mark.slow
def test_text_is_written_across_machines(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(writing(trained_run)) == 0
    alone = capsys.readouterr().out
    with hosts(2) as machines:
        (told, _), (silent, _) = on_hosts(machines, tmp_path, *writing(trained_run, *TENSOR_AND_PIPELINE), each=2)
    assert told == alone and silent == ""


@pytest.mark.slow
@pytest.mark.parametrize(("count", "each"), [(2, 4), (4, 2)], ids=["2 machines of 4", "4 machines of 2"])
def test_three_dimensions_train_evaluate_and_write_as_one_process(
    count: int, each: int, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over two replicas, each of them in four parts: what was trained and saved so."""
    run_dir = tmp_path / "run"
    with hosts(count, delay=0.002) as machines:
        on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", *TENSOR_AND_PIPELINE, each=each)
        same(run_dir, trained_run)
        evaluating = ["evaluate", str(run_dir), "--json"]
        assert run(evaluating) == 0 and run(writing(run_dir)) == 0
        measured, *alone = capsys.readouterr().out.splitlines()
        (told, _), *others = on_hosts(machines, tmp_path, *evaluating, *TENSOR_AND_PIPELINE, each=each)
        assert json.loads(told)["val.loss"] == pytest.approx(json.loads(measured)["val.loss"], rel=1e-5)
        assert [silent for silent, _ in others] == [""] * (count - 1)
        (told, _), *others = on_hosts(machines, tmp_path, *writing(run_dir, *TENSOR_AND_PIPELINE), each=each)
        assert told.splitlines() == alone
        assert [silent for silent, _ in others] == [""] * (count - 1)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(("--master-addr", "host0"), id="one"),
        pytest.param(("--node-ips", "host0,host1"), id="all", marks=pytest.mark.slow),
    ],
)
def test_a_name_that_is_127_0_1_1_on_its_own_machine(place: tuple[str, str], trained_run: Path, tmp_path: Path) -> None:
    """As Debian's installer writes it into /etc/hosts. The others know the address of machine 0 by that name."""
    names = Path("/etc/hosts")
    with hosts(2, own=[names]) as machines:
        for host in machines:
            lines = [f"127.0.1.1 {host.name}", *(f"{one.address} {one.name}" for one in machines if one is not host)]
            host.own[names].write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        (_, first), (_, second) = on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", each=1, place=place)
    assert f"note: host0 is this machine alone by its /etc/hosts; the nodes meet at {machines[0].address}" in first
    assert "by its /etc/hosts" not in second
    same(tmp_path / "run", trained_run)


def test_a_machine_that_cannot_write_its_part_of_the_run_is_named(tmp_path: Path) -> None:
    """Before any process starts. Each machine has a disk of its own, and on one of them nobody can write."""
    runs = tmp_path / "runs"
    runs.mkdir()
    with hosts(2, own=[runs]) as machines:
        machines[1].own = {runs: Path("/proc")}
        (_, first), (_, second) = on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "runs/one", each=1, code=3)
    assert "error: machine 1: cannot write" in first and "error: cannot write" in second
    assert "step     1/6" not in first
