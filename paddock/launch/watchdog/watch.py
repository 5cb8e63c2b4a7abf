"""The hang watchdog: every rank tells what it is at, and a job in which nothing moves is ended, with the reason.

A thread of each rank writes a heartbeat to the job's store, over a connection of its own; the device is never asked. A
rank watches the heartbeat of the next one, so that a frozen process is noticed by another. One that is itself overdue
looks at all of them: the job hangs when all are overdue, and not before, for whoever still may be busy is only slow.
Then every rank writes its stacks to the run's `errors/`, all say the same in one summary, and they end with exit
code 6.

The store may be what is frozen. So a second thread, which talks to nobody, ends a rank that is overdue and cannot
reach it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from torch.distributed import PrefixStore, Store

from paddock.activity import Activities, here
from paddock.errors import HangError
from paddock.launch import failure
from paddock.launch.watchdog.hang_report import all_stacks, collectives, hang_error, main_stack
from paddock.launch.watchdog.heartbeat import Heartbeat, Setting, Silence, allowance, longest_silence
from paddock.parallel.reach import reach
from paddock.parallel.rendezvous import place_in_job
from paddock.parallel.world import World
from paddock.process import is_ours

SECONDS_BETWEEN_BEATS = 1.0
BEATS_IN_A_LIMIT = 5
"""At least, where the limit is a short one."""
RANKS_ASKED_IN_A_SECOND = 100
"""By each that is overdue: those of a large job look at all heartbeats less often."""
STOPPED_AFTER = 10.0
"""Seconds that a thread which waits for one was away: the whole process was stopped, and goes on."""
SECONDS_FOR_THE_OTHERS = 5.0
"""Until all ranks have written what they were at."""
VERDICT = "verdict"


class Watchdog:
    """One rank's part. `tick` is what its thread does again and again, and `look_at_self` what the other does."""

    def __init__(
        self,
        setting: Setting,
        rank: int,
        size: int,
        store: Store | None,
        end: Callable[[HangError, str, bool], None],
        *,
        errors: Path,
        activities: Activities = here,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`end` is called with what to say, the stacks, and whether this rank is the first of those that can speak; it
        does not return, but in tests. A job of one process has no store."""
        self._setting, self._rank, self._size, self._store = setting, rank, size, store
        self._end, self._errors, self._activities, self._clock, self._wait = end, errors, activities, clock, wait
        self._host, self._silence, self._count = socket.gethostname(), Silence(), 0
        self.interval = min(SECONDS_BETWEEN_BEATS, longest_silence(setting) / BEATS_IN_A_LIMIT)
        self._awake = self._heard = self._asked_all = clock()
        self._waking = threading.Lock()
        self._lost_store = ""

    def tick(self) -> None:
        """Tell of this rank, and look at what others tell."""
        self._forgive_a_stop()
        if self._store is None:
            self._heard = self._clock()
            if (alone := self._beat()).overdue:
                self._conclude([alone], {})
            return
        mine = self._tell()
        if self._store.check([VERDICT]):
            self._follow_verdict()
            return
        following = self._read((self._rank + 1) % self._size)
        now = self._heard = self._clock()
        silence = self._silence.of(following, now)
        is_silent = silence > longest_silence(self._setting)
        if is_silent or (mine.overdue and self._all_are_overdue()):
            # The first one's word counts, so that all say the same.
            self._store.compare_set(VERDICT, "", json.dumps({following.rank: silence} if is_silent else {}))
            self._follow_verdict()

    def look_at_self(self) -> None:
        """What is left where the store does not answer; and a process that was stopped as a whole is forgiven."""
        self._forgive_a_stop()
        if self._clock() - self._heard > longest_silence(self._setting) and (alone := self._beat()).overdue:
            self._conclude([alone], {}, self._lost_store or "the job's store does not answer")

    def _forgive_a_stop(self) -> None:
        """Whichever thread wakes first finds that both were away, and so the whole process."""
        with self._waking:
            now = self._clock()
            away, self._awake = now - self._awake, now
            if away > STOPPED_AFTER + self.interval:
                self._activities.forgive(away)
                self._silence.forget()
                self._heard = now

    def lose_store(self, error: Exception) -> None:
        """Whoever kept the store has gone. Training goes on without, and so does the watch over this rank alone."""
        self._lost_store = f"the job's store has gone ({(str(error).splitlines() or [''])[0]})"

    def say_goodbye(self) -> None:
        """This rank is done, and not to be waited for."""
        if self._store is not None and not self._lost_store:
            self._tell(has_ended=True)

    def _beat(self, has_ended: bool = False, has_dumped: bool = False) -> Heartbeat:
        current = self._activities.current
        age = self._clock() - current.since
        self._count += 1
        return Heartbeat(
            rank=self._rank,
            host=self._host,
            pid=os.getpid(),
            count=self._count,
            number=current.number,
            what=current.what,
            age=age,
            overdue=age > allowance(current, self._setting),
            stack=main_stack(),
            has_ended=has_ended,
            has_dumped=has_dumped,
        )

    def _tell(self, has_ended: bool = False, has_dumped: bool = False) -> Heartbeat:
        assert self._store is not None
        beat = self._beat(has_ended, has_dumped)
        self._store.set(f"rank{self._rank}", beat.to_json())
        return beat

    def _read(self, rank: int) -> Heartbeat:
        assert self._store is not None
        return Heartbeat.from_json(self._store.get(f"rank{rank}"))

    def _read_all(self) -> list[Heartbeat]:
        assert self._store is not None
        return [Heartbeat.from_json(told) for told in self._store.multi_get([f"rank{n}" for n in range(self._size)])]

    def _all_are_overdue(self) -> bool:
        now = self._clock()
        if now - self._asked_all < self._size / RANKS_ASKED_IN_A_SECOND:
            return False
        self._asked_all = now
        patience = longest_silence(self._setting)
        return all(
            beat.overdue or beat.has_ended or self._silence.of(beat, now) > patience for beat in self._read_all()
        )

    def _follow_verdict(self) -> None:
        """The job hangs: keep what this rank is at, and give the others the time to do so."""
        assert self._store is not None
        unheard, stacks = json.loads(self._store.get(VERDICT)), _kept()
        self._tell(has_dumped=True)
        beats, began = self._read_all(), self._clock()
        counts = {beat.rank: beat.count for beat in beats}
        while not all(map(_has_answered, beats)) and self._clock() - began <= SECONDS_FOR_THE_OTHERS:
            self._wait(0.05)
            try:
                beats = self._read_all()
            except RuntimeError:  # whoever keeps the store has heard all, and is ending
                break
        waited = self._clock() - began > SECONDS_FOR_THE_OTHERS
        silent = {
            beat.rank: unheard.get(str(beat.rank), SECONDS_FOR_THE_OTHERS)
            for beat in beats
            if waited and not _has_answered(beat) and beat.count == counts[beat.rank]
        }
        self._conclude(beats, silent, stacks=stacks)

    def _conclude(self, beats: list[Heartbeat], silent: dict[int, float], store: str = "", stacks: str = "") -> None:
        speaks = self._rank == min(beat.rank for beat in beats if not (beat.has_ended or beat.rank in silent))
        self._end(hang_error(beats, silent, self._errors, store), stacks or _kept(), speaks)


def _has_answered(beat: Heartbeat) -> bool:
    return beat.has_dumped or beat.has_ended


def _kept() -> str:
    return f"{all_stacks()}\n--- collectives, as torch's flight recorder has them ---\n{collectives()}\n"


@contextmanager
def watching(setting: Setting | None, world: World, run_dir: Path) -> Iterator[None]:
    """Watch over the job while this lasts; entered by all ranks together. None watches over nothing, and neither does
    auto in somebody's own program or notebook that trains alone: a debugger may hold it, and its end is not ours."""
    here.begin_anew()
    if setting is None or (setting == "auto" and world.size == 1 and not is_ours()):
        yield
        return
    place, store = place_in_job(), None
    if world.size > 1:
        name = world.broadcast(uuid4().hex)  # nothing that was told in an earlier run or attempt is heard
        store = PrefixStore(f"paddock/watchdog/{name}", reach(place))
    errors = run_dir / "errors"
    watchdog = Watchdog(setting, world.rank, world.size, store, _ending(world.rank, errors), errors=errors)
    if store is not None:
        watchdog._tell()
        world.barrier()  # everybody has told something: nobody waits for a word
    over = threading.Event()
    threads = [
        threading.Thread(target=_beating, args=(watchdog, over), name="heartbeat", daemon=True),
        threading.Thread(target=_looking, args=(watchdog, over), name="watchdog", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(SECONDS_FOR_THE_OTHERS)  # or it waits for a store that does not answer


def _beating(watchdog: Watchdog, over: threading.Event) -> None:
    try:
        while not over.wait(watchdog.interval):
            watchdog.tick()
        watchdog.say_goodbye()
    except RuntimeError as error:  # torch's DistError is one
        watchdog.lose_store(error)


def _looking(watchdog: Watchdog, over: threading.Event) -> None:
    while not over.wait(watchdog.interval):
        watchdog.look_at_self()


def _ending(rank: int, errors: Path) -> Callable[[HangError, str, bool], NoReturn]:
    """How a rank ends. A launcher of ours tells the error; without one, the first rank does."""

    def end(error: HangError, stacks: str, speaks: bool) -> NoReturn:
        text, reports = f"{error}\n\n{stacks}", failure.own_reports
        code = failure.record(error, rank, errors=errors, reports=reports, traceback=text)
        if reports is None and speaks:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"error: {error}\n".encode())
        os._exit(code)

    return end
