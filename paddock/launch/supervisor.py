"""Torch's elastic agent, with our manners: prompt after a failure, patient when asked to stop.

The agent as it is waits 30 s for workers that ignore SIGTERM, turns a first Ctrl-C into a kill, and leaves
grandchildren. `_start_workers`, `_monitor_workers` and `_shutdown` are its documented points of extension.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch.distributed import TCPStore
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, SubprocessContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from paddock.launch import failure
from paddock.launch.failure import Failure
from paddock.launch.fork_server import ForkedProcess, ForkServer
from paddock.launch.rendezvous.seat import Seat
from paddock.launch.stop import EXIT_AT_ONCE, REGROUP, STOPPING
from paddock.process import heard_signals

# Together well under the 15 s in which all ranks must be gone.
SECONDS_FOR_THE_CAUSE = 3  # when ranks have only lost a peer: let the one that failed finish its report
SECONDS_TO_TERMINATE = 3  # between SIGTERM and SIGKILL
SECONDS_FOR_GRANDCHILDREN = 2  # resource trackers unlink shared memory once their rank has gone


class RankStreams(LogsSpecs):
    """Rank 0 speaks; the others' stdout goes nowhere and their stderr is kept in case they fail."""

    def __init__(self, reports: Path) -> None:
        super().__init__()
        self.reports = reports

    @property
    def root_log_dir(self) -> str:
        return str(self.reports)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        ranks = {local: int(env["RANK"]) for local, env in envs.items()}
        return LogsDest(
            stdouts={local: os.devnull if rank else "" for local, rank in ranks.items()},
            stderrs={local: str(self.reports / f"rank{rank}.stderr") if rank else "" for local, rank in ranks.items()},
            error_files=dict.fromkeys(ranks, ""),  # ours are richer, see failure.py
        )


class ForkedWorkers(SubprocessContext):
    """The workers of this machine, which a server forks."""

    def __init__(self, server: ForkServer, spec: str, environments: dict[int, dict[str, str]], logs: LogsSpecs) -> None:
        super().__init__("rank", spec, dict.fromkeys(environments, ()), environments, logs)
        self.server = server
        self.spec = spec

    def _start(self) -> None:
        for rank in range(self.nprocs):
            self.subprocess_handlers[rank] = ForkedWorker(
                self.server, self.spec, self.envs[rank], self.stdouts[rank], self.stderrs[rank], rank
            )


class ForkedWorker(SubprocessHandler):
    """One of them, with the files that its streams go to."""

    def __init__(
        self, server: ForkServer, spec: str, environment: dict[str, str], stdout: str, stderr: str, local_rank: int
    ) -> None:
        self._server = server
        super().__init__(spec, (), environment, stdout, stderr, local_rank, None)

    def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> ForkedProcess:  # type: ignore[override]
        (spec,) = args
        stdout = 1 if self._stdout is None else self._stdout.fileno()
        stderr = 2 if self._stderr is None else self._stderr.fileno()
        return self._server.fork(spec, env, stdout, stderr)


class Meeting(RendezvousHandler):
    """Where the workers of an attempt meet, which the council has gathered already."""

    def __init__(self, store: TCPStore, place: int, num_nodes: int, number: int) -> None:
        self._store, self._place, self._num_nodes, self._number = store, place, num_nodes, number

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        place = RendezvousStoreInfo(self._store.host, self._store.port)
        return RendezvousInfo(self._store, self._place, self._num_nodes, place)

    def get_backend(self) -> str:
        return "paddock"

    def get_run_id(self) -> str:
        return "paddock"

    def num_nodes_waiting(self) -> int:
        return 0

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def shutdown(self) -> bool:
        return True


