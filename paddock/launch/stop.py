"""Stopping on request: Ctrl-C, SIGTERM and a closed terminal are noted, and the job looks at the note between steps.

    with StopRequest() as stop:
        while not stop.requested: ...

It must not know what a step is. Ranks may see the request at different steps: a job of several ranks has to
agree (for example by a max over the ranks) before it leaves its loop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

# A process that nohup started ignores a closed terminal, and goes on doing so.
_OUTLIVES_TERMINAL = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *(() if _OUTLIVES_TERMINAL else (signal.SIGHUP,)))
EXIT_AT_ONCE = 130  # 128 + SIGINT, as shells count
STOPPING = "stopping once what is under way is done and saved; press Ctrl-C again to stop at once"

_held: str | None = None
_saying: threading.Thread | None = None


class StopRequest:
    """While open, the first SIGINT, SIGTERM or SIGHUP sets `requested`; a SIGINT after that exits at once.

    Further others change nothing: schedulers like to repeat them, and a checkpoint may be half written.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # nobody else may install handlers
            self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
            self.requested = self.requested or _take_held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        if _saying is not None:
            _saying.join()  # a job that ends at once has still said that it heard

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(number).name
            _say_so()
        elif number == signal.SIGINT:
            os._exit(EXIT_AT_ONCE)


@contextmanager
def mortal() -> Iterator[None]:
    """While waiting for other machines inside C++, where no Python handler runs: Ctrl-C just ends us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def hold_signals() -> None:
    """Keep early stop signals for the StopRequest that a starting worker is about to open.

    Without this, a Ctrl-C during the seconds of importing would kill some ranks and spare others.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _hold)


def _hold(number: int, frame: FrameType | None) -> None:
    global _held
    if _held is not None and number == signal.SIGINT:
        os._exit(EXIT_AT_ONCE)
    if _held is None:
        _held = signal.Signals(number).name
        _say_so()


def _take_held() -> str | None:
    global _held
    held, _held = _held, None
    return held


def _say_so() -> None:
    """Tell whoever asked that it was heard: a step may take long. One process of a job does.

    From a thread, because the signal may have come in the middle of another print, and through `sys.stderr`, so that
    a live display, if there is one, makes room for it.
    """
    global _saying
    if os.environ.get("RANK", "0") == "0":
        _saying = threading.Thread(target=lambda: print(STOPPING, file=sys.stderr, flush=True), daemon=True)
        _saying.start()
