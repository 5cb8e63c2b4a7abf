"""A run directory is one run's own: made exclusively, locked while it is written to, and nothing in it is lost."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import ConfigError, MachineError
from paddock.files import atomic_write
from paddock.testing.tiny import TINY, losses
from paddock.training.run_directory import directory as run_directory
from paddock.training.run_directory.directory import begin_attempt, new_run_dir
from paddock.training.run_directory.lock import joined, locked

SMALL = [*TINY, "--data.source", "synthetic", "--tokenizer.kind", "none", "--evaluate.every", "None", "--steps", "1"]

HOLD = "lock = stack.enter_context(locked(path, 'train')); lock.share()"
JOIN = "stack.enter_context(joined(path))"


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Everything happens in the same second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_directory, "name_run_dir", lambda name: Path("runs") / "gpt2-tiny-20261117-120000")
    return tmp_path / "runs"


def test_runs_of_the_same_second_have_directories_of_their_own(one_second: Path) -> None:
    for _ in range(2):
        assert run(["train", *SMALL]) == 0
    assert sorted(path.name for path in one_second.iterdir()) == [
        "gpt2-tiny-20261117-120000",
        "gpt2-tiny-20261117-120000-2",
    ]
    assert all(len(losses(path)) == 1 for path in one_second.iterdir())


def test_directories_are_made_exclusively(one_second: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        made = list(threads.map(new_run_dir, ["gpt2/tiny"] * 16))
    assert len(set(made)) == 16 and all((one_second.parent / path).is_dir() for path in made)


def test_a_run_that_is_refused_leaves_no_directory(one_second: Path, tmp_path: Path) -> None:
    refused = ["train", *SMALL, "--data.source", "indexed", "--data.path", "nowhere"]
    assert run(refused) != 0
    assert run([*refused, "--run-dir", "deep/named"]) != 0
    assert not list(tmp_path.iterdir())
    for mine in ("mine", "runs/other"):
        (tmp_path / mine).mkdir(parents=True)
    assert run(refused) != 0
    assert run([*refused, "--run-dir", "mine"]) != 0
    assert [path.name for path in one_second.iterdir()] == ["other"] and (tmp_path / "mine").is_dir()


@contextmanager
def elsewhere(path: Path, action: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, until it is killed."""
    code = (
        "import sys\nfrom contextlib import ExitStack\nfrom pathlib import Path\n"
        "from paddock.training.run_directory.lock import joined, locked\n"
        f"path = Path(sys.argv[1])\nwith ExitStack() as stack:\n    {action}\n    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with elsewhere(tmp_path / "run", HOLD) as holder:
        assert run(["train", *SMALL, "--run-dir", str(tmp_path / "run")]) == 3
        said = capsys.readouterr().err
        assert all(word in said for word in (f"process {holder.pid}", socket.gethostname(), "paddock train"))
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    assert run(["train", *SMALL, "--run-dir", str(tmp_path / "run")]) == 0, "a killed process holds nothing"


def test_who_only_reads_needs_no_lock(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(trained_run, "train"):
        assert run(["evaluate", str(trained_run), "--json"]) == 0
    assert "val.loss" in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_lock_lasts_as_long_as_any_process_of_the_job(tmp_path: Path) -> None:
    with elsewhere(tmp_path, HOLD) as launcher, elsewhere(tmp_path, JOIN) as rank:
        launcher.kill()
        launcher.wait()
        with pytest.raises(MachineError, match="is in use"), locked(tmp_path, "train"):
            pass
        rank.kill()
        rank.wait()
        with locked(tmp_path, "train"), pytest.raises(MachineError, match="is in use"), joined(tmp_path):
            pass


def test_a_file_system_without_locks_is_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / "run", "train") as lock, joined(tmp_path / "run"):
        lock.share()
    assert capsys.readouterr().err.count("cannot be locked") == 1


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="cannot write"), locked(tmp_path, "train"):
        pass
    assert not (tmp_path / "elsewhere").exists()


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("log.txt", "pipe"),
        ("log.txt", "folder"),
        (".lock", "pipe"),
        (".lock", "folder"),
        ("metrics.jsonl", "pipe"),
        ("environment.json", "folder"),
        ("tokenizer.json", "folder"),
        ("tokenizer.json", "pipe"),
    ],
)
def test_what_is_no_file_is_refused_at_once(
    name: str, kind: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(trained_run, tmp_path / "run", symlinks=True))
    (path / name).unlink()
    ODD[kind](path / name)
    before = sorted(path.rglob("*"))
    assert run(["resume", str(path), "--train.steps", "8"]) == 4
    assert f"{path / name} is a {kind}" in capsys.readouterr().err
    assert sorted(path.rglob("*")) == before


def test_a_folder_in_the_place_of_a_written_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    with pytest.raises(MachineError, match="cannot write"), atomic_write(tmp_path / "result.json") as stream:
        stream.write("{}")
    assert list(tmp_path.iterdir()) == [tmp_path / "result.json"]


def test_links_that_lead_to_themselves_are_looked_past(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(trained_run, tmp_path / "run", symlinks=True))
    for name in ("latest", "best", "step-00000099"):
        (path / "checkpoints" / name).unlink(missing_ok=True)
        ODD["loop"](path / "checkpoints" / name)
    assert run(["runs", "show", str(path)]) == 0
    assert "step-00000006" in capsys.readouterr().out
    assert run(["runs", "clean", str(tmp_path), "--checkpoints", "--dry-run"]) == 0
    assert run(["resume", str(path), "--train.steps", "7", "--checkpoint.keep", "1"]) == 0
    assert (path / "checkpoints" / "latest").resolve().name == "step-00000007"


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"), locked(tmp_path / "file", "train"):
        pass


def test_every_attempt_keeps_its_config_and_environment(tmp_path: Path) -> None:
    assert [begin_attempt(tmp_path, f"recipe {number}", {"command": [str(number)]}) for number in (1, 2, 3)] == [
        1,
        2,
        3,
    ]
    assert (tmp_path / "config.yaml").read_text() == "recipe 3"
    for number in (1, 2, 3):
        folder = tmp_path / "attempts" / str(number)
        assert (folder / "config.yaml").read_text() == f"recipe {number}"
        assert json.loads((folder / "environment.json").read_text())["command"] == [str(number)]


def test_a_run_from_before_attempts_were_kept_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("old recipe")
    (tmp_path / "environment.json").write_text("{}")
    assert begin_attempt(tmp_path, "new recipe", {}) == 2
    assert (tmp_path / "attempts" / "1" / "config.yaml").read_text() == "old recipe"
    assert (tmp_path / "attempts" / "1" / "environment.json").read_text() == "{}"
    assert (tmp_path / "attempts" / "2" / "config.yaml").read_text() == "new recipe"
