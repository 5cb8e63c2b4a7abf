"""Runs whose processes, launchers and machines fail: they go on by themselves, and end with the same losses.

The machines are launchers on this one, with a shared filesystem.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import STOPPED
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.commands import Command
from paddock.testing.processes import reserved_port, wait_for
from paddock.testing.tiny import TINY, losses
from paddock.training.remote.run import MARK

FOLDER = str(Path(__file__).parent)
sys.path.append(FOLDER)  # workers find the callback where this process does
importlib.import_module("faulty")

ARGUMENTS = ["train", *TINY, "--train.callbacks", "Faulty"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are to be the same bit for bit, however many processes a machine has."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of two processes that nothing happens to."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        assert run([*ARGUMENTS, "--run-dir", str(run_dir), "--nproc-per-node", "2"]) == 0
    return losses(run_dir)


def environment_of(run_dir: Path, attempt: int) -> dict[str, object]:
    told: dict[str, object] = json.loads((run_dir / "attempts" / str(attempt) / "environment.json").read_text())
    return told


class TestOnOneMachine:
    def train(self, run_dir: Path, *flags: str) -> int:
        return run([*ARGUMENTS, "--run-dir", str(run_dir), "--nproc-per-node", "2", *flags])

    def test_a_killed_rank_costs_an_attempt_and_nothing_else(
        self,
        tmp_path: Path,
        undisturbed: list[float],
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("FAULTS", "kill:5:1:0")
        assert self.train(tmp_path / "run", "--max-restarts", "1") == 0
        assert losses(tmp_path / "run") == undisturbed
        said = capfd.readouterr().err
        assert "rank 1 was killed by SIGKILL (often: out of memory): going on from the newest checkpoint" in said
        assert "(restart 1 of 1)" in said and "step-00000003, step 3" in said
        assert environment_of(tmp_path / "run", 2)["processes"] == {"nproc_per_node": 2, "nnodes": 1}
        assert environment_of(tmp_path / "run", 2)["layout"]
        records = [record for record in read_metrics(tmp_path / "run" / "metrics.jsonl") if record.get("attempt") == 2]
        recovered = [metrics_of(record) for record in records if "train.recovery_time" in metrics_of(record)]
        assert len(recovered) == 1 and recovered[0]["train.recovery_time"] > 0

    def test_without_restarts_it_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("FAULTS", "kill:2:1:0")
        assert self.train(tmp_path / "run") == 3
        assert not (tmp_path / "run" / "attempts" / "2").exists()

    def test_an_error_that_comes_again_is_not_tried_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("FAULTS", "bug:2:1:*")
        assert self.train(tmp_path / "run", "--max-restarts", "5") == 1
        said = capfd.readouterr().err
        assert "the step after step 2 failed twice with this same error" in said
        assert sorted(path.name for path in (tmp_path / "run" / "attempts").iterdir()) == ["1", "2"]

    def test_an_error_of_the_recipe_is_not_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("FAULTS", "config:2:0:*")
        assert self.train(tmp_path / "run", "--max-restarts", "5") == 2
        assert "going on" not in capfd.readouterr().err
        assert not (tmp_path / "run" / "attempts" / "2").exists()

    def test_checkpoints_that_cannot_be_read_are_set_aside_for_those_before_them(
        self,
        tmp_path: Path,
        undisturbed: list[float],
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        """Each by another damage, in one attempt after the other."""
        faults = ["byte:3:1:0", "kill:3:1:0", "truncate:4:1:1", "kill:4:1:1", "description:5:0:2", "kill:5:0:2"]
        monkeypatch.setenv("FAULTS", ",".join(faults))
        kept = ["--checkpoint.every", "1", "--checkpoint.keep", "None"]
        assert self.train(tmp_path / "run", "--max-restarts", "3", *kept) == 0
        assert losses(tmp_path / "run") == undisturbed
        said = capfd.readouterr().err
        checkpoints = tmp_path / "run" / "checkpoints"
        aside = sorted(checkpoints.glob("damaged-*"))
        assert len(aside) == 3
        for place in aside:
            assert f"it is now {place}, and the run goes on from the one before it" in said
        assert "are not those that were written" in said and "were written): it is now" in said

    @pytest.mark.slow
    def test_a_hang_is_an_error_that_another_attempt_may_not_meet(
        self,
        tmp_path: Path,
        undisturbed: list[float],
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("FAULTS", "hang:5:1:0")
        assert self.train(tmp_path / "run", "--max-restarts", "1", "--train.hang-timeout", "10") == 0
        assert losses(tmp_path / "run") == undisturbed
        said = capfd.readouterr().err
        assert "the job hangs: nothing has moved" in said and "(restart 1 of 1)" in said

    def test_one_process_alone_is_looked_after_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAULTS", "kill:5:0:0")
        assert run([*ARGUMENTS, "--run-dir", str(tmp_path / "run"), "--max-restarts", "1"]) == 0
        assert len(losses(tmp_path / "run")) == 6


class Cluster:
    """Launchers of one job."""

    def __init__(self, folder: Path, port: int, *flags: str) -> None:
        self.run_dir = folder / "run"
        self.folder = folder
        self.words = [*ARGUMENTS, "--run-dir", str(self.run_dir)]
        self.words += ["--master-addr", "127.0.0.1", "--master-port", str(port), *flags]
        self.launchers: list[Command] = []
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CLUSTER": str(folder)}

    def start(self, *flags: str) -> Command:
        program = Path(FOLDER, "faulty_command.py")
        launcher = Command(*self.words, *flags, cwd=self.folder, environment=self.environment, program=program)
        self.launchers.append(launcher)
        return launcher

    def wait_for(self, name: str) -> None:
        """Until the run directory has a file."""
        wait_for(lambda: (self.run_dir / name).exists() or all(one.poll() is not None for one in self.launchers))
        assert (self.run_dir / name).exists(), [one.communicate()[1] for one in self.launchers]

    def go_on(self, step: int) -> None:
        (self.run_dir / f"go-{step}").touch()

    def keepers(self) -> list[int]:
        """Processes that keep a store of this job."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"paddock.launch.rendezvous.keeper" in words and f"CLUSTER={self.folder}".encode() in variables:
                found.append(int(folder.name))
        return found

    def end(self) -> list[tuple[int, str]]:
        """Exit code and standard error of every launcher, in the order in which they were started."""
        said = [launcher.communicate()[1] for launcher in self.launchers]
        return [(launcher.wait(), words) for launcher, words in zip(self.launchers, said, strict=True)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with reserved_port() as port:
        cluster = Cluster(tmp_path, port)
        try:
            yield cluster
        finally:
            for launcher in cluster.launchers:
                launcher.kill()
                launcher.communicate()
            for keeper in cluster.keepers():
                os.kill(keeper, signal.SIGKILL)


def two(cluster: Cluster, *flags: str) -> tuple[Command, Command]:
    first, second = (cluster.start("--nnodes", "2", "--node-rank", str(rank), *flags) for rank in (0, 1))
    return first, second


class TestOnTwoMachines:
    def test_launchers_that_were_killed_and_started_again_go_on(
        self, cluster: Cluster, undisturbed: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one of machine 1, and then that of machine 0, which has made the store, and copies the run."""
        flags = ["--max-restarts", "2", "--node-timeout", "3"]
        copy = cluster.folder / "copy"
        cluster.run_dir.mkdir()
        (cluster.run_dir / MARK).write_text(f"file://{copy}\n")
        cluster.environment["FAULTS"] = "hold:4:0:*,hold:5:0:*"
        first, second = two(cluster, *flags)
        cluster.wait_for("at-4")
        second.kill()
        second.communicate()
        cluster.go_on(4)
        second = cluster.start("--nnodes", "2", "--node-rank", "1", *flags)
        cluster.wait_for("at-5")
        first.kill()
        first.communicate()
        cluster.go_on(5)
        assert len(cluster.keepers()) == 1
        cluster.start("--nnodes", "2", "--node-rank", "0", *flags)
        ended = cluster.end()
        assert [code for code, _ in ended] == [-signal.SIGKILL, -signal.SIGKILL, 0, 0], ended
        assert "machine 1 has gone: nothing was heard of it for 3 s: going on" in ended[0][1]
        assert "machine 0 has gone: nothing was heard of it for 3 s: going on" in ended[2][1]
        assert losses(cluster.run_dir) == undisturbed
        assert sorted(path.name for path in (cluster.run_dir / "attempts").iterdir()) == ["1", "2", "3"]
        assert (copy / "checkpoints" / "step-00000006" / "checkpoint.json").is_file()
        assert losses(copy) == undisturbed
        wait_for(lambda: not cluster.keepers())

    def test_when_machine_0_has_gone_altogether_the_others_end_and_say_how_to_go_on(self, cluster: Cluster) -> None:
        cluster.environment["FAULTS"] = "hold:4:0:*"
        first, _ = two(cluster, "--max-restarts", "2")
        cluster.wait_for("at-4")
        (keeper,) = cluster.keepers()
        for pid in (keeper, first.pid):
            os.kill(pid, signal.SIGKILL)
        _, (code, said) = cluster.end()
        assert code == 3, said
        assert "the place where the machines meet has gone: machine 0 (127.0.0.1, port" in said
        assert f"paddock resume {cluster.run_dir} --nproc-per-node 1 --nnodes 2 --node-rank RANK" in said

    def test_a_signal_to_one_machine_stops_and_saves_all(self, cluster: Cluster) -> None:
        cluster.environment["FAULTS"] = "hold:4:0:*"
        _, second = two(cluster, "--max-restarts", "2")
        cluster.wait_for("at-4")
        second.send_signal(signal.SIGTERM)
        read_until(second, "stopping once")
        cluster.go_on(4)
        assert [code for code, _ in cluster.end()] == [STOPPED, STOPPED]
        assert (cluster.run_dir / "checkpoints" / "latest").resolve().name >= "step-00000004"


class TestElastic:
    def test_a_job_goes_on_with_fewer_machines_and_grows_again(
        self, cluster: Cluster, undisturbed: list[float]
    ) -> None:
        cluster.environment["FAULTS"] = "hold:2:0:*,hold:4:0:*"
        flags = ["--nnodes", "1:2", "--rdzv-id", "job", "--node-timeout", "3"]
        both = cluster.start(*flags), cluster.start(*flags)
        cluster.wait_for("at-2")
        (keeper,) = cluster.keepers()
        stays, goes = sorted(both, key=lambda launcher: launcher.pid != parent_of(keeper))
        goes.kill()
        cluster.go_on(2)
        cluster.wait_for("at-4")
        third = cluster.start(*flags)
        read_until(stays, "a change of machines: saving, to go on with them")
        cluster.go_on(4)
        assert [launcher.wait() for launcher in (stays, third)] == [0, 0], cluster.end()
        numbers = [environment_of(cluster.run_dir, attempt)["processes"] for attempt in (1, 2, 3)]
        assert numbers == [{"nproc_per_node": 1, "nnodes": nodes} for nodes in (2, 1, 2)]
        assert losses(cluster.run_dir) == pytest.approx(undisturbed, rel=1e-5)

    def test_a_machine_that_gets_sigterm_leaves_the_others_at_work(
        self, cluster: Cluster, undisturbed: list[float]
    ) -> None:
        """Here that which has made the store: it goes, and the store stays."""
        cluster.environment["FAULTS"] = "hold:2:0:*"
        flags = ["--nnodes", "1:2", "--rdzv-id", "job", "--node-timeout", "3"]
        both = cluster.start(*flags), cluster.start(*flags)
        cluster.wait_for("at-2")
        (keeper,) = cluster.keepers()
        goes, stays = sorted(both, key=lambda launcher: launcher.pid != parent_of(keeper))
        goes.send_signal(signal.SIGTERM)
        read_until(goes, "stopping once")
        cluster.go_on(2)
        assert [launcher.wait() for launcher in (goes, stays)] == [STOPPED, 0], cluster.end()
        assert environment_of(cluster.run_dir, 2)["processes"] == {"nproc_per_node": 1, "nnodes": 1}
        assert losses(cluster.run_dir) == pytest.approx(undisturbed, rel=1e-5)
        wait_for(lambda: not cluster.keepers())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def read_until(launcher: Command, words: str) -> None:
    """Read what a launcher says until it says this."""
    assert launcher.stderr is not None
    said = []
    while words not in (line := launcher.stderr.readline()):
        said.append(line)
        assert line, "".join(said)
