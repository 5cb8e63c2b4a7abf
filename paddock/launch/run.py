"""Run a function in one process or in many.

One process runs in place. Several are started by torch's elastic agent in this Python; under a user's own
torchrun the processes exist already, and each runs in place.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import MachineError, bad_value
from paddock.files import scratch_folder
from paddock.launch import failure
from paddock.launch.environment import added_to_environment, under_torchrun, worker_environment, world_of
from paddock.launch.fork_server import ForkServer, fork_server
from paddock.launch.nodes import SECONDS_TO_MEET, open_store
from paddock.launch.options import DEFAULT_PORT, LaunchOptions
from paddock.launch.target import check_target, resolve
from paddock.parallel.rendezvous import check_interfaces, could_not_meet
from paddock.phases import STARTING, phase
from paddock.plugins import modules_for_workers

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler

    from paddock.launch.supervisor import Supervisor

__all__ = ["run", "under_torchrun"]


def run(
    target: str, payload: dict[str, Any], options: LaunchOptions, run_dir: Path, *, stops_cleanly: bool = False
) -> Any:
    """Call `target` ("paddock.module:function") with `payload` in every process, and wait for all of them.

    A target that `stops_cleanly` opens a StopRequest, and is waited for when it is asked to stop. Returns when the
    job is done or has so stopped: what the target returned, plain values, in the first process of this machine. Raises
    what the first failing rank raised if that is a UserError, else WorkerFailed; KeyboardInterrupt or SystemExit if a
    signal ended it otherwise.
    """
    options.check()
    check_target(target)
    world_of(options)  # raises, where the environment is wrong, before anybody waits for others
    payload = json.loads(json.dumps(payload))  # in place or not, the target sees the same types
    if under_torchrun():
        return _run_as_rank(target, payload, options, run_dir)
    if options.world_size == 1:
        with phase(STARTING, at_once=True), _threads(options):
            return resolve(target)(payload)
    with scratch_folder() as reports, phase(f"{STARTING} {options.nproc_per_node} processes", at_once=True):
        spec = {"target": target, "payload": payload, "stops_cleanly": stops_cleanly}
        spec |= {"modules": modules_for_workers(), "path": sys.path}
        _run_many(spec, options, run_dir / "errors", reports)
        result = reports / f"rank{options.node_rank * options.nproc_per_node}.result"
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None  # it left by sys.exit(0)


@contextmanager
def _threads(options: LaunchOptions) -> Iterator[None]:
    """Compute with as many threads as were asked for, in this process."""
    if options.threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_as_rank(target: str, payload: dict[str, Any], options: LaunchOptions, run_dir: Path) -> Any:
    if options.world_size > 1:
        raise bad_value(
            "--nproc-per-node" if options.nproc_per_node > 1 else "--nnodes",
            options.nproc_per_node if options.nproc_per_node > 1 else options.nnodes,
            "torchrun has started the processes already",
            "give it to torchrun or to paddock, not to both",
        )
    try:
        with _threads(options):
            return resolve(target)(payload)
    except Exception as error:
        failure.record(error, int(os.environ["RANK"]), errors=run_dir / "errors")
        raise


def _run_many(job: dict[str, Any], options: LaunchOptions, errors: Path, reports: Path) -> None:
    if options.node_rank == 0:
        for old in errors.glob("rank*.txt"):  # of an earlier attempt in the same run directory
            old.unlink()
    check_interfaces()
    spec = reports / "spec.json"
    places = {"reports": str(reports), "errors": str(errors.absolute())}
    spec.write_text(json.dumps(job | places), encoding="utf-8")
    variables = worker_environment(options) | {"TORCHELASTIC_SIGNALS_TO_HANDLE": ""}  # they are ours
    # The workers look for modules where this process does: in the working directory only if it does too.
    safe_path = [] if "" in sys.path or os.getcwd() in sys.path else ["-P"]
    with added_to_environment(variables), fork_server(safe_path) as server, _quiet_agent():
        from torch.distributed import DistError  # while the server imports it too

        supervisor = _supervisor(options, spec, reports, job["stops_cleanly"], server)
        try:
            with supervisor.handling_signals():
                supervisor.run()
        except DistError as error:
            where = f"{options.master_addr or 'this machine'}, port {options.master_port or DEFAULT_PORT}"
            raise could_not_meet(where, error) from error
        except OSError as error:
            raise MachineError(
                f"cannot start {options.nproc_per_node} processes",
                why=str(error),
                fix="use a smaller --nproc-per-node",
            ) from error
    _conclude(supervisor, errors, reports)


def _conclude(supervisor: Supervisor, errors: Path, reports: Path) -> None:
    failures = supervisor.failures()
    if supervisor.stop_signal is not None and any(one.obeyed_signal for one in failures):
        # It ended as asked, with nothing to save. Its peers lost only it.
        failures = [one for one in failures if not one.obeyed_signal and one.remoteness < 2]
        if not failures and supervisor.stop_signal == signal.SIGINT:
            raise KeyboardInterrupt
        if not failures:
            raise SystemExit(128 + supervisor.stop_signal)
    for one in failures:
        failure.write_up(one, errors, reports)
    if failures:
        raise failures[0].to_error(errors)


def _supervisor(
    options: LaunchOptions, spec: Path, reports: Path, stops_cleanly: bool, server: ForkServer
) -> Supervisor:
    from torch.distributed.elastic.agent.server.api import WorkerSpec

    from paddock.launch.supervisor import Supervisor

    meeting = _meeting_point(options)
    job = WorkerSpec("rank", options.nproc_per_node, meeting, entrypoint=str(spec), max_restarts=0)
    return Supervisor(job, reports, server, options.nnodes, stops_cleanly)


def _meeting_point(options: LaunchOptions) -> RendezvousHandler:
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    store = open_store(options)
    meeting = StaticTCPRendezvous(store.host, store.port, options.node_rank, options.nnodes, "paddock", SECONDS_TO_MEET)
    meeting._store = store  # its own would listen on all interfaces
    return meeting


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
