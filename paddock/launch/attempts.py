"""The processes of this machine, in one attempt after another, until the job's council has no more.

An attempt is a run of torch's elastic agent, which restarts nothing by itself: machines that have failed or gone, and
those that come, are known in the council alone.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import MachineError, UserError
from paddock.files import scratch_folder, shell_word
from paddock.launch import failure
from paddock.launch.environment import added_to_environment, worker_environment
from paddock.launch.fork_server import fork_server
from paddock.launch.options import DEFAULT_PORT, LaunchOptions
from paddock.launch.rendezvous.council import SECONDS_TO_MEET, Ending, Orders, Policy, Word
from paddock.launch.rendezvous.nodes import keeps_store, leave_behind, meeting_place
from paddock.launch.rendezvous.seat import RemoteSeat, Seat, machine_lost
from paddock.messages import error_from_json, error_to_json
from paddock.parallel.reach import reach_store
from paddock.parallel.rendezvous import check_interfaces, could_not_meet, serve_store

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from paddock.launch.supervisor import Supervisor


@dataclass(frozen=True)
class Job:
    """What is done in every attempt."""

    spec: dict[str, Any]
    options: LaunchOptions
    policy: Policy
    run_dir: Path

    @property
    def errors(self) -> Path:
        """Where failing ranks leave what they have to say."""
        return (self.run_dir / "errors").absolute()


@dataclass(frozen=True)
class Attempt:
    """What came of an attempt on this machine."""

    ending: Ending
    result: Any = None
    error: BaseException | None = None
    """To be raised here, if the job ends with it."""
    leaves: bool = False
    """This machine was asked to go, and the others of an elastic job may go on."""


def run_attempts(job: Job) -> Any:
    """Take part in a job to its end; gives what the first process of this machine returned."""
    options = job.options
    if options.node_rank == 0 and not options.elastic:
        for old in job.errors.glob("rank*.txt"):  # of an earlier job in the same run directory
            old.unlink()
    check_interfaces()
    variables = worker_environment(options) | {
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "",  # they are ours
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",  # ranks follow from the council's orders: no agent waits for others
    }
    with added_to_environment(variables), _quiet_agent(), _seat(job) as (seat, stores):
        last, seen = Attempt(Ending("ended")), 0.0
        while (orders := seat.wait_for_turn()) is not None:
            restart = {"number": orders.round, "cause": orders.cause, "seen": seen} if orders.round else None
            last = _attempt(job, seat, orders, stores, restart)
            seen = time.time()
            seat.say(leaves=last.leaves)
            after = seat.report(last.ending)
            if after.phase == "over":
                break
            if last.leaves:
                leave_behind(options)
                return _conclude(last, Orders(), seat)
            count = f" (restart {after.restarts} of {job.policy.max_restarts})" if after.restarts else ""
            print(f"{after.cause}: going on from the newest checkpoint{count}", file=sys.stderr, flush=True)
        return _conclude(last, seat.orders, seat)


@contextmanager
def _seat(job: Job) -> Iterator[tuple[Seat, _Stores]]:
    options, policy = job.options, job.policy
    if options.nnodes == 1:
        yield Seat(Word("this machine", 0, options.nproc_per_node), policy), _Stores(options)
        return
    address, port = options.master_addr or "", options.master_port or DEFAULT_PORT
    again = "start the same command again on every machine"
    if job.spec["stops_cleanly"]:
        nodes = f"{options.nnodes} --node-rank RANK"
        if options.elastic:
            nodes = f"{options.nodes} --rdzv-id {shlex.quote(options.rdzv_id or '')}"
        again = f"when it is back, on every machine: paddock resume {shell_word(job.run_dir)} --nproc-per-node "
        again += f"{options.nproc_per_node} --nnodes {nodes} --master-addr {address}"
    name = socket.gethostname() if options.elastic else f"machine {options.node_rank}"
    machine = None if options.elastic else options.node_rank
    with meeting_place(options, policy.asked) as (store, _):
        word = Word(name, machine, options.nproc_per_node, keeps=keeps_store(options))
        seat = RemoteSeat(
            word,
            policy,
            lambda patience: reach_store(address, port, timedelta(seconds=patience or SECONDS_TO_MEET)),
            machine_lost(f"{address}, port {port}", again),
        )
        try:
            yield seat, _Stores(options, store)
        finally:
            seat.close()


class _Stores:
    """The store in which the processes of every attempt meet: on several machines the job's, on one the launcher's."""

    def __init__(self, options: LaunchOptions, store: TCPStore | None = None) -> None:
        self._options, self._store = options, store

    def open(self) -> TCPStore:
        """It, made when it is first asked for: torch is imported by then."""
        if self._store is None:
            port = self._options.master_port or 0
            try:
                self._store = serve_store("127.0.0.1", port, timedelta(seconds=SECONDS_TO_MEET))
            except OSError as error:
                raise could_not_meet(f"this machine, port {port}", error) from error
        return self._store


def _attempt(job: Job, seat: Seat, orders: Orders, stores: _Stores, restart: dict[str, Any] | None) -> Attempt:
    # The workers look for modules where this process does: in the working directory only if it does too.
    safe_path = [] if "" in sys.path or os.getcwd() in sys.path else ["-P"]
    options = job.options
    with scratch_folder() as reports:
        spec = reports / "spec.json"
        payload = job.spec["payload"] | ({} if restart is None else {"restart": restart})
        places = {"reports": str(reports), "errors": str(job.errors)}
        spec.write_text(json.dumps(job.spec | {"payload": payload} | places), encoding="utf-8")
        try:
            with fork_server(safe_path) as server:
                from torch.distributed.elastic.agent.server.api import WorkerSpec  # while the server imports it too

                from paddock.launch.supervisor import Meeting, Supervisor

                meeting = Meeting(stores.open(), orders.members[seat.key], len(orders.members), orders.round)
                work = WorkerSpec("rank", options.nproc_per_node, meeting, entrypoint=str(spec), max_restarts=0)
                restartable = bool(options.max_restarts) or options.elastic
                supervisor = Supervisor(
                    work, reports, server, seat, orders.round, restartable, job.spec["stops_cleanly"]
                )
                with supervisor.handling_signals():
                    supervisor.run()
        except OSError as error:
            told = MachineError(
                f"cannot start {options.nproc_per_node} processes", why=str(error), fix="use a smaller --nproc-per-node"
            )
            return Attempt(Ending("failed", error_to_json(told), signature=str(error)), error=told)
        return _outcome(job, supervisor, reports, options.nproc_per_node * orders.members[seat.key])


def _outcome(job: Job, supervisor: Supervisor, reports: Path, first: int) -> Attempt:
    """What the processes of this machine, of which `first` is the first one, have come to."""
    failures, asked = supervisor.failures(), supervisor.stop_signal
    step = failure.last_step(reports)
    leaves = job.policy.elastic and asked is not None and asked != signal.SIGINT  # Ctrl-C stops all
    if asked is not None and any(one.obeyed_signal for one in failures):
        # It ended as asked, with nothing to save. Its peers lost only it.
        failures = [one for one in failures if not one.obeyed_signal and one.remoteness < 2]
        if not failures:
            interrupted = KeyboardInterrupt() if asked == signal.SIGINT else SystemExit(128 + asked)
            return Attempt(Ending("signal", step=step), error=interrupted, leaves=leaves)
    for one in failures:
        failure.write_up(one, job.errors, reports)
    if failures:
        cause, error = failures[0], failures[0].to_error(job.errors)
        ending = Ending("failed", error_to_json(error), cause.remoteness, cause.signature, step)
        return Attempt(ending, error=error)
    if supervisor.was_ended:
        return Attempt(Ending("ended", step=step))
    written = reports / f"rank{first}.result"
    result = json.loads(written.read_text(encoding="utf-8")) if written.exists() else None  # it left by sys.exit(0)
    stopped = isinstance(result, dict) and bool(result.get("interrupted"))
    ending = Ending("stopped" if stopped else "done", step=step, stops_all=asked is not None and not leaves)
    return Attempt(ending, result, leaves=leaves and stopped)


def _conclude(last: Attempt, orders: Orders, seat: Seat) -> Any:
    """The result of this machine, or the error that it raises: its own, if it has one, else that of another."""
    if orders.error is None:
        if last.error is not None:
            raise last.error
        return last.result
    told = error_from_json(orders.error)
    if last.error is None or (orders.by != seat.name and last.ending.remoteness == 2):
        if orders.by is not None:
            told.what = f"{orders.by}: {told.what}"
        raise told
    if isinstance(last.error, UserError) and orders.by == seat.name:
        last.error.why = told.why
    raise last.error


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Keep the agent's own log lines away: what went wrong is told once, by us."""
    logger = logging.getLogger("torch.distributed.elastic")
    null, propagate = logging.NullHandler(), logger.propagate
    logger.addHandler(null)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(null)
        logger.propagate = propagate
