"""StopRequest, inside this process."""

import os
import signal
import subprocess
import sys
import threading

import pytest

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
        "from paddock.launch.stop import StopRequest, hold_signals, mortal\n"
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
        """A terminal that takes its time; at most until the request is closed."""

        def write(self, text):
            ended.wait(0.5)
            written.append(text)

        def flush(self):
            pass

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "stderr", Slow())
    with StopRequest():
        os.kill(os.getpid(), signal.SIGTERM)
    said = "".join(written)
    ended.set()
    assert said == STOPPING + "\n"


def test_outside_the_main_thread_it_does_nothing():
    seen = []

    def enter() -> None:
        with StopRequest() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [None]
