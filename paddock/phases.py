"""What a command is doing while there is nothing else to see of it: starting, preparing data, saving.

On a terminal the words stand in its last line with the cursor at their beginning, so that whatever is printed next, by
this process or another one, takes their place; a live display shows them itself. Elsewhere they are lines. Of several
processes only the first speaks.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_EVERY = 10.0
"""Seconds between two lines about the same work, off a terminal."""
STARTING = "starting"
ERASE = "\x1b[K"


class Phase:
    """One of the things that are being done, inside of each other."""

    def __init__(self, words: str, clock: Callable[[], float]) -> None:
        self.words, self.base, self._clock = words, words, clock
        self._told = clock()
        self.was_told = self.waits = False

    def update(self, done: int, total: int) -> None:
        """So much of it is done."""
        self.words = f"{self.base} {done}/{total}"
        now = self._clock()
        if is_live():
            _draw()
        elif now - self._told >= LINE_EVERY:
            self.tell()

    def tell(self) -> None:
        """A line about it, off a terminal; what it is inside of, and still waits, comes before."""
        self.waits, self._told = False, self._clock()
        for one in [one for one in _phases if one.waits]:
            one.tell()
        if self.words and tells() and not is_live():
            print(self.words, file=sys.stderr, flush=True)
        self.was_told = True


class _BeforeTorch:
    """A finder of modules that finds none: it tells of a phase where torch is looked for, to be imported."""

    def __init__(self, now: Phase) -> None:
        self._now = now

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch" and self._now.waits:
            self._now.tell()


_phases: list[Phase] = []
_displays = 0
_follows = False
"""Whether another machine's launcher tells of the job."""


@contextmanager
def phase(
    words: str, *, at_once: bool = False, with_torch: bool = False, clock: Callable[[], float] = time.monotonic
) -> Iterator[Phase]:
    """Say what is being done, until it is done or something else is shown. Off a terminal that is a line if it takes
    long, or `at_once`, or when torch is imported, which takes seconds: what is wrong with a command line is mostly
    found before."""
    now = Phase(words, clock)
    is_news = all(words != one.base for one in _phases)
    _phases.append(now)
    _draw()
    late = threading.Timer(LINE_EVERY, lambda: None if now.was_told else now.tell())
    late.daemon = True
    now.waits = with_torch and is_news and "torch" not in sys.modules
    finder = _BeforeTorch(now)
    if is_news and (at_once or with_torch) and not now.waits:
        now.tell()
    elif is_news:
        late.start()
    if now.waits:
        sys.meta_path.insert(0, finder)
    try:
        yield now
    finally:
        late.cancel()
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        now.words = ""  # a line that was about to come comes no more
        _phases.remove(now)
        _draw()


def current() -> str:
    """What is being done just now; nothing, where that is no secret."""
    return _phases[-1].words if _phases else ""


def over() -> None:
    """Something else is about to be shown for good: what was said until now is done with."""
    if any(one.words for one in _phases):
        for one in _phases:
            one.words = ""
        _draw()


@contextmanager
def shown_elsewhere() -> Iterator[None]:
    """While a live display has the last lines of the terminal."""
    global _displays
    over()
    _displays += 1
    try:
        yield
    finally:
        _displays -= 1


def is_live() -> bool:
    """Whether standard error can be drawn on."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


@contextmanager
def left_to_machine_0(follows: bool) -> Iterator[None]:
    """On a machine that follows, say nothing of what is being done inside: machine 0 does, for all."""
    global _follows
    before, _follows = _follows, _follows or follows
    try:
        yield
    finally:
        _follows = before


@contextmanager
def starting(node_rank: int = 0, *, at_once: bool = False) -> Iterator[None]:
    """Say so, before torch is imported: that takes seconds in which nothing else is to be seen. `at_once`, where that
    is only after it."""
    with left_to_machine_0(node_rank > 0), phase(STARTING, at_once=at_once, with_torch=not at_once):
        yield


def tells() -> bool:
    """Whether this process says what is being done."""
    return is_main_process() and not _follows


def is_main_process() -> bool:
    """Whether this process is the one of its job that tells people anything."""
    return os.environ.get("RANK", "0") == "0"


def _draw() -> None:
    """The words in the place of those before. The cursor stays in front of them."""
    if _displays or not is_live() or not tells():
        return
    words = current()
    faint, plain = ("", "") if os.environ.get("NO_COLOR") else ("\x1b[2m", "\x1b[0m")
    room = shutil.get_terminal_size().columns - 4
    sys.stderr.write(f"{ERASE}{faint}{words[:room]} …{plain}\r" if words else ERASE)
    sys.stderr.flush()