class Supervisor(LocalElasticAgent):
    """Starts the workers of this machine and sees them to their end."""

    def __init__(
        self,
        spec: WorkerSpec,
        reports: Path,
        server: ForkServer,
        seat: Seat,
        number: int,
        restartable: bool,
        stops_cleanly: bool,
    ) -> None:
        """`number` is that of the attempt; if it is `restartable`, there may be another one."""
        super().__init__(spec=spec, logs_specs=RankStreams(reports))
        self.reports = reports
        self.server = server
        self.seat = seat
        self.number = number
        self.restartable = restartable
        self.stops_cleanly = stops_cleanly
        self.was_ended = False
        """Because the council said so, or says nothing any more."""
        self.stop_signal: signal.Signals | None = None
        self._at_once = False
        self._told: set[int] = set()  # ranks that know of the stop request
        self._exit_times: dict[int, float] = {}
        self._stopped_by_us: set[int] = set()
        self._groups: set[int] = set()  # process groups that may still hold somebody

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._on_signal) for number in heard_signals()}
        try:
            yield
        finally:
            if self._at_once:  # the second Ctrl-C may have come in the middle of a patient shutdown
                self._shutdown()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def failures(self) -> list[Failure]:
        """Ranks that failed, the most likely cause first; not those that were ended because of it."""
        found = [
            failure.read(rank, process.returncode, self._exit_times.get(rank, time.time()), self.reports)
            for rank, process in self._processes().items()
            if process.returncode
        ]
        found = [one for one in found if one.report is not None or one.rank not in self._stopped_by_us]
        return failure.likely_cause_first(found)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_signal is None:
            self.stop_signal = signal.Signals(number)  # the monitor, 0.1 s away, does the rest
        elif number == signal.SIGINT and not self._at_once:
            self._at_once = True
            raise SystemExit(EXIT_AT_ONCE)  # unwinds through _shutdown, which now kills

    def _exit_barrier(self) -> None:
        """No agent waits for the others: the council does."""

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        job = worker_group.spec
        everybody = {
            "GROUP_RANK": worker_group.group_rank,
            "GROUP_WORLD_SIZE": worker_group.group_world_size,
            "LOCAL_WORLD_SIZE": job.local_world_size,
            "MASTER_ADDR": worker_group.master_addr,
            "MASTER_PORT": worker_group.master_port,
            "ROLE_NAME": job.role,
            "TORCHELASTIC_MAX_RESTARTS": int(self.restartable),
            "TORCHELASTIC_RESTART_COUNT": self.number,
            "TORCHELASTIC_RUN_ID": job.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": job.rdzv_handler.use_agent_store,
        }
        variables = {
            worker.local_rank: everybody
            | {"LOCAL_RANK": worker.local_rank, "RANK": worker.global_rank, "WORLD_SIZE": worker.world_size}
            | {"ROLE_RANK": worker.role_rank, "ROLE_WORLD_SIZE": worker.role_world_size}
            for worker in worker_group.workers
        }
        environments = {rank: {name: str(value) for name, value in some.items()} for rank, some in variables.items()}
        self._pcontext = ForkedWorkers(self.server, str(job.entrypoint), environments, self._logs_specs)
        self._pcontext.start()
        pids = self._pcontext.pids()
        self._groups = set(pids.values())  # each worker leads a session of its own
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self.stop_signal is not None:
            self._pass_on_stop(self.stop_signal)
        elif self.seat.orders.saves:
            self._pass_on_stop(REGROUP)
        if self._failed_ranks():
            self._end_the_others()
        elif self.seat.ends(self.number):
            self._end_all()
        return super()._monitor_workers(worker_group)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = SECONDS_TO_TERMINATE) -> None:
        super()._shutdown(signal.SIGKILL if self._at_once else death_sig, SECONDS_TO_TERMINATE)
        self._sweep()

    def _processes(self) -> dict[int, Any]:
        """Popen objects by global rank."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        workers = self._worker_group.workers
        handlers = self._pcontext.subprocess_handlers
        return {workers[local].global_rank: handler.proc for local, handler in handlers.items()}

    def _running(self) -> set[int]:
        running = set()
        for rank, process in self._processes().items():
            if process.poll() is None:
                running.add(rank)
            else:
                self._exit_times.setdefault(rank, time.time())
        return running

    def _failed_ranks(self) -> set[int]:
        running = self._running()
        return {rank for rank, process in self._processes().items() if rank not in running and process.returncode}

    def _pass_on_stop(self, number: signal.Signals) -> None:
        asked = self.stop_signal is not None
        if asked and self.stops_cleanly and not self._told and 0 not in self._processes():  # rank 0 speaks for itself
            print(STOPPING, file=sys.stderr, flush=True)
            self._told.add(-1)
        for rank in self._running() - self._told:
            # Before it is ready, a signal would kill it: which is right where there is nothing to finish.
            if not self.stops_cleanly or (self.reports / f"rank{rank}.ready").exists():
                self._told.add(rank)
                self._processes()[rank].send_signal(number)

    def _end_the_others(self) -> None:
        deadline = time.monotonic() + SECONDS_FOR_THE_CAUSE
        while self._running() and time.monotonic() < deadline:
            if any(one.remoteness == 0 for one in self.failures()):
                break
            time.sleep(0.05)
        self._end_all()

    def _end_all(self) -> None:
        self.was_ended = True
        self._stopped_by_us = self._running()
        assert self._pcontext is not None
        self._pcontext.close(signal.SIGTERM, SECONDS_TO_TERMINATE)

    def _sweep(self) -> None:
        """End what the workers started (data loaders, trackers): it shares their process groups."""
        deadline = time.monotonic() + (0 if self._at_once else SECONDS_FOR_GRANDCHILDREN)
        number = signal.SIGTERM
        while self._groups:
            if time.monotonic() >= deadline:
                number = signal.SIGKILL
            for group in list(self._groups):
                try:
                    os.killpg(group, number)
                except (ProcessLookupError, PermissionError):
                    self._groups.discard(group)
            if number == signal.SIGKILL:
                self._groups.clear()
            elif self._groups:
                time.sleep(0.02)
