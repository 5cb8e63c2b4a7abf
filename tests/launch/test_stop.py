"""StopRequest, inside this process."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from paddock.launch.stop import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_noted_and_handlers_come_back(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == number.name
        os.kill(os.getpid(), signal.SIGTERM)  # a repeated SIGTERM must not hurt a checkpoint being written
        assert stop.requested == number.name
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


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
        "import os, signal, time\n"
        "from paddock.launch import stop\n"
        "stop.HOLD_SECONDS = 1\n"
        "stop.hold_signals()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "with stop.StopRequest() as request:\n"
        "    print(request.requested, flush=True)\n"
        "    time.sleep(1.5)\n"  # the alarm is off
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(30)\n"  # nobody opens a request: the alarm ends it
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("SIGTERM\n", -signal.SIGALRM)


def test_outside_the_main_thread_it_does_nothing():
    seen = []

    def enter() -> None:
        with StopRequest() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [None]
