"""The launchers of a job on several machines, before it has processes: machine 0 decides, the others follow.

They talk through the store at --master-addr and --master-port, in which the processes will meet as well.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from paddock.errors import MachineError, UserError
from paddock.launch.options import DEFAULT_PORT, LaunchOptions
from paddock.launch.rendezvous.council import SECONDS_TO_MEET
from paddock.launch.rendezvous.keeper import Keeper, is_orphaned
from paddock.launch.rendezvous.membership import join_job, tell_of_refusals
from paddock.messages import error_from_json, error_to_json
from paddock.parallel.reach import reach_store
from paddock.parallel.rendezvous import connect_store, could_not_meet, is_own_address, listen
from paddock.process import announced

if TYPE_CHECKING:
    from torch.distributed import TCPStore

SECONDS_TO_BE_HEARD = 60  # machine 0 takes the store along when it leaves
SECONDS_BETWEEN_LOOKS = 0.1


@contextmanager
def agreed(
    options: LaunchOptions,
    decide: Callable[[], str],
    follow: Callable[[str], object],
    inspect: Callable[[TCPStore], object] | None = None,
    asked: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """What `decide` gives on machine 0, on every machine, once all others have done `follow` with it.

    A machine that was `asked` to do something else belongs to another job, where one may come in place of another, and
    is sent away. First of all each does `inspect` with the store, where machines can be compared (`preflight`). An
    error of one machine is raised on all, before any process starts. Inside the block the machines stay connected: the
    store that machine 0 keeps is the one that the processes use.
    """
    if options.nnodes == 1:
        yield decide()
        return
    from torch.distributed import DistError

    with meeting_place(options, asked) as (store, leads):
        try:
            if inspect is not None:
                inspect(store)
            if leads:
                # Whoever comes to an elastic job later, or not at all, is not waited for here.
                verdict = _lead(store, () if options.elastic else range(1, options.nnodes), decide)
            else:
                verdict = _join(store, options.node_rank, follow)
        except DistError as error:
            raise could_not_meet(f"{store.host}, port {store.port}", error) from error
        if verdict.error is not None:
            if isinstance(verdict.error, UserError) and _is_of_another(verdict, options, leads):
                verdict.error.what = f"machine {verdict.machine}: {verdict.error.what}"
            raise verdict.error
        assert verdict.decision is not None
        yield verdict.decision


@contextmanager
def meeting_place(options: LaunchOptions, asked: Mapping[str, str] | None = None) -> Iterator[tuple[TCPStore, bool]]:
    """A client of the store of a job on several machines, to which this launcher, `asked` to do so much, belongs; and
    whether this machine has just made it."""
    from torch.distributed import DistError

    with _store_of_job(options) as (store, leads):
        try:
            join_job(store, options, asked, made_store=leads)
        except DistError as error:
            raise could_not_meet(f"{store.host}, port {store.port}", error) from error
        yield store, leads


@contextmanager
def _store_of_job(options: LaunchOptions) -> Iterator[tuple[TCPStore, bool]]:
    """A client of the store, at the address that was named and nowhere else. Machine 0 makes it, in a process of its
    own (`keeper`), unless the one of a launcher that died here still serves the job; of an elastic job, the first that
    has the address."""
    address, port = options.master_addr or "", options.master_port or DEFAULT_PORT
    is_there = is_own_address(address) if options.elastic else options.node_rank == 0
    if port in _kept_here or not is_there:
        yield _client(address, port), False
        return
    if (listening := _listen(address, port, options)) is None:
        yield _client(address, port), False
        return
    with listening:
        keeper = Keeper(listening, [] if "" in sys.path or os.getcwd() in sys.path else ["-P"])
    _kept_here[port] = True
    try:
        yield connect_store(address, port, timedelta(seconds=SECONDS_TO_MEET)), True
    finally:
        keeper.leave(waits=_kept_here.pop(port))


def _client(address: str, port: int) -> TCPStore:
    """Of a store that another launcher makes, which may still have to come."""
    return reach_store(address, port, timedelta(seconds=SECONDS_TO_MEET))


def _listen(address: str, port: int, options: LaunchOptions) -> socket.socket | None:
    """A socket for a new store; None if the job has one there already."""
    if is_orphaned(port):
        return None
    try:
        return listen(address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and options.elastic:
            return None
        raise could_not_meet(f"{address}, port {port}", error) from error


_kept_here: dict[int, bool] = {}
"""The ports at which keepers of this process serve, and whether it is to wait until they are needed no more."""


def keeps_store(options: LaunchOptions) -> bool:
    """Whether this launcher has made the store's process."""
    return options.node_rank == 0 and (options.master_port or DEFAULT_PORT) in _kept_here


