"""StopRequest, inside this process."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from paddock import process
from paddock.launch.stop import STOPPING, StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_is_noted_and_handlers_come_back(number):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(each) for each in numbers]
    with StopRequest() as stop:
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == number.name
        os.kill(os.getpid(), signal.SIGTERM)  # a repeated SIGTERM must not hurt a checkpoint being written
        assert stop.requested == number.name
    assert [signal.getsignal(each) for each in numbers] == before


def test_what_nohup_started_does_not_hear_of_its_terminal():
    code = (
        "import os, signal\n"
        "from paddock.launch.stop import StopRequest, hold_signals\n"
        "from paddock.process import mortal\n"
        "hold_signals()\n"
        "with mortal():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "with StopRequest() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print(stop.requested)\n"
    )
    shell = f"trap '' HUP; exec {sys.executable} -c \"$0\""
    done = subprocess.run(["sh", "-c", shell, code], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("None\n", "", 0)


def test_a_rank_hears_the_same_interrupt_from_all_sides():
    """Sent to every process of a job, and passed on by the launcher: a rank has it twice, and saves all the same."""
    code = (
        "import os, signal\n"
        "from paddock.launch.stop import StopRequest, hold_signals\n"
        "hold_signals()\n"
        "with StopRequest() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('saved', stop.requested, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("saved SIGINT\n", 0)


def test_second_interrupt_exits_at_once():
    code = (
        "import os, signal\n"
        "from paddock.launch.stop import StopRequest\n"
        "try:\n"
        "    with StopRequest() as stop:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('noted', stop.requested, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('still here', flush=True)\n"
        "finally:\n"
        "    print('unwound', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("noted SIGINT\n", 130)


def test_held_signal_reaches_the_request_that_opens_later():
    code = (
        "import os, signal\n"
        "from paddock.launch import stop\n"
        "stop.hold_signals()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "with stop.StopRequest() as request:\n"
        "    print(request.requested, flush=True)\n"
        "with stop.StopRequest() as request:\n"
        "    print(request.requested, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("SIGTERM\nNone\n", 0)
    assert done.stderr == STOPPING + "\n"


@pytest.mark.parametrize(("rank", "said"), [(None, STOPPING + "\n"), ("0", STOPPING + "\n"), ("1", "")])
def test_one_process_says_that_the_request_was_heard(rank, said):
    code = (
        "import os, signal\n"
        "from paddock.launch.stop import StopRequest\n"
        "with StopRequest():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {} if rank is None else {"RANK": rank}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stderr, done.returncode) == (said, 0)


def test_a_job_that_ends_at_once_has_said_that_it_heard(monkeypatch):
    ended, written = threading.Event(), []

    class Slow:
        """A stream that takes its time; at most until the request is closed."""

        def write(self, text):
            ended.wait(0.5)
            written.append(text)

        def flush(self):
            pass

        def isatty(self):
            return False

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "stderr", Slow())
    with StopRequest():
        os.kill(os.getpid(), signal.SIGTERM)
    said = "".join(written)
    ended.set()
    assert said == STOPPING + "\n"


STUCK = """
import ctypes, sys
from paddock import process
from paddock.launch import stop
process.PATIENCE = 0.5
mutex = ctypes.create_string_buffer(256)
if sys.argv[1] == "held":
    stop.hold_signals()
    open_request = stop.StopRequest
else:
    open_request = stop.StopRequest().__enter__
open_request()
ctypes.CDLL(None).pthread_mutex_lock(mutex)
print("waiting", flush=True)
ctypes.CDLL(None).pthread_mutex_lock(mutex)  # of itself: for ever, and no signal ends it
"""


@pytest.mark.parametrize("how", ["held", "requested"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_hangs_inside_c_is_left(number, how):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", STUCK, how], **pipes)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == 128 + number
    assert errors.endswith(f"{number.name} came, and nothing has moved since: leaving at once, without saving\n")


def test_what_makes_progress_or_saves_is_not_left(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(process.time, "monotonic", lambda: now)
    for name in ("_last_progress", "_longest"):
        monkeypatch.setattr(process, name, 0.0)
    asked, patience = now, process.PATIENCE
    now += patience + 1
    assert process.hangs(asked)
    with process.unhurried():
        now += 100 * patience
        assert not process.hangs(asked)
    assert not process.hangs(asked)
    now += patience + 1
    assert process.hangs(asked)
    process.progress()
    assert not process.hangs(asked)
    now += 10 * patience  # a step may take so long
    process.progress()
    now += 20 * patience
    assert not process.hangs(asked)
    now += 50 * patience
    assert process.hangs(asked)


def test_outside_the_main_thread_it_does_nothing():
    seen = []

    def enter() -> None:
        with StopRequest() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [None]
