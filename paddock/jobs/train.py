"""Training a recipe: checks and preparation first, then the same work in every process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.config.tokenizer_of_weights import tokenizer_place, with_tokenizer_of_weights
from paddock.errors import ConfigError
from paddock.jobs.attempt import Job, asked_of, begun_attempt, continues, kept_products, note_facts, set_up, verb
from paddock.jobs.run_output import describe_metrics, peak_flops, show_beginning, show_end, sinks_of, summarize
from paddock.jobs.stored import find_place, kept, leads_job
from paddock.launch.environment import process_counts, under_torchrun, with_free_threads, world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.preflight import check_same_data, check_writable, inspection
from paddock.launch.rendezvous.nodes import agreed
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.phases import is_main_process, phase, starting
from paddock.planning.elastic import node_counts
from paddock.streams import outliving_readers

if TYPE_CHECKING:
    from paddock.launch.preflight import Inspection
    from paddock.telemetry.jsonl import OnMetrics
    from paddock.training.callbacks import Callback


@dataclass(frozen=True)
class TrainingOutcome:
    """Where a run is, and whether it came to its end."""

    run_dir: Path
    stopped_by: str | None
    """What ended it before its last step: a signal's name, or what a callback said."""
    interrupted: bool
    """Whether that was a signal: it has saved what it had, and can go on."""
    is_main: bool = True
    """Whether this is the process, of all that return from the run, whose machine has its files."""


def train(
    name: str,
    recipe: Recipe,
    launch: LaunchOptions,
    run_dir: str | Path | None,
    *,
    callbacks: Sequence[Callback] = (),
    on_metrics: Sequence[OnMetrics] = (),
    resumes: bool = False,
    on_begin: Callable[[Path], None] = lambda run_dir: None,
) -> TrainingOutcome:
    """Train over all the processes that `launch` asks for. `callbacks` are objects of this process, so they see a run
    that it makes itself; `on_metrics` hear of its records, wherever it runs. One who `resumes` a run wants it to get
    further: that it is at its end is then an error. `on_begin` hears where the run is, before its first step."""
    launch.check()
    launch = located(launch)
    with outliving_readers(), starting(launch.node_rank):
        from paddock.devices import select
        from paddock.telemetry.trackers import check_tracker

        world_size = world_of(launch)
        if callbacks and (launch.world_size > 1 or launch.max_restarts) and not under_torchrun():
            others = f"{launch.world_size} others are" if launch.world_size > 1 else "another one is"
            raise ConfigError(
                f"{type(callbacks[0]).__name__} is an object of this process",
                why=f"{others} started, and would not have it",
                fix="register its class (register_callback) in a module of its own, and name it in train.callbacks",
            )
        recipe, run_dir, remote = find_place(recipe, run_dir)
        own, source = recipe.tokenizer, recipe.checkpoint.load
        goes_on = run_dir is not None and continues(recipe.checkpoint, run_dir)
        if remote is not None:
            remote.prepare(goes_on, leads=leads_job(launch))
        recipe = with_tokenizer_of_weights(recipe, run_dir if goes_on else source)
        if recipe.tokenizer != own and not goes_on and not under_torchrun():
            print(f"note: the tokenizer is that of {tokenizer_place(recipe.tokenizer)}", file=sys.stderr)
        counts = node_counts(recipe, launch)
        arithmetic = check_recipe(recipe, launch.nproc_per_node * counts[-1] if launch.elastic else world_size)
        check_tracker(recipe.log.track)
        if recipe.checkpoint.load == "auto" and run_dir is None:
            raise ConfigError(
                "checkpoint.load = auto continues a run directory, and none is named", fix="set --run-dir DIR"
            )
        inspect = inspection(launch, recipe.train.device, recipe.to_dict())
        if inspect is None or inspect.finds_device:  # a machine without it has to tell the others
            check_device(recipe.parallel, select(recipe.train.device))
            launch = with_free_threads(launch, recipe.train.device)  # kept with the run: products round by it
        address = None if remote is None else str(remote.address)
        job = Job(recipe, arithmetic, process_counts(launch), resumes, name, counts, address)
        return _start(job, name, launch, run_dir, callbacks, on_metrics, inspect, on_begin)


