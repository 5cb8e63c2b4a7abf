"""Who takes part in the next attempt of a job, and whether there is one: decided in one place, from what machines say.

Every launcher posts a word about itself, again and again; the council looks at all of them and gives orders. It asks no
network and no clock but the one that it is handed, so that machines may disagree about the time. A machine that falls
silent is lost; one that comes again is welcome. Restarts are counted here and nowhere else, so that none is forgotten
because a machine was quick to come back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from paddock.errors import ConfigError, DataError, MachineError, bad_value
from paddock.messages import error_to_json

SECONDS_TO_MEET = 900
FINAL = (ConfigError.exit_code, DataError.exit_code)
"""Of errors that another attempt would only meet again."""
BEATS_OF_LIFE = 3
"""More than what may still be on its way from a machine that has gone."""
Kind = Literal["done", "stopped", "signal", "failed", "ended"]
Phase = Literal["gathering", "working", "ending", "over"]


@dataclass(frozen=True)
class Policy:
    """What the user wants of a job."""

    counts: tuple[int, ...]
    """Numbers of machines on which it can work, ascending."""
    max_restarts: int = 0
    timeout: float = 30.0
    """Seconds of silence after which a machine is lost."""
    elastic: bool = False
    """Machines come and go, and have no numbers of their own."""
    name: str = ""
    """Of an elastic job: what tells it from others."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """What is to be done, where machines may be replaced: it tells one of this job from a stranger."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Policy:
        told = json.loads(text)
        return Policy(**{**told, "counts": tuple(told["counts"])})


@dataclass(frozen=True)
class Ending:
    """How an attempt ended on one machine."""

    kind: Kind
    """`stopped`: asked to, and saved; `signal`: asked to, with nothing saved; `ended`: because of the others."""
    error: dict[str, Any] | None = None
    remoteness: int = 0
    """As in `failure`: 2 for one that only lost a peer."""
    signature: str = ""
    """The error, without what differs from one attempt to the next."""
    step: int = 0
    """The last one that was done; 0 if none was, in this attempt."""
    stops_all: bool = False
    """The user wants the whole job to stop, and not just this machine."""


