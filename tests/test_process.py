"""Our own processes and other people's: what is tuned, what is left alone, and how a process ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paddock import process
from paddock.devices import prepare
from paddock.devices.cpu import CPU, CpuAdapter
from paddock.parallel.world import join_world

ENDING = """
import atexit, sys
from paddock.process import claim, leave

class Torn:
    def __del__(self):
        print("torn down")

claim()
torn = Torn()
atexit.register(print, "registered", end=" ")
sys.stdout.write("written ")
"""


def end(last_line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", ENDING + last_line], capture_output=True, text=True)


def test_a_good_end_runs_what_is_registered_and_takes_nothing_down() -> None:
    done = end("leave(0)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "written registered ", "")


def test_a_failed_process_waits_for_nothing() -> None:
    done = end("leave(5)")
    assert (done.returncode, done.stdout, done.stderr) == (5, "written ", "")


@pytest.mark.parametrize(("last_line", "code"), [("1 / 0", 1), ("sys.exit(4)", 4), ("pass", 0)])
def test_a_process_that_ends_by_itself_is_left_alone(last_line: str, code: int) -> None:
    done = end(last_line)
    assert (done.returncode, done.stdout) == (code, "written registered torn down\n")


@pytest.mark.parametrize("ours", [True, False])
def test_only_processes_of_ours_are_tuned(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[CpuAdapter] = []
    monkeypatch.setattr(CpuAdapter, "prepare", lambda adapter: tuned.append(adapter))
    monkeypatch.setattr(process, "_is_ours", ours)
    prepare(CPU)
    with join_world(CPU):
        pass
    assert tuned == ([CPU, CPU] if ours else [])


def test_a_library_call_neither_claims_the_process_nor_changes_its_environment() -> None:
    code = """
import os
before = dict(os.environ)
import paddock, paddock.cli.main, paddock.trainer, paddock.launch.worker
from paddock import process
paddock.cli.main.run(["version"])
print(process.is_ours(), dict(os.environ) == before)
"""
    clean = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.split("\n")[1] == "False True"


def test_the_command_claims_its_process_before_pydantic_is_imported() -> None:
    code = """
import atexit, os, sys
import paddock.cli.main
assert "pydantic" not in sys.modules
from paddock import process
atexit.register(lambda: print(process.is_ours(), os.environ["PYDANTIC_DISABLE_PLUGINS"]))
paddock.cli.main.main(["version"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[1] == "True __all__"