_runs_of_this_process = count()
"""Numbers them, in every process and in every attempt alike: by its number an attempt knows a run of the last one."""


def _start(
    job: Job,
    name: str,
    launch: LaunchOptions,
    run_dir: Path | None,
    callbacks: Sequence[Callback],
    on_metrics: Sequence[OnMetrics],
    inspect: Inspection | None,
    on_begin: Callable[[Path], None],
) -> TrainingOutcome:
    """Make or find the run directory, and let all processes begin."""
    from paddock.tasks.registry import build_task, prepare_data
    from paddock.telemetry.jsonl import MetricsFollower
    from paddock.training.callbacks import handed_over
    from paddock.training.callbacks.stop_requests import stop_requests
    from paddock.training.run_directory.directory import new_run_dir
    from paddock.training.run_directory.lock import joined, locked

    number = next(_runs_of_this_process)
    payload: dict[str, Any] = {"recipe": job.recipe.to_dict(), "number": number, "resumes": job.resumes, "name": name}
    payload |= {"address": job.address, "threads": job.processes.get("threads")}
    payload["preflight"] = launch.preflight == "on" and job.processes["nnodes"] > 1  # under torchrun, too
    with ExitStack() as stack:

        def decide() -> str:
            place = run_dir or new_run_dir(name)
            lock = stack.enter_context(locked(place, verb(job.resumes), is_new=run_dir is None))
            stack.enter_context(kept(job.address, place, verb(job.resumes), job.recipe.checkpoint.keep))
            attempt, data = set_up(job, place)
            lock.share()
            return json.dumps([str(place), attempt, data])

        def follow(decision: str) -> None:
            """A machine with a filesystem of its own still has to find or build what it reads; and machine 0, whose
            launcher has died and been started again, holds and copies the run as before."""
            prepared, (place, attempt, data) = prepare_data(job.recipe), json.loads(decision)
            if launch.node_rank == 0 and not launch.elastic:
                stack.enter_context(joined(Path(place)))
                stack.enter_context(kept(job.address, Path(place), verb(job.resumes), job.recipe.checkpoint.keep))
            if payload["preflight"]:
                check_same_data(data, dict(build_task(job.recipe, prepared).fingerprint()))
                check_writable(place)
            _tell_if_apart(place, attempt)

        payload["callbacks"] = stack.enter_context(handed_over(callbacks))
        if under_torchrun():
            place = run_dir or _shared_run_dir(number, name)
        else:
            asked = asked_of(job.recipe, run_dir)
            decided = json.loads(stack.enter_context(agreed(launch, decide, follow, inspect, asked)))
            place, payload["attempt"] = Path(decided[0]), decided[1]
        payload["run_dir"] = str(place)
        on_begin(place)
        if on_metrics:
            payload["listened"] = True
            ask_to_stop = stack.enter_context(stop_requests(place))
            stack.enter_context(MetricsFollower(place / "metrics.jsonl", on_metrics, ask_to_stop))
        ended = run(
            "paddock.jobs.train:work",
            payload,
            launch,
            place,
            stops_cleanly=True,
            node_counts=job.node_counts,
            asked=asked_of(job.recipe, place),
        )
        return TrainingOutcome(place, **ended, is_main=is_main_process() and launch.node_rank == 0)


def _tell_if_apart(place: str, attempt: int) -> None:
    """Say that this machine has a storage of its own, where it keeps what it writes."""
    from paddock.training.run_directory.files import ATTEMPTS

    if not (Path(place) / ATTEMPTS / str(attempt)).is_dir():
        words = "its part of checkpoints, and errors of its processes, stay here in"
        print(
            f"note: this machine does not share {place} with machine 0; {words} {Path(place).absolute()}",
            file=sys.stderr,
        )


