"""Scripts that never end, fork, fill the disk or the screen, look for secrets: each is ended, and leaves nobody behind.

The scripts are a few lines without torch. Limits are small; none is one that a slow machine would reach by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.testing.processes import is_gone, wait_for
from paddock.zoo.sandbox import Limits, Outcome, clean_environment, run_in_sandbox

SMALL = Limits(seconds=600, memory=2**30, disk=2**24, output=2**20, processes=40, grace=0.3)


def run(code: str, place: Path, limits: Limits = SMALL, variables: tuple[str, ...] = ()) -> tuple[Outcome, str]:
    """Run Python in a sandbox of its own."""
    sandbox = place / "sandbox"
    sandbox.mkdir()
    (sandbox / "script.py").write_text(code)
    return run_in_sandbox([sys.executable, "script.py"], sandbox, sandbox, limits, variables)


def noted(place: Path) -> list[int]:
    """The processes that a script has noted."""
    return [int(number) for path in (place / "sandbox").glob("pid*") for number in path.read_text().split()]


NOTE = "import os, sys, time\ndef note():\n    open(f'pid{os.getpid()}', 'w').write(str(os.getpid()))\nnote()\n"


def test_a_script_that_ends_well(tmp_path: Path) -> None:
    outcome, printed = run("print('hello'); import sys; print('so', file=sys.stderr)", tmp_path)
    assert (outcome.status, outcome.ended, outcome.left) == (0, None, [])
    assert sorted(printed.split()) == ["hello", "so"] and outcome.printed == 9


def test_its_exit_status_and_its_signal_are_told(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    assert run("raise SystemExit(3)", tmp_path)[0].status == 3
    assert run("import os; os.abort()", tmp_path / "b")[0].status == -6


def test_one_that_never_ends(tmp_path: Path) -> None:
    outcome, _ = run(NOTE + "while True:\n    time.sleep(1)", tmp_path, replace(SMALL, seconds=1.0))
    assert (outcome.ended, outcome.status) == ("time", -9)
    assert all(map(is_gone, noted(tmp_path)))


DAEMON = """
if os.fork():
    while len([name for name in os.listdir() if name.startswith("pid")]) < 2:
        time.sleep(0.01)
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
for descriptor in range(3):
    os.close(descriptor)
note()
os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(10000)"], {})
"""
"""Twice forked, in a session of its own, with every stream closed and no environment."""


def test_a_daemon_is_ended_and_told(tmp_path: Path) -> None:
    outcome, _ = run(NOTE + DAEMON, tmp_path)
    assert outcome.status == 0 and len(outcome.left) == 1
    assert len(noted(tmp_path)) == 2 and all(map(is_gone, noted(tmp_path)))


def test_children_end_with_one_that_never_does(tmp_path: Path) -> None:
    code = NOTE + "for _ in range(3):\n    os.fork() or os.setsid()\nnote()\n"
    outcome, _ = run(code + "while True:\n    time.sleep(1)", tmp_path, replace(SMALL, seconds=1.5))
    assert outcome.ended == "time"
    assert all(map(is_gone, noted(tmp_path)))


def test_one_that_forks_without_end(tmp_path: Path) -> None:
    code = NOTE + "while True:\n    if os.fork() == 0:\n        note()\n    time.sleep(0.05)\n"
    outcome, _ = run(code, tmp_path)
    assert outcome.ended == "processes"
    assert noted(tmp_path) and all(map(is_gone, noted(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_gets_rid_of_whoever_watches_it(number: int, tmp_path: Path) -> None:
    """With a child in a session of its own, whose environment is empty."""
    code = f"""
if os.fork() == 0:
    os.setsid()
    note()
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(10000)"], {{}})
while len([name for name in os.listdir() if name.startswith("pid")]) < 2:
    time.sleep(0.01)
os.kill(os.getppid(), {number:d})
while True:
    time.sleep(1)
"""
    assert run(NOTE + code, tmp_path)[0].ended == "supervisor"
    assert all(map(is_gone, noted(tmp_path)))


def test_one_that_fills_the_disk_with_one_file(tmp_path: Path) -> None:
    code = "stream = open('big', 'wb')\nwhile True:\n    stream.write(b'x' * 2**20)\n"
    outcome, printed = run(code, tmp_path)
    assert outcome.status == 1 and "File too large" in printed
    assert (tmp_path / "sandbox" / "big").stat().st_size <= SMALL.disk


def test_one_that_fills_the_disk_with_many_files(tmp_path: Path) -> None:
    code = "import itertools\nfor number in itertools.count():\n    open(f'{number}', 'wb').write(b'x' * 2**20)\n"
    limits = replace(SMALL, disk=2**22)
    outcome, _ = run(code + "    import time; time.sleep(0.02)", tmp_path, limits)
    assert outcome.ended == "disk" and outcome.disk > limits.disk


def test_one_that_prints_a_gigabyte(tmp_path: Path) -> None:
    code = "import sys\nfor _ in range(1024):\n    sys.stdout.write('x' * 2**20)\n"
    outcome, printed = run(code, tmp_path)
    assert outcome.ended == "output"
    assert (tmp_path / "output.txt").stat().st_size <= SMALL.output and len(printed) <= 8_000


def test_one_that_takes_all_memory(tmp_path: Path) -> None:
    outcome, printed = run("block = bytearray(2**32)", tmp_path)
    assert outcome.status == 1 and "MemoryError" in printed


def test_many_that_take_memory_together(tmp_path: Path) -> None:
    code = "import os, time\nfor _ in range(3):\n    os.fork()\nblock = bytearray(2**26)\ntime.sleep(600)"
    outcome, _ = run(code, tmp_path, replace(SMALL, memory=2**28))
    assert outcome.ended == "memory" and outcome.memory > 2**28


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "correct horse")
    monkeypatch.setenv("TOOLKIT_HOME", "somewhere")
    code = """
import json, os, pathlib
told = {"own": dict(os.environ), "parent": pathlib.Path(f"/proc/{os.getppid()}/environ").read_text()}
print(json.dumps(told))
"""
    _, printed = run(code, tmp_path, variables=("TOOLKIT_HOME",))
    assert "correct horse" not in printed and "AWS_SECRET_ACCESS_KEY" not in printed
    own = json.loads(printed)["own"]
    sandbox = str(tmp_path / "sandbox")
    assert all(own[name].startswith(sandbox) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"))
    assert own["TOOLKIT_HOME"] == "somewhere"


def test_only_a_few_variables_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    names = {"PATH", "LANG", "HOME", "TMPDIR", "XDG_CACHE_HOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    assert clean_environment(tmp_path, ()).keys() == names


def test_a_script_has_nothing_to_read(tmp_path: Path) -> None:
    """It cannot wait for somebody to type, and has no file of ours open."""
    outcome, printed = run(
        "import os, sys\nprint(sys.stdin.read() == '', sorted(os.listdir('/proc/self/fd')))", tmp_path
    )
    assert outcome.status == 0 and "True" in printed
    assert len(printed.partition("[")[2].split(",")) <= 4


def test_who_stops_the_check_stops_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen.communicate

    def interrupted(self: subprocess.Popen[str], job: str, timeout: float) -> object:
        assert self.stdin is not None
        self.stdin.write(job)
        self.stdin.close()
        wait_for(lambda: bool(noted(tmp_path)))
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(NOTE + "while True:\n    time.sleep(1)", tmp_path)
    monkeypatch.setattr(subprocess.Popen, "communicate", real)
    assert all(map(is_gone, noted(tmp_path)))
