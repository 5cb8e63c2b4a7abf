"""Standard output and error that nobody reads any more: work goes on, and a command that only prints ends in peace."""

from __future__ import annotations

import errno
import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.streams import LastingStream, outliving_readers
from paddock.testing.tiny import TINY, losses

SMALL = [*TINY, "--data.source", "synthetic", "--tokenizer.kind", "none", "--steps", "3"]


def test_a_stream_goes_mute_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with outliving_readers("stderr"):
            print("heard", file=sys.stderr)
            assert os.read(reading, 100) == b"heard\n"
            os.close(reading)
            for _ in range(3):
                print("lost", file=sys.stderr, flush=True)
            assert sys.stderr.writable() and not sys.stderr.isatty()
        assert sys.stderr is stream
        with pytest.raises(BrokenPipeError):  # somebody else's process: he learns of it as ever
            print("told", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_other_errors_are_told() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EDEADLK, "of another kind")

    with pytest.raises(OSError, match="of another kind"):
        LastingStream(Broken()).write("x\n")


def train(run_dir: Path, **streams: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "paddock", "train", *SMALL, "--run-dir", str(run_dir)]
    return subprocess.Popen(command, **streams)  # type: ignore[call-overload,no-any-return]


def came_to_its_end(run_dir: Path) -> bool:
    return len(losses(run_dir)) == 3 and "step     3/3" in (run_dir / "log.txt").read_text()


@pytest.mark.parametrize("lines", [0, 1])
def test_a_run_outlives_a_closed_pipe(lines: int, tmp_path: Path) -> None:
    """`2>&1 | head`"""
    process = train(tmp_path / "run", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert came_to_its_end(tmp_path / "run")


def test_a_run_outlives_a_terminal_that_is_closed(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = train(tmp_path / "run", stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    os.read(master, 1)
    os.close(master)
    assert process.wait() == 0
    assert came_to_its_end(tmp_path / "run")


def test_a_run_without_streams(tmp_path: Path) -> None:
    """`<&- >&- 2>&-`: what is opened next must not take their numbers, and what is printed then."""
    command = [sys.executable, "-m", "paddock", "train", *SMALL, "--run-dir", str(tmp_path / "run")]
    assert subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]).returncode == 0
    assert came_to_its_end(tmp_path / "run")


CLOSES = "import os, sys; from paddock.cli.main import main; os.close(2); main(sys.argv[1:])"


def test_a_run_whose_stream_was_closed_under_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOSES, "train", *SMALL, "--nproc-per-node", "2", "--run-dir", "run"]
    assert subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 0
    assert came_to_its_end(tmp_path / "run")


def test_an_error_that_nobody_hears_keeps_its_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-m", "paddock", "train", "gpt2/tinny"], stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait() == 2


def test_a_command_that_only_prints_ends_quietly() -> None:
    """`paddock zoo list | true`"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-m", "paddock", "zoo", "list"], **pipes)  # type: ignore[call-overload]
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 0)
    process.stderr.close()


COMMANDS = ["--help", "train --help", "zoo list", "flags zero", "runs list ."]
"""What prints with each of the ways that we have: our own, tyro's, tables."""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_behind_standard_output(words: str, tmp_path: Path) -> None:
    """`paddock zoo list > FILE`: one error, and no complaint of the interpreter's at its end."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    with open("/dev/full", "w") as full:
        done = paddock(words, tmp_path, stdout=full)
    assert done.returncode == 3, done.stderr
    why = os.strerror(errno.ENOSPC)
    assert done.stderr.decode().startswith(f"error: standard output cannot be written\n  why: {why}\n  fix: ")
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
def test_an_error_that_cannot_be_told_as_json_is_told(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = paddock("check config nothing --json", tmp_path, stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: there is no recipe") and b"Traceback" not in done.stderr


ENCODINGS = [
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("variables", ENCODINGS)
@pytest.mark.parametrize("words", COMMANDS[:4])
def test_an_encoding_that_lacks_characters(words: str, variables: dict[str, str], tmp_path: Path) -> None:
    done = paddock(words, tmp_path, stdout=subprocess.PIPE, **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" in done.stdout  # the number of a dash, or of dots


NAMES = r"""
import sys
from paddock.streams import let_every_text_pass
let_every_text_pass(as_json=bool(sys.argv[1]))
print("\u4e2d \ud83d\ude00 \udcff".encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
"""


@pytest.mark.parametrize(
    ("as_json", "written"), [("", "\\u4e2d \\U0001f600 \\udcff"), ("1", "\u4e2d \U0001f600 \\udcff")]
)
def test_what_programs_read_is_utf_8(as_json: str, written: str) -> None:
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", NAMES, as_json], env=variables, capture_output=True, check=True)
    assert done.stdout.decode() == f"{written}\n"


def paddock(words: str, cwd: Path, *, stdout: Any, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "paddock", *words.split()]
    environment = {**os.environ, **variables}
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, cwd=cwd, env=environment)
