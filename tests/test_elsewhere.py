"""`make test-elsewhere` tests what it says, and leaves nobody behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from paddock.testing.processes import is_gone, wait_for

PROGRAM = Path(__file__).with_name("elsewhere.py")
TEST = """
import json, os, pathlib, time

def test_it():
    beside = pathlib.Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    seen = os.getpid(), os.environ["ATEN_CPU_CAPABILITY"], [int(pid) for pid in beside]
    pathlib.Path("seen.partial").write_text(json.dumps(seen))
    os.rename("seen.partial", "seen")
    while os.environ["HOW"] == "wait":
        time.sleep(0.02)
    assert os.environ["HOW"] != "fail"
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are read from /proc")


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(TEST)
    command = [sys.executable, str(PROGRAM), "--rootdir", str(folder), "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"HOW": how},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )


def seen(folder: Path) -> tuple[int, str, list[int]]:
    """The process of the tests, what torch would compute with there, and all children of the program."""
    process, capability, children = json.loads((folder / "seen").read_text())
    return process, capability, children


@pytest.mark.parametrize(("how", "code"), [("", 0), ("fail", 1)])
def test_without_newer_instructions_beside_two_others(tmp_path: Path, how: str, code: int) -> None:
    assert start(tmp_path, how).wait() == code
    tests, capability, children = seen(tmp_path)
    assert capability == "default"
    assert len(children) == 3 and tests in children
    assert all(is_gone(pid) for pid in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_when_it_is_ended_the_others_end(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "wait")
    try:
        wait_for(lambda: (tmp_path / "seen").exists() or process.poll() is not None)
        tests, _, children = seen(tmp_path)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait() != 0
        wait_for(lambda: all(is_gone(pid) for pid in children if number != signal.SIGKILL or pid != tests))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_no_test_waits_by_the_clock() -> None:
    """A busy machine is not a defect: what hangs is ended by pytest's own limit, which is wide."""
    here = Path(__file__).parent
    words = re.compile(r"(run|communicate|wait|join|get|Popen|check_output)\([^#\n]*\btimeout=")
    found = [
        f"{path.relative_to(here)}:{number}"
        for path in sorted(here.rglob("test_*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if words.search(line)
    ]
    assert found == []
