"""Stopping on request: Ctrl-C, SIGTERM and a closed terminal are noted, and the job looks at the note between steps.

    with StopRequest() as stop:
        while not stop.requested: ...

It must not know what a step is. Ranks may see the request at different steps: a job of several ranks has to
agree (for example by a max over the ranks) before it leaves its loop.

Whoever waits for what never comes does not look. So a thread hears of the signal too, also while the main thread is
inside C++, where no Python handler runs, and ends a process that makes no progress after it (`paddock.process`).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from paddock.process import STOP_SIGNALS, hangs, heard_signals
from paddock.streams import broken_between_words

EXIT_AT_ONCE = 130  # 128 + SIGINT, as shells count
SECONDS_BETWEEN_LOOKS = 0.2
REGROUP = signal.SIGUSR1
"""How a launcher asks its ranks to stop and save because machines have come or gone: the job goes on with others."""
REGROUPING = "a change of machines"
STOPPING = "stopping once what is under way is done and saved; press Ctrl-C again to stop at once"

_held: str | None = None
_has_launcher = False
_saying: threading.Thread | None = None


class StopRequest:
    """While open, the first SIGINT, SIGTERM or SIGHUP sets `requested`; a SIGINT after that exits at once.

    Further others change nothing: schedulers like to repeat them, and a checkpoint may be half written. Nor does a
    second SIGINT in a process that has a launcher: it may be the first one again, sent to all processes and passed on
    by the launcher, who ends them itself when it is asked twice.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._watch: _Watch | None = None

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # nobody else may install handlers
            self._watch = _Watch()
            self._previous = {number: signal.signal(number, self._note) for number in _heard()}
            self.requested = self.requested or _take_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        if self._watch is not None:
            self._watch.close()
        if _saying is not None:
            _saying.join()  # a job that ends at once has still said that it heard

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = _name(number)
            _say_so(self.requested)
        elif number == signal.SIGINT and not _has_launcher:
            os._exit(EXIT_AT_ONCE)


class _Watch:
    """A thread that hears of signals through a pipe, and ends the process if it then hangs."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        signal.set_wakeup_fd(self._before)
        os.write(self._writing, b"\0")
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _listen(self) -> None:
        heard = None
        while heard is None and not self._closed.is_set():
            numbers = os.read(self._reading, 64)
            heard = next((number for number in STOP_SIGNALS if number in numbers), None)
        asked = time.monotonic()
        while heard is not None and not self._closed.wait(SECONDS_BETWEEN_LOOKS):
            if hangs(asked):
                words = f"{heard.name} came, and nothing has moved since: leaving at once, without saving\n"
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, words.encode())
                os._exit(128 + heard)


def hold_signals() -> None:
    """Keep early stop signals for the StopRequest that a starting worker is about to open.

    Without this, a Ctrl-C during the seconds of importing would kill some ranks and spare others. Called in the ranks
    of a launcher of ours.
    """
    global _has_launcher
    _has_launcher = True
    _Watch()  # for as long as the process lives
    for number in _heard():
        signal.signal(number, _hold)


def _hold(number: int, frame: FrameType | None) -> None:
    global _held
    if _held is None:
        _held = _name(number)
        _say_so(_held)


def _heard() -> list[signal.Signals]:
    return [*heard_signals(), *([REGROUP] if _has_launcher else [])]


def _name(number: int) -> str:
    return REGROUPING if number == REGROUP else signal.Signals(number).name


def _take_held() -> str | None:
    global _held
    held, _held = _held, None
    return held


def _say_so(requested: str) -> None:
    """Tell whoever asked that it was heard: a step may take long. One process of a job does.

    From a thread, because the signal may have come in the middle of another print, and through `sys.stderr`, so that
    a live display, if there is one, makes room for it.
    """
    global _saying
    if os.environ.get("RANK", "0") == "0":
        words = f"{REGROUPING}: saving, to go on with them" if requested == REGROUPING else STOPPING
        if sys.stderr.isatty():
            words = broken_between_words(words, shutil.get_terminal_size().columns)
        _saying = threading.Thread(target=lambda: print(words, file=sys.stderr, flush=True), daemon=True)
        _saying.start()