@dataclass(frozen=True)
class Word:
    """What a machine says of itself."""

    name: str
    machine: int | None
    """Its --node-rank, if it has one."""
    processes: int
    beat: int = 0
    phase: Literal["here", "ready", "working", "ended", "left"] = "ready"
    round: int = 0
    ending: Ending | None = None
    leaves: bool = False
    """It was asked to go, and the others may go on without it."""
    keeps: bool = False
    """It has started the process in which the council sits."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Word:
        said = json.loads(text)
        return Word(**{**said, "ending": said["ending"] and Ending(**said["ending"])})


@dataclass(frozen=True)
class Orders:
    """What all machines are to do."""

    round: int = 0
    phase: Phase = "gathering"
    members: dict[str, int] = field(default_factory=dict)
    """The places of those who take part, by the keys under which they speak."""
    saves: bool = False
    """Stop at the end of the step, save, and come again: the machines are to be more or fewer."""
    restarts: int = 0
    cause: str = ""
    """Why there is another round."""
    waits_for: str = ""
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Errors of machines that cannot take part."""
    error: dict[str, Any] | None = None
    """What ended the job, if it went wrong."""
    by: str | None = None
    """The machine on which it did."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Orders:
        return Orders(**json.loads(text))


class Council:
    """Looks at what machines say, and decides."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.orders = Orders()
        self._words: dict[str, Word] = {}
        self._heard: dict[str, float] = {}
        self._beats_before: dict[str, dict[str, int]] = {}
        """How often each machine had been heard when another one came."""
        self._lost: set[str] = set()
        self._failed: list[str] = []
        """Members whose attempt failed, in the order in which they said so."""
        self._gone: list[str] = []
        """Machines that were lost in this round, though they may have come again."""
        self._last_failure: tuple[int, str] | None = None
        self._fruitless = self._furthest = 0
        """Attempts before this one, one after the other, that came no further than step `_furthest`."""
        self._changed = self._began_gathering = 0.0
        self._looked: float | None = None

    @property
    def all_have_left(self) -> bool:
        """Whether nobody is there any more who may ask for orders."""
        return all(key in self._lost or word.phase == "left" for key, word in self._words.items())

    def look(self, now: float, words: Mapping[str, Word]) -> Orders:
        """Orders after what has been said by `now`."""
        self._hear(now, words)
        self._refuse_misfits()
        if self.orders.phase == "working":
            self._follow_work(now)
        if self.orders.phase == "ending":
            self._await_the_end(now)
        if self.orders.phase == "gathering":
            self._gather(now)
        return self.orders

    def lose(self, key: str) -> None:
        """Take a machine for lost at once: its end was seen."""
        self._lost.add(key)

    def _hear(self, now: float, words: Mapping[str, Word]) -> None:
        if self._looked is None:
            self._began_gathering = now
        elif (away := now - self._looked) > self.policy.timeout / 2:
            # The council itself was frozen, or very slow: nobody could be heard meanwhile.
            self._heard = {key: moment + away for key, moment in self._heard.items()}
        self._looked = now
        for key, word in words.items():
            before = self._words.get(key)
            if before is None or before.beat != word.beat:
                self._heard[key] = now
                self._lost.discard(key)
            elif now - self._heard[key] > self.policy.timeout:
                self._lost.add(key)
            if before is None:
                self._beats_before[key] = {other: one.beat for other, one in self._words.items()}
            if before is None or before.phase != word.phase:
                self._changed = now
            self._words[key] = word

    def _is_here(self, key: str) -> bool:
        return key not in self._lost and key not in self.orders.refused and self._words[key].phase != "left"

    def _refuse_misfits(self) -> None:
        here = [key for key in self._words if self._is_here(key)]
        for key in here[1:]:
            word, first = self._words[key], self._words[here[0]]
            error = None
            if word.processes != first.processes:
                why = f"{first.name} has {first.processes}, and all machines of a job have as many"
                error = bad_value("--nproc-per-node", word.processes, why, f"--nproc-per-node {first.processes}")
            elif word.machine is not None and (twin := self._living_twin(key)) is not None:
                error = bad_value("--node-rank", word.machine, f"{twin} has it too", "give every machine its own")
            if error is not None:
                self._give(refused=self.orders.refused | {key: error_to_json(error)})

    def _living_twin(self, key: str) -> str | None:
        """The machine that came earlier with the same number and is still heard. One that has been started anew also
        has its predecessor's number, but that one says nothing any more."""
        for other, beat in self._beats_before[key].items():
            word = self._words[other]
            if word.machine == self._words[key].machine and self._is_here(other) and word.beat > beat + BEATS_OF_LIFE:
                return word.name
        return None

    def _follow_work(self, now: float) -> None:
        members = self.orders.members
        for key in members:
            ending = self._ending(key)
            if ending is not None and ending.kind == "failed" and key not in self._failed:
                self._failed.append(key)
        if any(key in self._lost or self._is_broken(key) for key in members):
            self._gone = [self._words[key].name for key in members if key in self._lost]
            self._give(phase="ending")
        elif all(self._ending(key) for key in members):
            self._end_of_work(now)
        elif self.policy.elastic and not self.orders.saves:
            come = [key for key in self._ready() if key not in members]
            larger = self._count_for(len(members) + len(come))
            if larger is not None and larger > len(members):
                self._give(saves=True, cause=f"{self._words[come[0]].name} has come")

    def _is_broken(self, key: str) -> bool:
        ending = self._ending(key)
        return not self._is_here(key) if ending is None else ending.kind in ("failed", "signal", "ended")

    def _ending(self, key: str) -> Ending | None:
        """How the attempt under way ended for a member, if it did."""
        word = self._words[key]
        return word.ending if word.round == self.orders.round else None

    def _end_of_work(self, now: float) -> None:
        """All have ended as they should."""
        words = [self._words[key] for key in self.orders.members]
        stopped = any(word.ending is not None and word.ending.kind == "stopped" for word in words)
        gone = [word.name for word in words if word.leaves]
        stops_all = any(word.ending is not None and word.ending.stops_all for word in words)
        if stopped and self.policy.elastic and not stops_all and (self.orders.saves or gone):
            self._after_change(now, self.orders.cause or f"{' and '.join(gone)} has been stopped")
        else:
            self._give(phase="over")

    def _await_the_end(self, now: float) -> None:
        for key in self.orders.members:
            ending = self._ending(key)
            if ending is not None and ending.kind == "failed" and key not in self._failed:
                self._failed.append(key)
        for key in self.orders.members:
            if key in self._lost and self._words[key].name not in self._gone:
                self._gone.append(self._words[key].name)
        if all(self._ending(key) or not self._is_here(key) for key in self.orders.members):
            self._judge(now)

    def _judge(self, now: float) -> None:
        """The attempt has failed, and everybody has ended it: what was the cause, and is there another attempt?"""
        failed = sorted(self._failed, key=lambda key: self._end_of(key).remoteness)  # stable: the first one first
        stopped = [key for key in self.orders.members if self._was_stopped(key)]
        blamed = next((key for key in failed if self._end_of(key).remoteness < 2), None)
        if stopped:
            name = self._words[stopped[0]].name
            if self.policy.elastic and self._words[stopped[0]].leaves:
                self._after_change(now, f"{name} has been stopped")
            else:
                self._give(phase="over", error=error_to_json(MachineError(f"{name} was stopped")))
        elif blamed is None and self._gone:
            gone = f"{self._gone[0]} has gone: nothing was heard of it for {self.policy.timeout:g} s"
            self._after_change(now, gone)
        elif blamed is not None or failed:
            self._after_failure(now, blamed or failed[0])
        else:  # somebody was out of touch for a while, and heard again before it was missed
            self._after_change(now, "a machine lost touch with the others for a while, and ended the attempt")

    def _was_stopped(self, key: str) -> bool:
        """Whether a machine was asked to end, and has not saved: its processes did, or its launcher itself."""
        ending = self._ending(key)
        return self._words[key].phase == "left" if ending is None else ending.kind == "signal"

    def _end_of(self, key: str) -> Ending:
        ending = self._words[key].ending
        assert ending is not None
        return ending

    def _after_change(self, now: float, what: str) -> None:
        """Machines have gone, or come. Of an elastic job that costs a machine, not a restart, unless more attempts, one
        after the other, came no further than it may have machines: then one comes and goes for ever."""
        fruitless = self._count_fruitless()
        if self.policy.elastic and fruitless <= self.policy.counts[-1]:
            self._begin_round(now, what)
        elif self.orders.restarts < self.policy.max_restarts:
            self._begin_round(now, what, restarts=self.orders.restarts + 1)
        else:
            changes = f"machines came and went, and no new step was done in {fruitless} attempts" * self.policy.elastic
            why = _joined(changes, self._spent())
            error = MachineError(what, why=why, fix="start the job again on all machines: it can go on")
            self._give(phase="over", error=error_to_json(error))

    def _after_failure(self, now: float, key: str) -> None:
        ending, name = self._end_of(key), self._words[key].name
        assert ending.error is not None
        step = self._last_step()
        again = (step, ending.signature) == self._last_failure
        self._last_failure = step, ending.signature
        error = dict(ending.error)
        if error["exit_code"] in FINAL:
            self._give(phase="over", error=error, by=name)
        elif again:
            error["why"] = _joined(error["why"], f"the step after step {step} failed twice with this same error")
            self._give(phase="over", error=error, by=name)
        elif self.orders.restarts >= self.policy.max_restarts:
            error["why"] = _joined(error["why"], self._spent())
            self._give(phase="over", error=error, by=name)
        else:
            self._begin_round(now, error["what"], restarts=self.orders.restarts + 1)

    def _last_step(self) -> int:
        """The last one that was done in the attempt under way; 0 for none."""
        return max((one.step for member in self.orders.members if (one := self._ending(member))), default=0)

    def _count_fruitless(self) -> int:
        """Attempts that came no further than those before, one after the other, with the one under way."""
        return 0 if self._last_step() > self._furthest else self._fruitless + 1

    def _spent(self) -> str:
        count = self.policy.max_restarts
        return f"it was restarted {count} time{'s' if count > 1 else ''} (--max-restarts)" if count else ""

    def _begin_round(self, now: float, cause: str, restarts: int | None = None) -> None:
        self._fruitless, self._furthest = self._count_fruitless(), max(self._furthest, self._last_step())
        self._failed.clear()
        self._gone.clear()
        self._began_gathering = self._changed = now
        number = self.orders.restarts if restarts is None else restarts
        self._give(round=self.orders.round + 1, phase="gathering", saves=False, cause=cause, restarts=number)

    def _gather(self, now: float) -> None:
        ready = self._ready()
        if self.policy.elastic:
            self._gather_whoever_comes(now, ready)
            return
        wanted = range(self.policy.counts[-1])
        places = {self._words[key].machine: key for key in ready}
        missing = [str(number) for number in wanted if number not in places]
        here = {word.machine for key, word in self._words.items() if self._is_here(key) or key in self._lost}
        left = [word.name for word in self._words.values() if word.phase == "left" and word.machine not in here]
        if left:
            self._give(phase="over", error=error_to_json(MachineError(f"{left[0]} was stopped")))
        elif not missing:
            self._start([places[number] for number in wanted])
        elif now - self._began_gathering > SECONDS_TO_MEET:
            what = f"machine {missing[0]} did not come within {SECONDS_TO_MEET} s"
            error = MachineError(what, fix=f"start the same command there, with --node-rank {missing[0]}")
            self._give(phase="over", error=error_to_json(error))
        else:
            names = " and ".join(missing)
            self._give(waits_for=f"machine {names}: start the same command there, with --node-rank {missing[0]}")

    def _gather_whoever_comes(self, now: float, ready: list[str]) -> None:
        busy = [key for key in self.orders.members if self._is_here(key) and key not in ready]
        count, most = self._count_for(len(ready)), self.policy.counts[-1]
        # At first there is a last call. Later those who are there begin at once: who comes after them is taken in.
        settled = len(ready) >= most or self.orders.round > 0 or now - self._changed >= self.policy.timeout / 3
        if count is None:
            counts = " or ".join(map(str, self.policy.counts))
            self._give(waits_for=f"more machines: {len(ready)} here, and the job can work on {counts}")
        elif settled and not busy:
            before = self.orders.members
            ready.sort(key=lambda key: (before.get(key, len(before)), int(key)))
            self._start(ready[:count])

    def _start(self, keys: list[str]) -> None:
        self._give(phase="working", members={key: place for place, key in enumerate(keys)}, waits_for="")

    def _ready(self) -> list[str]:
        return [key for key, word in self._words.items() if self._is_here(key) and word.phase == "ready"]

    def _count_for(self, machines: int) -> int | None:
        return max((count for count in self.policy.counts if count <= machines), default=None)

    def _give(self, **changes: Any) -> None:
        self.orders = replace(self.orders, **changes)


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