def leave_behind(options: LaunchOptions) -> None:
    """The others go on without this machine, with the store that it has made, if it has."""
    port = options.master_port or DEFAULT_PORT
    if port in _kept_here:
        _kept_here[port] = False


@dataclass(frozen=True)
class _Outcome:
    """What came of one machine's part."""

    machine: int
    decision: str | None = None
    error: Exception | None = None

    def to_json(self) -> str:
        error = self.error
        if error is not None and not isinstance(error, UserError):  # a bug; its stack trace stays on its machine
            error = UserError(f"{type(error).__name__}: {error}")
        return json.dumps([self.machine, self.decision, error and error_to_json(error)])

    @staticmethod
    def from_json(text: str) -> _Outcome:
        machine, decision, told = json.loads(text)
        return _Outcome(machine, decision, told and error_from_json(told))


def _is_of_another(verdict: _Outcome, options: LaunchOptions, leads: bool) -> bool:
    return not leads if options.elastic else verdict.machine != options.node_rank


def _attempt(machine: int, action: Callable[[], str]) -> _Outcome:
    try:
        return _Outcome(machine, action())
    except Exception as error:
        return _Outcome(machine, error=error)


def _lead(store: TCPStore, others: Iterable[int], decide: Callable[[], str]) -> _Outcome:
    """Machine 0: decide, wait for the others, and tell them whether all is well."""
    verdict = _attempt(0, decide)
    store.set("paddock/decision", verdict.to_json())
    if verdict.error is None:
        said = [_hear_from(store, node) for node in others]
        verdict = next((one for one in said if one.error is not None), verdict)
    store.set("paddock/verdict", verdict.to_json())
    deadline = time.monotonic() + SECONDS_TO_BE_HEARD
    while not store.check([f"paddock/heard/{node}" for node in others]) and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return verdict


def _hear_from(store: TCPStore, node: int) -> _Outcome:
    deadline = time.monotonic() + SECONDS_TO_MEET
    fix = f"start the same command there, with --node-rank {node}"
    with announced(f"waiting for machine {node}: {fix}"):
        refusals = 0
        while not store.check([f"paddock/here/{node}"]):
            refusals = tell_of_refusals(store, refusals)
            if time.monotonic() > deadline:
                what = f"machine {node} did not come within {SECONDS_TO_MEET} s"
                return _Outcome(0, error=MachineError(what, fix=fix))
            time.sleep(SECONDS_BETWEEN_LOOKS)
        tell_of_refusals(store, refusals)  # of whoever came just before the right one
    return _wait(store, f"paddock/outcome/{node}")


def _join(store: TCPStore, me: int, follow: Callable[[str], object]) -> _Outcome:
    """Any other machine: follow the decision, and hear whether everybody could."""
    store.set(f"paddock/here/{me}", "")
    mine = _wait(store, "paddock/decision")
    if mine.decision is not None:
        mine = _attempt(me, partial(_followed, follow, mine.decision))
    store.set(f"paddock/outcome/{me}", mine.to_json())
    verdict = _wait(store, "paddock/verdict")
    store.set(f"paddock/heard/{me}", "")
    # One that comes again, or late, hears an old verdict, and its own error is news.
    return mine if verdict.error is None or verdict.machine == me else verdict


def _followed(follow: Callable[[str], object], decision: str) -> str:
    follow(decision)
    return decision


def _wait(store: TCPStore, key: str) -> _Outcome:
    """What another machine has to say. Looks now and then, rather than wait in C++, where no Ctrl-C is heard."""
    with announced(f"waiting for another machine to be ready ({key})"):
        while not store.check([key]):
            time.sleep(SECONDS_BETWEEN_LOOKS)
    return _Outcome.from_json(store.get(key).decode())
