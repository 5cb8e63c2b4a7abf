"""A launcher's seat in the council of its job: what it says of its machine, and the orders that it hears.

A job on one machine has its council in the launcher itself. On several, a thread exchanges words and orders with the
keeper's store: whatever the network does, the launcher's main thread waits for nothing but time, and so can end its
processes when nobody answers any more.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from paddock.errors import MachineError, UserError, bad_value
from paddock.launch.rendezvous.council import SECONDS_TO_MEET, Council, Ending, Orders, Policy, Word
from paddock.launch.rendezvous.keeper import NODE, NODES, ORDERS, POLICY, SECONDS_BETWEEN_LOOKS
from paddock.launch.rendezvous.membership import REFUSALS, SAME_COMMAND, differences, tell_of_refusals
from paddock.messages import error_from_json
from paddock.process import SECONDS_WITHOUT_A_WORD

if TYPE_CHECKING:
    from torch.distributed import TCPStore

SECONDS_TO_SAY_GOODBYE = 5
SECONDS_TO_CONNECT = 1
"""Before another try: a first packet that is lost is sent again ever more rarely, long after the network is back."""


class Seat:
    """Of a job on this machine alone."""

    key = "1"

    def __init__(self, word: Word, policy: Policy) -> None:
        self.policy = policy
        self._word = word
        self._council = Council(policy)

    @property
    def name(self) -> str:
        """Of this machine, as the council calls it."""
        return self._word.name

    @property
    def orders(self) -> Orders:
        self._word = replace(self._word, beat=self._word.beat + 1)
        return self._council.look(time.monotonic(), {self.key: self._word})

    @property
    def is_cut_off(self) -> bool:
        """Whether nobody has answered for so long that the others take this machine for lost."""
        return False

    def say(self, **changes: Any) -> None:
        """Let the council know."""
        self._word = replace(self._word, **changes)

    def close(self) -> None:
        """Leave the council."""

    def wait_for_turn(self) -> Orders | None:
        """Until this machine takes part in a new attempt; None if there is none."""
        said, begun = "", time.monotonic()
        with _ended_by_signals():
            while True:
                orders = self._look()
                if orders.phase == "over":
                    return None
                if orders.round > self._word.round or self._word.phase == "here":
                    self.say(phase="ready", round=orders.round, ending=None)
                elif orders.phase == "working" and self._word.phase == "ready" and self.key in orders.members:
                    self.say(phase="working")
                    return orders
                if orders.waits_for != said and time.monotonic() - begun > SECONDS_WITHOUT_A_WORD:
                    said = orders.waits_for
                    print(f"waiting for {said}", file=sys.stderr, flush=True)
                time.sleep(SECONDS_BETWEEN_LOOKS / 2)

    def report(self, ending: Ending) -> Orders:
        """Tell how the attempt ended here, and wait until it has ended everywhere: there is another one then, or the
        job is over."""
        self.say(phase="ended", ending=ending)
        with _ended_by_signals():
            while True:
                orders = self._look()
                if orders.phase == "over" or orders.round > self._word.round:
                    return orders
                time.sleep(SECONDS_BETWEEN_LOOKS / 2)

    def ends(self, number: int) -> bool:
        """Whether an attempt is to be ended at once."""
        orders = self.orders
        return orders.round != number or orders.phase in ("ending", "over") or self.is_cut_off

    def _look(self) -> Orders:
        orders = self.orders
        if self.key in orders.refused:
            raise error_from_json(orders.refused[self.key])
        return orders


class RemoteSeat(Seat):
    """Of a job on several machines. `connect` gives a client of the store, within so many seconds; `lost` makes the
    error for when there is none any more."""

    key = ""

    def __init__(
        self, word: Word, policy: Policy, connect: Callable[[float | None], TCPStore], lost: Callable[[str], UserError]
    ) -> None:
        super().__init__(word, policy)
        self._connect, self._lost = connect, lost
        self._begin(patience=None)

    def _begin(self, patience: float | None) -> None:
        """Take a new seat: as far as the council knows, another machine with the same name."""
        self.key = ""
        self._orders = Orders()
        self._broken: Exception | None = None
        self._refusal = ""  # of the newest try, in words
        self._closing = threading.Event()
        self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._exchange, args=(patience, self._closing), daemon=True)
        self._thread.start()

    def _exchange(self, patience: float | None, closing: threading.Event) -> None:
        try:
            store = self._connect(None) if patience is None else self._connect_again(patience, closing)
            agreed = store.compare_set(POLICY, "", self.policy.to_json()).decode()
            _check_policy(Policy.from_json(agreed), self.policy)
            key, beat = str(store.add(NODES, 1)), 0
            told = store.add(REFUSALS, 0)
            while self._closing is closing:
                beat += 1
                word = replace(self._word, beat=beat)
                store.set(NODE + key, word.to_json())
                if word.phase == "left":  # the keeper goes once everybody has: nothing more is asked of it
                    return
                orders = Orders.from_json(store.get(ORDERS).decode()) if store.check([ORDERS]) else Orders()
                if self._closing is not closing:
                    return
                self._orders, self._heard, self.key = orders, time.monotonic(), key
                if self._word.keeps and orders.phase == "gathering":  # whoever is waited for may not be who came
                    told = tell_of_refusals(store, told)
                closing.wait(SECONDS_BETWEEN_LOOKS)
        except Exception as error:
            if self._closing is closing:
                self._broken = error

    def _connect_again(self, patience: float, closing: threading.Event) -> TCPStore:
        """A client of a store that was there before, and may be out of reach for a while."""
        deadline = time.monotonic() + patience
        while True:
            try:
                store = self._connect(SECONDS_TO_CONNECT)
            except UserError as error:
                self._refusal = f" ({error.what}: {error.why})"
                if time.monotonic() > deadline or self._closing is not closing:
                    raise
            else:
                self._refusal = ""
                store.set_timeout(timedelta(seconds=SECONDS_TO_MEET))
                return store

    @property
    def orders(self) -> Orders:
        return self._orders

    @property
    def is_cut_off(self) -> bool:
        return self._broken is not None or time.monotonic() - self._heard > self.policy.timeout

    def ends(self, number: int) -> bool:
        ends = super().ends(number)
        if ends and self.is_cut_off:
            for_how_long = "" if self._broken is not None else f" for {self.policy.timeout:g} s"
            print(
                f"nothing is heard of the place where the machines meet, machine 0{for_how_long}: ending this attempt",
                file=sys.stderr,
                flush=True,
            )
        return ends

    def close(self) -> None:
        self.say(phase="left")
        self._closing.set()
        if not self.is_cut_off:
            self._thread.join(SECONDS_TO_SAY_GOODBYE)

    def report(self, ending: Ending) -> Orders:
        if self.is_cut_off:  # the others have ended the attempt, for want of this machine
            self._come_again()
            return replace(self._orders, cause="machine 0 was out of reach for a while", restarts=0)
        return super().report(ending)

    def _look(self) -> Orders:
        if self.is_cut_off and self.key:
            self._come_again()
        elif self._broken is not None:
            raise self._reason(self._broken)
        return super()._look()

    def _come_again(self) -> None:
        """Find the council once more, within as long as it takes to be missed."""
        if self._broken is not None:
            raise self._reason(self._broken)
        self.say(phase="here", ending=None)  # until it is known which round there is
        self._begin(self.policy.timeout)
        deadline = time.monotonic() + self.policy.timeout
        while not self.key:
            if self._broken is not None or time.monotonic() > deadline:
                raise self._lost(f"nothing was heard of it for {2 * self.policy.timeout:g} s{self._refusal}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _reason(self, error: Exception) -> Exception:
        if isinstance(error, UserError):
            return error
        if isinstance(error, RuntimeError):  # torch.distributed.DistError, which nobody needs to import here
            return self._lost((str(error).splitlines() or [type(error).__name__])[0])
        return error


def _check_policy(theirs: Policy, mine: Policy) -> None:
    """All machines must want the same."""
    flags = {"name": "--rdzv-id", "max_restarts": "--max-restarts", "timeout": "--node-timeout", "counts": "--nnodes"}
    for name, flag in flags.items():
        if getattr(theirs, name) != getattr(mine, name):
            wanted = getattr(theirs, name)
            raise bad_value(flag, getattr(mine, name), f"the job that meets there has {wanted}", "give all the same")
    if why := differences(theirs.asked, mine.asked):
        raise MachineError("this machine does not fit the job that meets there now", why=why, fix=SAME_COMMAND)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While there are no processes to stop: a signal ends the launcher, which takes its leave."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    previous = {
        number: signal.signal(number, leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def machine_lost(where: str, go_on: str) -> Callable[[str], UserError]:
    """What to say when the council's machine has gone."""

    def error(why: str) -> UserError:
        return MachineError(f"the place where the machines meet has gone: machine 0 ({where})", why=why, fix=go_on)

    return error
