"""What this process is at: said by whoever works, and read by those who watch for a hang.

    here.begin("forward and backward of step 12", FORWARD)    # a new piece of work
    here.moved()                                              # it got further, such as by a batch of an evaluation

How long pieces of work take is remembered by their kind, the last ones only: what is slow today is what counts. Saying
so costs nothing, and asks no device. Several threads may: a checkpoint that is written behind training, and the
watchdog.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

BEGINNING, DATA, FORWARD, UPDATE = "beginning", "data", "forward and backward", "update"
EVALUATION, SAVING, CALLBACK = "evaluation", "saving", "callback"
RECENT = 64
"""Pieces of work of a kind whose times are remembered."""


@dataclass(frozen=True)
class Activity:
    """A piece of work, and since when it has not moved."""

    number: int
    """Counts them. Every process of a job goes through the same ones: who has the lowest number is behind."""
    what: str
    kind: str
    since: float
    longest: float | None
    """Seconds that a recent one of this kind took at most; None, if none has been completed."""


class Activities:
    """Those of a process, one after the other."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._changing = clock, threading.Lock()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another run begins in this process: nothing is known of how long its work takes."""
        with self._changing:
            self._times: dict[str, deque[float]] = {}
            self._current = Activity(0, "beginning", BEGINNING, self._clock(), None)

    def begin(self, what: str, kind: str) -> None:
        """The piece of work before has ended, and another one begins."""
        with self._changing:
            self._note_time()
            self._current = Activity(self._current.number + 1, what, kind, self._clock(), self._longest(kind))

    def moved(self) -> None:
        """The piece of work under way has come further."""
        with self._changing:
            self._note_time()
            self._current = replace(self._current, since=self._clock(), longest=self._longest(self._current.kind))

    def forgive(self, seconds: float) -> None:
        """So long this process was stopped, and could not have moved."""
        with self._changing:
            self._current = replace(self._current, since=self._current.since + seconds)

    @property
    def current(self) -> Activity:
        """What is under way; may be asked by another thread."""
        return self._current

    def _note_time(self) -> None:
        times = self._times.setdefault(self._current.kind, deque(maxlen=RECENT))
        times.append(self._clock() - self._current.since)

    def _longest(self, kind: str) -> float | None:
        return max(self._times[kind]) if kind in self._times else None


here = Activities()
"""Those of this process."""
