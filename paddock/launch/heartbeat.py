"""What every rank tells the others of itself while it trains, how long it may take, and what is seen from it.

Pure: no thread, no store, and no clock of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from paddock.activity import BEGINNING, DATA, FORWARD, UPDATE, Activity

FLOOR = 300.0
"""Seconds that no step is denied, however quick those before it were."""
TIMES_THE_LONGEST = 10
GENEROUS = 1800.0
"""Seconds for what has not been seen yet (a first step compiles), and for what may take any time: evaluations,
checkpoints, callbacks."""
Setting = Literal["auto"] | float


def allowance(activity: Activity, setting: Setting) -> float:
    """Seconds that a piece of work may go without moving."""
    if activity.kind == BEGINNING:
        return math.inf  # weights and data of any size
    learnt = TIMES_THE_LONGEST * (activity.longest or 0.0)
    if activity.kind not in (DATA, FORWARD, UPDATE) or activity.longest is None:
        return max(GENEROUS, learnt)
    return max(FLOOR, learnt) if setting == "auto" else setting


def longest_silence(setting: Setting) -> float:
    """Seconds without a heartbeat after which a rank is taken to be frozen, whatever it is at: a thread tells it."""
    return FLOOR if setting == "auto" else setting


@dataclass(frozen=True)
class Heartbeat:
    """What a rank last told of itself."""

    rank: int
    host: str
    pid: int
    count: int
    """Of its heartbeats."""
    number: int
    """Of its activity, which tells who is behind."""
    what: str
    age: float
    """Seconds since that moved."""
    overdue: bool
    stack: list[str] = field(default_factory=list)
    """Where its main thread is, the innermost call last."""
    has_ended: bool = False
    has_dumped: bool = False
    """Whether its stacks are on the disk."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Heartbeat:
        return cls(**json.loads(text))

    @property
    def waits(self) -> bool:
        """Whether its main thread is in a collective, waiting for others."""
        return any("torch/distributed/" in line.replace("\\", "/") for line in self.stack[-4:])


class Silence:
    """How long nothing new has been heard of each rank, by this process's own clock."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, float]] = {}

    def of(self, beat: Heartbeat, now: float) -> float:
        """Seconds since a heartbeat of this rank was a new one."""
        count, since = self._heard.get(beat.rank, (-1, now))
        if count != beat.count:
            self._heard[beat.rank] = beat.count, now
            return 0.0
        return 0.0 if beat.has_ended else now - since

    def forget(self) -> None:
        """Nothing could be heard for a while."""
        self._heard.clear()


def never_arrived(beats: Sequence[Heartbeat], silent: Sequence[int]) -> list[int]:
    """The ranks that the others wait for: frozen ones; else those that are behind; else those that are in no
    collective. None, if that does not tell them from the others."""
    if silent:
        return list(silent)
    present = [beat for beat in beats if not beat.has_ended]
    least = min((beat.number for beat in present), default=0)
    behind = [beat.rank for beat in present if beat.number == least]
    if len(behind) == len(present):
        behind = [beat.rank for beat in present if not beat.waits]
    return behind if len(behind) < len(present) else []