def _shared_run_dir(number: int, name: str) -> Path:
    """Under torchrun: rank 0 makes the directory, in the first attempt, and everybody learns its name. Where no store
    tells it before all have met, the others may leave the traces of an early failure elsewhere."""
    from paddock.parallel.attempts import said_by_main
    from paddock.training.run_directory.directory import name_run_dir, new_run_dir

    said = said_by_main(f"directory of run {number}", lambda: str(new_run_dir(name)))
    return name_run_dir(name) if said is None else Path(said)


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """One process's part in a training run. Returns what ended it."""
    from paddock.devices import select
    from paddock.launch.stop import StopRequest
    from paddock.launch.watchdog.watch import watching
    from paddock.parallel.preflight import examine
    from paddock.parallel.world import join_world
    from paddock.tasks.registry import prepare_data
    from paddock.telemetry.meter import WARMUP, ThroughputMeter
    from paddock.telemetry.stream import MetricStream
    from paddock.telemetry.thread_time import thread_seconds
    from paddock.training.callbacks import Callback, callbacks_kept
    from paddock.training.callbacks.pipeline_times import PipelineTimes
    from paddock.training.callbacks.recovery import Recovery
    from paddock.training.callbacks.stop_requests import StopRequests
    from paddock.training.callbacks.stragglers import Stragglers
    from paddock.training.loop import TrainingLoop
    from paddock.training.run import TrainingRun

    recipe = recipe_from_dict(payload["recipe"])
    with (
        outliving_readers(),
        StopRequest() as stop,
        join_world(select(recipe.train.device), recipe.device.fallback) as world,
        begun_attempt(payload, recipe, world) as (recipe, run_dir, attempt),
        watching(recipe.train.hang_timeout, world, run_dir),
        kept_products(recipe, world, run_dir, attempt) as products,
    ):
        if payload["preflight"]:
            examined = examine(world)
            if world.is_main:
                print(f"preflight: {examined}", file=sys.stderr)
        arithmetic = check_recipe(recipe, world.size)
        stragglers, others = Stragglers(), list[Callback]()
        if "restart" in payload:
            others.append(Recovery(payload["restart"]["seen"]))
        if "listened" in payload:
            others.append(StopRequests())
        with phase("building the model", at_once=True):
            run = TrainingRun(
                recipe,
                arithmetic,
                prepare_data(recipe),
                run_dir,
                world,
                continues=continues(recipe.checkpoint, run_dir),
                falls_back="restart" in payload,
                callbacks=[*callbacks_kept(payload["callbacks"]), PipelineTimes(), stragglers, *others],
                stop_requested=lambda: stop.requested,
            )
        note_facts(run, arithmetic, attempt, payload["threads"])
        peak = peak_flops(run)
        show_beginning(run, arithmetic, peak, products)
        # Of a run of two or three steps, which shows that something works, the last one is timed, warm or not.
        warmup = min(WARMUP, max(run.total_steps - run.begun_step - 1, 0))
        busy = thread_seconds if world.adapter.computes_on_host else None
        meter = ThroughputMeter(warmup, peak_flops=peak, devices=world.size, busy=busy)
        started = time.perf_counter()
        with MetricStream(sinks_of(run, attempt)) as stream:
            describe_metrics(stream, run.task)
            if "restart" in payload:
                stream.metadata("train.recovery_time", unit="s", goal="MINIMIZE", stage="TRAIN")
            stragglers.say = stream.message
            with run.checkpoints:
                progress = TrainingLoop(run, stream, meter).train()
            summary = summarize(run, meter)
            stream.log((), summary)
        if world.is_main:
            show_end(run, progress, summary, time.perf_counter() - started)
        return {"stopped_by": progress.stopped_by, "interrupted": progress.interrupted}
