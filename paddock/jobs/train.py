"""Training a recipe: checks and preparation first, then the same work in every process."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.checkpoint.config import CheckpointConfig
from paddock.config.load import load_recipe, merge, to_yaml
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_recipe
from paddock.config.tokenizer_of_weights import tokenizer_place, with_tokenizer_of_weights
from paddock.errors import ConfigError
from paddock.files import user_path
from paddock.jobs.stored import find_place, kept, leads_job
from paddock.launch.environment import process_counts, under_torchrun, with_threads, world_of
from paddock.launch.nodes import agreed
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.preflight import check_same_data, check_writable, inspection
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.phases import STARTING, phase, speaks
from paddock.streams import outliving_readers
from paddock.versions import redacted

if TYPE_CHECKING:
    from paddock.launch.preflight import Inspection
    from paddock.parallel.world import World
    from paddock.planning.footprint import Footprint
    from paddock.tasks.task import Task
    from paddock.telemetry.jsonl import OnMetrics
    from paddock.telemetry.meter import ThroughputMeter
    from paddock.telemetry.stream import MetricStream, Sink
    from paddock.training.callbacks import Callback
    from paddock.training.run import Progress, TrainingRun


PRODUCTS = "products"
"""Of a run's environment: how it multiplies matrices."""


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
) -> TrainingOutcome:
    """Train over all the processes that `launch` asks for. `callbacks` are objects of this process, so they see a run
    that it makes itself; `on_metrics` hear of its records, wherever it runs. One who `resumes` a run wants it to get
    further: that it is at its end is then an error."""
    from paddock.devices import select
    from paddock.telemetry.trackers import check_tracker

    launch.check()
    launch = located(launch)
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
    node_counts = _node_counts(recipe, launch)
    arithmetic = check_recipe(recipe, launch.nproc_per_node * node_counts[-1] if launch.elastic else world_size)
    check_tracker(recipe.log.track)
    if recipe.checkpoint.load == "auto" and run_dir is None:
        raise ConfigError(
            "checkpoint.load = auto continues a run directory, and none is named", fix="set --run-dir DIR"
        )
    inspect = inspection(launch, recipe.train.device, recipe.to_dict())
    if inspect is None or inspect.finds_device:  # a machine without it has to tell the others
        check_device(recipe.parallel, select(recipe.train.device))
        launch = _with_threads(launch, recipe)
    address = None if remote is None else str(remote.address)
    job = Job(recipe, arithmetic, process_counts(launch), resumes, name, node_counts, address)
    with outliving_readers(), phase(STARTING, at_once=True):
        return _start(job, name, launch, run_dir, callbacks, on_metrics, inspect)


