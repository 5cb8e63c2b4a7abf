"""Run a function in one process or in many.

One process runs in place. Several are started by torch's elastic agent in this Python; under a user's own
torchrun the processes exist already, and each runs in place.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.devices.threads import threads_in_use
from paddock.errors import bad_value
from paddock.launch import failure
from paddock.launch.attempts import Job, run_attempts
from paddock.launch.environment import under_torchrun, world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.rendezvous.council import Policy
from paddock.launch.target import check_target, resolve
from paddock.phases import STARTING, left_to_machine_0, over, phase
from paddock.plugins import modules_for_workers

__all__ = ["run", "under_torchrun"]


def run(
    target: str,
    payload: dict[str, Any],
    options: LaunchOptions,
    run_dir: Path,
    *,
    stops_cleanly: bool = False,
    node_counts: Sequence[int] | None = None,
    asked: Mapping[str, str] | None = None,
) -> Any:
    """Call `target` ("paddock.module:function") with `payload` in every process, and wait for all of them.

    A target that `stops_cleanly` opens a StopRequest, and is waited for when it is asked to stop; what it returns says
    by `interrupted` whether it was. `node_counts` are the numbers of machines on which it can work, where those may
    change; `asked` is what the user wants done, which tells a machine of another job that comes in place of a lost one.
    When a process or a machine fails, and another attempt is allowed, all processes are begun anew with
    `payload["restart"]`: its number, the cause, and when that was known here.

    Returns when the job is done or has so stopped: what the target returned, plain values, in the first process of this
    machine. Raises what the first failing rank raised if that is a UserError, else WorkerFailed; KeyboardInterrupt or
    SystemExit if a signal ended it otherwise.
    """
    options.check()
    check_target(target)
    world_of(options)  # raises, where the environment is wrong, before anybody waits for others
    payload = json.loads(json.dumps(payload))  # in place or not, the target sees the same types
    if under_torchrun():
        return _run_as_rank(target, payload, options, run_dir)
    if options.world_size == 1 and not options.max_restarts:
        with phase(STARTING, at_once=True), threads_in_use(options.threads):
            return resolve(target)(payload)
    options = located(options)
    if options.elastic and node_counts is None:
        raise bad_value("--nnodes", options.nodes, "only training goes on as machines leave and come", "give a number")
    spec = {"target": target, "payload": payload, "stops_cleanly": stops_cleanly}
    spec |= {"modules": modules_for_workers(), "path": sys.path}
    counts = tuple(node_counts or [options.nnodes])
    own = dict(asked or {}) if options.replaces_machines else {}
    policy = Policy(counts, options.max_restarts, options.node_timeout, options.elastic, options.rdzv_id or "", own)
    words = f"{STARTING} {options.nproc_per_node} process{'es' * (options.nproc_per_node > 1)}"
    with left_to_machine_0(options.node_rank > 0), phase(words, at_once=True):
        try:
            return run_attempts(Job(spec, options, policy, run_dir))
        finally:
            over()  # nothing is starting any more, though whoever called us may have said so


def _run_as_rank(target: str, payload: dict[str, Any], options: LaunchOptions, run_dir: Path) -> Any:
    if options.world_size > 1 or options.max_restarts:
        flags = {"--nproc-per-node": options.nproc_per_node, "--nnodes": options.nnodes}
        given = {flag: number for flag, number in flags.items() if number > 1}
        flag, number = next(iter((given | {"--max-restarts": options.max_restarts}).items()))
        raise bad_value(
            flag, number, "torchrun has started the processes already", "give it to torchrun or to paddock, not to both"
        )
    try:
        with threads_in_use(options.threads):
            return resolve(target)(payload)
    except Exception as error:
        failure.record(error, int(os.environ["RANK"]), errors=run_dir / "errors")
        raise
