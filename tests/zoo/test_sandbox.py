"""Scripts that never end, fork, fill the disk or the screen, look for secrets: each is ended, and leaves nobody behind.

The scripts are a few lines without torch. Limits are small; none is one that a slow machine would reach by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.testing.processes import is_gone, wait_for
from paddock.zoo.sandbox import (
    PR_GET_DUMPABLE,
    Limits,
    Outcome,
    clean_environment,
    closed_to_others,
    run_in_sandbox,
)
from paddock.zoo.supervisor import written

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


FILES_ELSEWHERE = """
for number in range(20):
    with open(f"{folder}/{number}", "wb") as stream:
        stream.write(b"x" * 2**20)
"""
"""Written in no time, and nobody waits for anybody to look."""


@pytest.fixture
def memory_for_all() -> Iterator[Path]:
    """A name that nothing has yet in the folder that everybody shares and that is held in memory."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm that this user may write to")
    folder = Path("/dev/shm") / f"paddock-tests-{os.getpid()}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_one_that_fills_what_everybody_shares(tmp_path: Path, memory_for_all: Path) -> None:
    code = f"import os\nfolder = {str(memory_for_all)!r}\nos.mkdir(folder)\n"
    outcome, _ = run(code + FILES_ELSEWHERE, tmp_path, replace(SMALL, disk=2**22))
    assert outcome.ended == "disk" and outcome.disk > 2**22


def test_one_that_fills_it_with_files_without_names(tmp_path: Path, memory_for_all: Path) -> None:
    code = f"""
import os, time
os.mkdir({str(memory_for_all)!r})
kept = []
while True:
    kept.append(open({str(memory_for_all / "x")!r}, "wb", buffering=0))
    os.unlink(kept[-1].name)
    kept[-1].write(b"x" * 2**20)
    time.sleep(0.02)
"""
    outcome, _ = run(code, tmp_path, replace(SMALL, disk=2**22))
    assert outcome.ended == "disk"


def test_one_that_fills_another_folder_of_a_disk(tmp_path: Path) -> None:
    before = written("self")[0]
    (tmp_path / "probe").write_bytes(b"x" * 2**20)
    if written("self")[0] - before < 2**20:
        pytest.skip("temporary files are on no disk here, or the kernel does not count what is written")
    (tmp_path / "elsewhere").mkdir()
    code = f"folder = {str(tmp_path / 'elsewhere')!r}\n"
    outcome, _ = run(code + FILES_ELSEWHERE, tmp_path, replace(SMALL, disk=2**22))
    assert outcome.ended == "disk" and outcome.disk > 2**22


def test_what_goes_to_no_file_is_no_file(tmp_path: Path) -> None:
    """A program says much to its own processes, to others and to nobody."""
    code = """
import os, threading
reading, writing = os.pipe()
threading.Thread(target=lambda: [os.read(reading, 2**20) for _ in iter(int, 1)], daemon=True).start()
with open("/dev/null", "wb") as nothing:
    for _ in range(20):
        nothing.write(b"x" * 2**20)
        os.write(writing, b"x" * 2**20)
print("x" * 2**19)
"""
    outcome, _ = run(code, tmp_path, replace(SMALL, disk=2**22))
    assert (outcome.status, outcome.ended) == (0, None) and outcome.disk < 2**22


def test_what_others_write_is_not_blamed_on_it(tmp_path: Path, memory_for_all: Path) -> None:
    """Much is new in a folder that everybody shares, and the script has not written that much to anything."""

    def write() -> None:
        wait_for(lambda: bool(noted(tmp_path)))
        memory_for_all.mkdir()
        (memory_for_all / "of_others").write_bytes(b"x" * 2**24)
        (tmp_path / "sandbox" / "go").touch()

    writer = threading.Thread(target=write)
    writer.start()
    code = NOTE + "while not os.path.exists('go'):\n    time.sleep(0.01)\nopen('log', 'wb').write(b'x' * 3 * 2**20)"
    outcome, _ = run(code, tmp_path, replace(SMALL, disk=2**22))
    writer.join()
    assert (outcome.status, outcome.ended) == (0, None)


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
    _, printed = run("import json, os; print(json.dumps(dict(os.environ)))", tmp_path, variables=("TOOLKIT_HOME",))
    assert "correct horse" not in printed and "AWS_SECRET_ACCESS_KEY" not in printed
    own = json.loads(printed)
    sandbox = str(tmp_path / "sandbox")
    assert all(own[name].startswith(sandbox) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"))
    assert own["TOOLKIT_HOME"] == "somewhere"


LOOK_AROUND = """
import os
for name in filter(str.isdecimal, os.listdir("/proc")):
    if int(name) != os.getpid():
        for file in ("environ", "maps"):
            try:
                with open(f"/proc/{name}/{file}", "rb") as stream:
                    print(name, file, b"SECRET" in stream.read())
            except OSError:
                pass
"""
CHECKER = """
import os, sys
from pathlib import Path
sandbox = Path(sys.argv[1])
from paddock.zoo.sandbox import Limits, run_in_sandbox
limits = Limits(memory=2**30, disk=2**24, output=2**20)
outcome, printed = run_in_sandbox([sys.executable, "script.py"], sandbox, sandbox, limits)
print(os.getpid())
print(printed)
"""


def test_the_environment_of_the_check_cannot_be_read(tmp_path: Path) -> None:
    """Nor its memory, whether it runs as root or as somebody else. It is a process of its own: what it was started with
    is what the kernel shows to others."""
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    secret = f"correct horse {os.getpid()}"
    (sandbox / "script.py").write_text(LOOK_AROUND.replace("SECRET", secret))
    done = subprocess.run(
        [sys.executable, "-c", CHECKER, str(sandbox)],
        env={**os.environ, "AWS_SECRET_ACCESS_KEY": secret},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    checker, *seen = done.stdout.split("\n")
    assert checker.isdecimal() and not [line for line in seen if line.startswith(f"{checker} ") or "True" in line]


def test_the_check_is_closed_while_a_script_runs_and_open_before_and_after() -> None:
    kernel = ctypes.CDLL(None)
    assert kernel.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1
    with pytest.raises(KeyError), closed_to_others():
        assert kernel.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
        raise KeyError
    assert kernel.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1


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
