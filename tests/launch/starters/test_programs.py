"""Several programs as one: who speaks, who hears of a stop, and what is left when one of them fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.errors import MachineError
from paddock.launch.options import LaunchOptions
from paddock.launch.starters import programs
from paddock.launch.starters.programs import Program, run_together
from paddock.launch.starters.simulated import _environment, without_flag
from paddock.testing.processes import is_gone, wait_for


def python(name: str, code: str, *, ends_with_stdin: bool = False) -> Program:
    return Program(name, [sys.executable, "-c", code], {"MARK": name}, ends_with_stdin)


def test_the_first_speaks(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys; print(os.environ['MARK']); print('so', os.environ['MARK'], file=sys.stderr)"
    assert run_together([python("node 0", code), python("node 1", code)]) == 0
    assert capfd.readouterr() == ("node 0\n", "so node 0\n")


def test_what_a_failing_one_said_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """And its exit code: the first one only lost the others, which is a launch error."""
    first, second = python("node 0", "import sys; sys.exit(3)"), python("node 1", "import sys; sys.exit('alas')")
    assert run_together([first, second]) == 1
    assert capfd.readouterr().err == "node 1: alas\n"
    assert run_together([python("node 0", ""), python("node 1", "import os; os.kill(os.getpid(), 9)")]) == 137
    assert "node 1: ended with exit code 137 and said nothing" in capfd.readouterr().err


def test_those_that_go_on_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SECONDS_FOR_THE_OTHERS", 0)
    monkeypatch.setattr(programs, "SECONDS_TO_TERMINATE", 0)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1e6)"
    assert run_together([python("node 0", deaf), python("node 1", "import sys; sys.exit(5)")]) == 5


def test_one_that_has_saved_leaves_the_others_their_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "SECONDS_FOR_THE_OTHERS", 0)
    saved = tmp_path / "saved"
    slow = f"import pathlib, sys, time; time.sleep(1); pathlib.Path({str(saved)!r}).touch(); sys.exit(8)"
    assert run_together([python("node 0", slow), python("node 1", "import sys; sys.exit(8)")]) == 8
    assert saved.exists()


def test_one_that_cannot_be_started_takes_the_others_along() -> None:
    with pytest.raises(MachineError, match="cannot start node 1"):
        run_together([python("node 0", "import time; time.sleep(1e6)"), Program("node 1", ["/no/such/program"])])


PARENT = """
import sys
from paddock.launch.starters.programs import Program, run_together
child = "import os, pathlib, signal, sys; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); "
waits = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(8)); signal.pause()"
reads = "sys.stdin.read(); sys.exit(8)"
code = [child + waits, child + reads]
files = sys.argv[1:]
together = [Program(f, [sys.executable, "-c", c, f], {}, c.endswith(reads)) for f, c in zip(files, code)]
sys.exit(run_together(together))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stop_signal_reaches_all(number: signal.Signals, tmp_path: Path) -> None:
    """As a signal, or as the end of standard input; the latter also when we are killed."""
    files = [tmp_path / "one", tmp_path / "two"]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *map(str, files)], stderr=subprocess.DEVNULL)
    wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    os.kill(parent.pid, number)
    wait_for(lambda: is_gone(files[1].read_text()))
    if number == signal.SIGKILL:
        os.kill(int(files[0].read_text()), signal.SIGKILL)  # a simulated node asks the kernel for this by itself
        assert parent.wait() == -number
    else:
        assert parent.wait() == 8
        assert is_gone(files[0].read_text())


def test_a_command_without_a_flag() -> None:
    words = ["train", "gpt2/tiny", "--simulate-nodes", "2", "--steps", "3"]
    assert without_flag(words, "--simulate-nodes") == ["train", "gpt2/tiny", "--steps", "3"]
    assert without_flag(["--simulate_nodes=2", "--x"], "--simulate-nodes") == ["--x"]


def test_simulated_machines_share_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.launch.starters.simulated.num_cores", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")  # whatever the user has said stays
    seen = _environment(LaunchOptions(nproc_per_node=2, nnodes=2), 1)
    assert seen["OMP_NUM_THREADS"] == "4" and seen["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in seen