def _with_threads(launch: LaunchOptions, recipe: Recipe) -> LaunchOptions:
    """The options with a number of threads, where they compute; it is kept with the run, since products round by it."""
    import torch

    from paddock.devices import select

    if not select(recipe.train.device).computes_on_host:
        return launch
    return with_threads(launch, max(1, torch.get_num_threads() // launch.nproc_per_node))


@dataclass(frozen=True)
class Job:
    """What is to be trained, checked, before it has a directory."""

    recipe: Recipe
    arithmetic: Arithmetic
    processes: dict[str, int]
    """How many there are, as launch options."""
    resumes: bool
    name: str
    """What the user named: a recipe, or the run that goes on."""
    node_counts: Sequence[int]
    """Numbers of machines on which it can be trained."""
    address: str | None = None
    """Where a copy of its directory is kept, if it is."""


def _node_counts(recipe: Recipe, launch: LaunchOptions) -> list[int]:
    """Of an elastic job, the numbers of machines over which its recipe can be laid out: tensor and pipeline stay as
    they are, and `data` and the accumulation follow. An error, if there is none."""
    legal, refusal = [], None
    for nodes in range(launch.min_nodes or launch.nnodes, launch.nnodes + 1) if launch.elastic else ():
        try:
            check_recipe(recipe, nodes * launch.nproc_per_node)
        except ConfigError as error:
            refusal = error
        else:
            legal.append(nodes)
    if refusal is not None and not legal:
        raise refusal
    return legal or [launch.nnodes]


def _start(
    job: Job,
    name: str,
    launch: LaunchOptions,
    run_dir: Path | None,
    callbacks: Sequence[Callback],
    on_metrics: Sequence[OnMetrics],
    inspect: Inspection | None,
) -> TrainingOutcome:
    """Make or find the run directory, and let all processes begin."""
    from paddock.tasks.registry import build_task, prepare_data
    from paddock.telemetry.jsonl import MetricsFollower
    from paddock.training.callbacks import handed_over
    from paddock.training.run_directory import new_run_dir
    from paddock.training.run_lock import locked

    number = next(_runs_of_this_process)
    payload: dict[str, Any] = {"recipe": job.recipe.to_dict(), "number": number, "resumes": job.resumes, "name": name}
    payload["address"] = job.address
    payload["preflight"] = launch.preflight == "on" and job.processes["nnodes"] > 1  # under torchrun, too
    with ExitStack() as stack:

        def decide() -> str:
            place = run_dir or new_run_dir(name)
            lock = stack.enter_context(locked(place, _verb(job.resumes), is_new=run_dir is None))
            stack.enter_context(kept(job.address, place, _verb(job.resumes), job.recipe.checkpoint.keep))
            attempt, data = set_up(job, place)
            lock.share()
            return json.dumps([str(place), attempt, data])

        def follow(decision: str) -> None:
            """A machine with a filesystem of its own still has to find or build what it reads."""
            prepared, (place, attempt, data) = prepare_data(job.recipe), json.loads(decision)
            if payload["preflight"]:
                check_same_data(data, dict(build_task(job.recipe, prepared).fingerprint()))
                check_writable(place)
            _tell_if_apart(place, attempt)

        payload["callbacks"] = stack.enter_context(handed_over(callbacks))
        if under_torchrun():
            place = run_dir or _shared_run_dir(number, name)
        else:
            decided = json.loads(stack.enter_context(agreed(launch, decide, follow, inspect)))
            place, payload["attempt"] = Path(decided[0]), decided[1]
        payload["run_dir"] = str(place)
        stack.enter_context(MetricsFollower(place / "metrics.jsonl", on_metrics))
        target, counts = "paddock.jobs.train:work", job.node_counts
        ended = run(target, payload, launch, place, stops_cleanly=True, node_counts=counts)
        return TrainingOutcome(place, **ended, is_main=speaks() and launch.node_rank == 0)


def _tell_if_apart(place: str, attempt: int) -> None:
    """Say that this machine has a storage of its own, where it keeps what it writes."""
    from paddock.training.run_files import ATTEMPTS

    if not (Path(place) / ATTEMPTS / str(attempt)).is_dir():
        words = "its part of checkpoints, and errors of its processes, stay here in"
        print(
            f"note: this machine does not share {place} with machine 0; {words} {Path(place).absolute()}",
            file=sys.stderr,
        )


def _verb(resumes: bool) -> str:
    return "resume" if resumes else "train"


_runs_of_this_process = count()
"""Numbers them, in every process and in every attempt alike: by its number an attempt knows a run of the last one."""


def _shared_run_dir(number: int, name: str) -> Path:
    """Under torchrun: rank 0 makes the directory, in the first attempt, and everybody learns its name. Where no store
    tells it before all have met, the others may leave the traces of an early failure elsewhere."""
    from paddock.parallel.attempts import said_by_main
    from paddock.training.run_directory import name_run_dir, new_run_dir

    said = said_by_main(f"directory of run {number}", lambda: str(new_run_dir(name)))
    return name_run_dir(name) if said is None else Path(said)


def set_up(job: Job, run_dir: Path) -> tuple[int, dict[str, Any]]:
    """What one process does before all begin: weights and data, looked at once, and the run directory, which it has
    locked. Returns the number of the attempt, and what tells the data from others."""
    from paddock.devices import select
    from paddock.planning.concerns import Plan
    from paddock.tasks.registry import build_task, prepare_data
    from paddock.training.preflight import check_end, check_labels, check_origin
    from paddock.training.run import step_limits
    from paddock.training.run_directory import check_run_dir, make_run_dir

    recipe = job.recipe
    goes_on = continues(recipe.checkpoint, run_dir)
    check_run_dir(run_dir, goes_on)
    if goes_on:
        _check_beginning(run_dir)
    origin = check_origin(recipe, run_dir, goes_on)
    with phase("preparing data", at_once=True):
        prepared = prepare_data(recipe)
        check_labels(recipe, prepared.classes)
        task = build_task(recipe, prepared)
    origin.check_samples(recipe, task)
    limits = step_limits(recipe, job.arithmetic, task.training_samples().samples_per_epoch)
    check_end(origin.step, limits, str(run_dir if goes_on else recipe.checkpoint.load), goes_on, job.resumes)
    held_out = None if recipe.evaluate.every is None else len(task.validation_samples())
    steps_per_epoch = task.training_samples().samples_per_epoch / job.arithmetic.batch.total
    plan = Plan(recipe, run_dir, origin.step, min(limits.values()), steps_per_epoch, held_out)
    for concern in plan.concerns(select(recipe.train.device)):
        print(f"warning: {concern}", file=sys.stderr)
    for note in task.notes():
        print(f"note: {note}", file=sys.stderr)
    return make_run_dir(run_dir, to_yaml(recipe), prepared, _environment(job)), dict(task.fingerprint())


def _environment(job: Job) -> dict[str, Any]:
    """What is kept of how a run was started; `paddock resume` starts as many processes again."""
    return {"command": redacted(sys.argv), "recipe": job.name, "processes": job.processes}


def _check_beginning(run_dir: Path) -> None:
    """An error, if a run that began from weights would begin anew from random ones: it has no checkpoint yet."""
    from paddock.training.run_directory import CONFIG

    config = run_dir / CONFIG
    began = load_recipe(config).checkpoint if config.is_file() and not has_checkpoint(run_dir) else None
    if began is not None and began.load not in (None, "auto"):
        raise ConfigError(
            f"{run_dir} has no checkpoint yet to go on from",
            why=f"it was to begin from {began.load}, and would begin from random weights",
            fix=f"begin it again in another --run-dir, with --checkpoint.load {began.load}",
        )


def continues(checkpoint: CheckpointConfig, run_dir: Path) -> bool:
    """Whether this run goes on in its own directory."""
    load = checkpoint.load
    if load is None or load == "auto":
        return load == "auto"
    holds_others = (run_dir / "config.json").is_file()  # a Hugging Face folder, which a run begins from
    return user_path(load).resolve() == run_dir.resolve() and not holds_others


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """One process's part in a training run. Returns what ended it."""
    from paddock.devices import select
    from paddock.launch.stop import StopRequest
    from paddock.launch.watchdog import watching
    from paddock.parallel.preflight import examine
    from paddock.parallel.world import join_world
    from paddock.tasks.registry import prepare_data
    from paddock.telemetry.busy import busy_seconds
    from paddock.telemetry.meter import WARMUP, ThroughputMeter
    from paddock.telemetry.stream import MetricStream
    from paddock.training.callbacks import callbacks_kept
    from paddock.training.callbacks.pipeline_times import PipelineTimes
    from paddock.training.callbacks.recovery import Recovery
    from paddock.training.callbacks.stragglers import Stragglers
    from paddock.training.loop import TrainingLoop
    from paddock.training.run import TrainingRun

    recipe = recipe_from_dict(payload["recipe"])
    with (
        outliving_readers(),
        StopRequest() as stop,
        join_world(select(recipe.train.device), recipe.device.fallback) as world,
        _begun_attempt(payload, recipe, world) as (recipe, run_dir, attempt),
        watching(recipe.train.hang_timeout, world, run_dir),
        _kept_products(recipe, world, run_dir, attempt) as products,
    ):
        if payload["preflight"]:
            examined = examine(world)
            if world.is_main:
                print(f"preflight: {examined}", file=sys.stderr)
        arithmetic = check_recipe(recipe, world.size)
        stragglers, recovery = Stragglers(), [Recovery(payload["restart"]["seen"])] if "restart" in payload else []
        with phase("building the model", at_once=True):
            run = TrainingRun(
                recipe,
                arithmetic,
                prepare_data(recipe),
                run_dir,
                world,
                continues=continues(recipe.checkpoint, run_dir),
                callbacks=[*callbacks_kept(payload["callbacks"]), PipelineTimes(), stragglers, *recovery],
                stop_requested=lambda: stop.requested,
            )
        _note_facts(run, arithmetic, attempt)
        peak = _peak_flops(run)
        _show_beginning(run, arithmetic, peak, products)
        # Of a run of two or three steps, which shows that something works, the last one is timed, warm or not.
        warmup = min(WARMUP, max(run.total_steps - run.begun_step - 1, 0))
        busy = busy_seconds if world.adapter.computes_on_host else None
        meter = ThroughputMeter(warmup, peak_flops=peak, devices=world.size, busy=busy)
        started = time.perf_counter()
        with MetricStream(_sinks(run, attempt)) as stream:
            _describe_metrics(stream, run.task)
            if recovery:
                stream.metadata("train.recovery_time", unit="s", goal="MINIMIZE", stage="TRAIN")
            stragglers.say = stream.message
            with run.checkpoints:
                progress = TrainingLoop(run, stream, meter).train()
            summary = _summary(run, meter)
            stream.log((), summary)
        if world.is_main:
            _show_end(run, progress, summary, time.perf_counter() - started)
        return {"stopped_by": progress.stopped_by, "interrupted": progress.interrupted}


@contextmanager
def _begun_attempt(payload: dict[str, Any], recipe: Recipe, world: World) -> Iterator[tuple[Recipe, Path, int]]:
    """Rank 0 holds the run directory, in which a launcher has set up the run, or does so now; an agent that started all
    processes anew begins another attempt. Gives the recipe that this attempt goes by, the directory, and on rank 0 the
    attempt's number."""
    from paddock.checkpoint.storage import run_together
    from paddock.parallel.attempts import is_noted, note
    from paddock.training.run_directory import begin_attempt
    from paddock.training.run_lock import joined, locked

    run_dir, attempt = Path(world.broadcast(payload["run_dir"])), payload.get("attempt", 0)
    topic = f"run {payload['number']} is set up"
    restart = payload.get("restart")  # by our own launcher, which has set up the run; torchrun's counts in its store
    is_restart = restart is not None or world.broadcast(str(is_noted(topic))) == "True"
    if is_restart:
        recipe = restarted(recipe, world.broadcast(str(has_checkpoint(run_dir))) == "True")

    def begin() -> None:
        nonlocal attempt
        if attempt and restart is None:
            stack.enter_context(joined(run_dir))
            return
        stack.enter_context(joined(run_dir) if attempt else locked(run_dir, _verb(payload["resumes"])))
        counts = process_counts(LaunchOptions())
        resumes, address = payload["resumes"], payload["address"]
        job = Job(recipe, check_recipe(recipe, world.size), counts, resumes, payload["name"], (), address)
        stack.enter_context(kept(address, run_dir, _verb(resumes), recipe.checkpoint.keep))
        facts = _environment(job) | ({} if restart is None else {"restart": restart})
        attempt = begin_attempt(run_dir, to_yaml(recipe), facts) if is_restart else set_up(job, run_dir)[0]
        if restart is None:
            note(topic)

    with ExitStack() as stack:
        run_together(begin if world.is_main else None)
        yield recipe, run_dir, attempt


@contextmanager
def _kept_products(recipe: Recipe, world: World, run_dir: Path, attempt: int) -> Iterator[dict[str, Any]]:
    """Matrix products as the run's first attempt chose them, so that a run that goes on rounds as one that was never
    stopped. What is chosen is kept with the attempt."""
    from paddock.training.run import chosen_products
    from paddock.training.run_directory import earlier_environment, note_environment

    kept = earlier_environment(run_dir, attempt).get(PRODUCTS) if world.is_main else None
    with chosen_products(recipe, world, kept) as products:
        if world.is_main:
            note_environment(run_dir, attempt, {PRODUCTS: products})
        yield products


def _note_facts(run: TrainingRun, arithmetic: Arithmetic, attempt: int) -> None:
    """Keep with the attempt what decides whether two runs can be compared, and is known only now."""
    from paddock.training.run_directory import note_environment

    if run.world.is_main:
        facts = {"device": run.world.adapter.name, "total_steps": run.total_steps, "data_position": run.data_position}
        facts |= {"processes": process_counts(LaunchOptions()), "layout": str(arithmetic.layout)}
        note_environment(run.run_dir, attempt, facts)


def restarted(recipe: Recipe, has_checkpoint: bool) -> Recipe:
    """The recipe of an attempt after the first: it goes on in its own directory, if it came to a checkpoint."""
    if not has_checkpoint:
        return recipe
    checkpoint = {"load": "auto", "weights_only": False, "resume": False}
    return recipe_from_dict(merge(recipe.to_dict(), {"checkpoint": checkpoint}))


def has_checkpoint(run_dir: Path) -> bool:
    """Whether there is anything to go on from."""
    from paddock.checkpoint.directory import CheckpointDirectory

    return CheckpointDirectory(run_dir, keep=None, is_main=False).latest() is not None


def _sinks(run: TrainingRun, attempt: int) -> list[Sink]:
    """Where metrics go: of the main process alone."""
    from paddock.telemetry.console import ConsoleSink
    from paddock.telemetry.jsonl import JsonLinesSink
    from paddock.telemetry.logfile import LogFileSink
    from paddock.telemetry.tensorboard import TensorBoardSink
    from paddock.telemetry.trackers import Tracked, TrackerSink

    if not run.world.is_main:
        return []
    step, log = run.progress.step, run.recipe.log
    sinks: list[Sink] = [
        JsonLinesSink(run.run_dir / "metrics.jsonl", attempt=attempt, resume_step=step),
        LogFileSink(run.run_dir / "log.txt", run.total_steps),
        ConsoleSink(run.total_steps, start_step=step),
    ]
    if log.file is not None:
        sinks.append(LogFileSink(Path(log.file), run.total_steps))
    if log.tensorboard:
        sinks.append(TensorBoardSink(run.run_dir / "tensorboard", resume_step=step))
    if log.track is not None:
        sinks.append(TrackerSink(log.track, Tracked(run.run_dir, log.project, run.recipe.to_dict())))
    return sinks


def _describe_metrics(stream: MetricStream, task: Task) -> None:
    """Units and goals, for readers of metrics.jsonl."""
    stream.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.lr", stage="TRAIN")
    stream.metadata("train.grad_norm", stage="TRAIN")
    what = "samples" if task.reads_tokens else "images"
    stream.metadata("train.ips", unit=f"{what}/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.tokens_per_second", unit="tokens/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.tokens_per_second_per_device", unit="tokens/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.step_time", unit="s", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.data_time", unit="s", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.own_time", unit="s", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.achieved_flops", unit="FLOP/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.memory", unit="bytes", stage="TRAIN")
    for name, goal in task.measures.items():
        stream.metadata(f"val.{name}", goal=goal, stage="VAL")


def _summary(run: TrainingRun, meter: ThroughputMeter) -> dict[str, float]:
    """Averages over the whole run, and its best evaluation."""
    summary = {f"summary.{name}": value for name, value in meter.summary().items()}
    best = run.progress.best.get(next(iter(run.task.measures)))
    if best is not None:
        summary["summary.best_metric"] = best
    if run.progress.skipped:
        summary["summary.skipped_samples"] = run.progress.skipped
    return summary


def _peak_flops(run: TrainingRun) -> float | None:
    """The devices' peak over the whole job, if it is known or may be measured."""
    from paddock.devices import measure_gemm_flops

    adapter, compute = run.world.adapter, run.recipe.precision.compute
    peak = adapter.peak_flops(compute)
    if peak is None and run.recipe.log.measure_peak:
        peak = measure_gemm_flops(adapter, compute)
    return None if peak is None else peak * run.world.size


def _show_beginning(run: TrainingRun, arithmetic: Arithmetic, peak: float | None, products: Mapping[str, Any]) -> None:
    """The card of what is about to happen. All processes say what they hold; of every place in the pipeline, the one
    that holds most is shown."""
    from paddock.planning.footprint import Footprint, footprint
    from paddock.telemetry.cards import run_card

    world = run.world
    told = world.all_gather(json.dumps(asdict(footprint(run.recipe, arithmetic, run.engine))))
    if world.is_main:
        everyone = [Footprint(**json.loads(text)) for text in told]
        width = world.size // arithmetic.layout.pipeline
        places = [everyone[first : first + width] for first in range(0, world.size, width)]
        shares = [max(place, key=lambda share: share.memory) for place in places]
        run_card(f"train {run.recipe.model.family}", _card(run, arithmetic, peak, products, shares))


def _card(
    run: TrainingRun,
    arithmetic: Arithmetic,
    peak: float | None,
    products: Mapping[str, Any],
    shares: Sequence[Footprint],
) -> list[tuple[str, str]]:
    import torch

    from paddock.planning.footprint import bubble_of, draw
    from paddock.telemetry import format as show

    recipe, world = run.recipe, run.world
    number = torch.get_num_threads()
    each = " each" if world.size > 1 else ""
    threads = f", {number} thread{'s' if number > 1 else ''}{each}" if world.adapter.computes_on_host else ""
    ways = sorted({way for by_rows in products.get("ways", {}).values() for way in by_rows.values()})
    threads += f", products by {' and '.join(ways)}" if ways else ""
    memory = show.bytes_(max(share.memory for share in shares))
    rows = [
        ("model", f"{recipe.model.family}, {show.count(recipe.model.num_parameters())} parameters"),
        ("layout", f"{arithmetic.layout} = {world.size} process{'es' if world.size > 1 else ''}"),
        ("batch", f"{arithmetic.batch}; {recipe.data.describe_sample()}"),
        ("data", recipe.data.describe()),
        ("steps", f"{run.progress.step} → {run.total_steps}"),
        ("begins from", run.begun_from),
        *(("changed", change) for change in run.changes),
        ("device", f"{world.adapter.name}{threads}" + (f", peak {show.flops(peak)}" if peak else "")),
        ("precision", recipe.precision.compute + (", compiled" if run.compiled else "") + _slowness(run)),
        ("memory", f"{memory} a process for weights, gradients and optimizer, before activations"),
        ("run", str(run.run_dir)),
    ]
    if world.size > 1:
        wait = f"each waits {show.percent(bubble_of(recipe, arithmetic))} of a step for the others"
        words = [f"shard {recipe.parallel.shard}", f"recompute {recipe.parallel.recompute}"]
        words += [recipe.parallel.schedule, wait] if arithmetic.layout.pipeline > 1 else []
        rows.insert(2, ("ranks", "\n".join([", ".join(words), *draw(arithmetic, shares)])))
    return rows


def _slowness(run: TrainingRun) -> str:
    """A warning, where a type is computed by way of another: mixed precision then costs time and saves none."""
    adapter, compute = run.world.adapter, run.recipe.precision.compute
    if adapter.has_instructions_for(compute) is False:
        expected = adapter.slow_types.get(compute, "slower than float32")
        return f"; {adapter.device_name()} has no {compute} instructions: expect it to be {expected}"
    return ""


def _show_end(run: TrainingRun, progress: Progress, summary: dict[str, float], seconds: float) -> None:
    """The card of what came of it, with the commands to try next."""
    from paddock.launch.stop import REGROUPING
    from paddock.telemetry import format as show
    from paddock.telemetry.cards import end_card

    trained = progress.step > run.begun_step
    rows = [("loss", f"{progress.loss:.4f} at step {progress.step}")] if trained else []
    if progress.best:
        best = ", ".join(f"{name} {value:.4f}" for name, value in progress.best.items())
        rows.append(("best", f"{best} at step {progress.best_step}"))
    if "summary.tokens_per_second" in summary:
        rows.append(("tokens/s", show.rate(summary["summary.tokens_per_second"])))
    if run.loss_scale.skipped:
        rows.append(("skipped", f"steps whose gradients float16 could not hold: {run.loss_scale.skipped}"))
    if progress.skipped:
        rows.append(("skipped", f"training samples that could not be read, and were replaced: {progress.skipped}"))
    rows += [("time", show.duration(seconds)), ("run", str(run.run_dir))]
    name = shlex.quote(str(run.run_dir))
    if progress.stopped_by is None:
        tries = [f"paddock {run.task.next_command.format(run=name)}"] if run.can_be_tried else []
        title = "done" if trained else f"nothing to do: the run is at its last step, {progress.step}, already"
        end_card(title, rows, [*tries, f"paddock evaluate {name}"])
    elif progress.stopped_by == REGROUPING:
        end_card(f"{REGROUPING}: what is done is saved, and the run goes on with them", rows, [])
    elif run.checkpoints.latest() is None:
        end_card(f"stopped by {progress.stopped_by} before the first step; there is nothing to save", rows, [])
    else:
        several = process_counts(LaunchOptions())["nnodes"] > 1
        go_on = f"paddock resume {name}" + (" --node-rank … --master-addr …" if several else "")
        end_card(f"stopped by {progress.stopped_by}; a checkpoint is saved", rows, [go_on])
