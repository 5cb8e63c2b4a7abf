"""What a run is at while a step takes long, told where no bar shows that it lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paddock.activity import Activities, here
from paddock.phases import LINE_EVERY, current
from paddock.telemetry.format import duration

TIMES_THE_LAST = 2
"""A step is long if it takes so many times what the one before took."""


class LongSteps:
    """Tells by a thread of its own what is under way and for how long, when nothing else has been told for a while.

    The next time it waits twice as long: a step of an hour has ten lines. What is told of as a phase, such as an
    evaluation, tells of itself. No device is asked.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        activities: Activities = here,
        every: float = LINE_EVERY,
    ) -> None:
        self._say, self._clock, self._activities, self._every = say, clock, activities, every
        self._step_began = self._heard = clock()
        self._patience = every
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="long steps", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def heard(self) -> None:
        """Something else has been told just now."""
        self._heard = self._clock()

    def step_ended(self) -> None:
        """A step took as long as it took, and so may the next one."""
        now = self._clock()
        self._patience = max(self._every, TIMES_THE_LAST * (now - self._step_began))
        self._step_began = self._heard = now

    def look(self) -> None:
        """Tell what is under way, if it is time."""
        now = self._clock()
        if now - self._heard < self._patience or current():
            return
        activity = self._activities.current
        self._heard, self._patience = now, 2 * self._patience
        self._say(f"{activity.what}: {duration(round(now - activity.since))} so far")

    def close(self) -> None:
        """Tell nothing more."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._every):
            self.look()
