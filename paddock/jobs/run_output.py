"""What a training run tells: the cards at its beginning and its end, and its metrics, wherever they go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.rules import Arithmetic
from paddock.files import shell_word
from paddock.launch.environment import process_counts
from paddock.launch.options import LaunchOptions
from paddock.training.run_directory.files import LOG, METRICS

if TYPE_CHECKING:
    from paddock.planning.footprint import Footprint
    from paddock.tasks.task import Task
    from paddock.telemetry.meter import ThroughputMeter
    from paddock.telemetry.screen.cards import Row
    from paddock.telemetry.stream import MetricStream, Sink
    from paddock.training.run import Progress, TrainingRun


def describe_metrics(stream: MetricStream, task: Task) -> None:
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


def sinks_of(run: TrainingRun, attempt: int) -> list[Sink]:
    """Where metrics go: of the main process alone."""
    from paddock.telemetry.jsonl import JsonLinesSink
    from paddock.telemetry.logfile import LogFileSink
    from paddock.telemetry.screen.console import ConsoleSink
    from paddock.telemetry.tensorboard import TensorBoardSink
    from paddock.telemetry.trackers import Tracked, TrackerSink

    if not run.world.is_main:
        return []
    step, log = run.progress.step, run.recipe.log
    sinks: list[Sink] = [
        JsonLinesSink(run.run_dir / METRICS, attempt=attempt, resume_step=step),
        LogFileSink(run.run_dir / LOG, run.total_steps),
        ConsoleSink(run.total_steps, start_step=step),
    ]
    if log.file is not None:
        sinks.append(LogFileSink(Path(log.file), run.total_steps))
    if log.tensorboard:
        sinks.append(TensorBoardSink(run.run_dir / "tensorboard", resume_step=step))
    if log.track is not None:
        sinks.append(TrackerSink(log.track, Tracked(run.run_dir, log.project, run.recipe.to_dict())))
    return sinks


def peak_flops(run: TrainingRun) -> float | None:
    """The devices' peak over the whole job, if it is known or may be measured."""
    from paddock.devices import measure_gemm_flops

    adapter, compute = run.world.adapter, run.recipe.precision.compute
    peak = adapter.peak_flops(compute)
    if peak is None and run.recipe.log.measure_peak:
        peak = measure_gemm_flops(adapter, compute)
    return None if peak is None else peak * run.world.size


def show_beginning(run: TrainingRun, arithmetic: Arithmetic, peak: float | None, products: Mapping[str, Any]) -> None:
    """The card of what is about to happen. All processes say what they hold; of every place in the pipeline, the one
    that holds most is shown."""
    from paddock.planning.footprint import Footprint, footprint
    from paddock.telemetry.screen.cards import run_card

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
) -> list[Row]:
    import torch

    from paddock.planning.concerns import Plan
    from paddock.planning.footprint import bubble_of, draw
    from paddock.telemetry import format as show

    recipe, world = run.recipe, run.world
    number = torch.get_num_threads()
    each = " each" if world.size > 1 else ""
    threads = f", {number} thread{'s' if number > 1 else ''}{each}" if world.adapter.computes_on_host else ""
    ways = sorted({way for by_rows in products.get("ways", {}).values() for way in by_rows.values()})
    threads += f", products by {' and '.join(ways)}" if ways else ""
    memory = f"{show.bytes_(max(share.memory for share in shares))} a process for weights, gradients and optimizer"
    activations = shares[0].activations
    memory += ", before activations" if activations is None else f"; activations about {show.bytes_(activations)}"
    plan = Plan(recipe, run.run_dir, run.begun_step, run.total_steps, run.steps_per_epoch, None)
    rows: list[Row] = [
        ("model", f"{recipe.model.family}, {show.count(recipe.model.num_parameters())} parameters"),
        ("layout", f"{arithmetic.layout} = {world.size} process{'es' if world.size > 1 else ''}"),
        ("batch", f"{arithmetic.batch}; {recipe.data.describe_sample()}"),
        ("data", recipe.data.describe()),
        ("steps", f"{run.progress.step} → {run.total_steps}"),
        ("begins from", run.begun_from),
        *(("changed", change) for change in run.changes),
        ("device", f"{world.adapter.name}{threads}" + (f", peak {show.flops(peak)}" if peak else "")),
        ("precision", recipe.precision.compute + (", compiled" if run.compiled else "") + _slowness(run)),
        ("memory", memory),
        ("disk", plan.disk()),
        ("run", str(run.run_dir)),
    ]
    if world.size > 1:
        wait = f"each waits {show.percent(bubble_of(recipe, arithmetic))} of a step for the others"
        words = [f"shard {recipe.parallel.shard}", f"recompute {recipe.parallel.recompute}"]
        words += [recipe.parallel.schedule, wait] if arithmetic.layout.pipeline > 1 else []
        rows.insert(2, ("ranks", lambda room: "\n".join([", ".join(words), *draw(arithmetic, shares, room)])))
    return rows


def _slowness(run: TrainingRun) -> str:
    """A warning, where a type is computed by way of another: mixed precision then costs time and saves none."""
    adapter, compute = run.world.adapter, run.recipe.precision.compute
    if adapter.has_instructions_for(compute) is False:
        expected = adapter.slow_types.get(compute, "slower than float32")
        return f"; {adapter.device_name()} has no {compute} instructions: expect it to be {expected}"
    return ""


def summarize(run: TrainingRun, meter: ThroughputMeter) -> dict[str, float]:
    """Averages over the whole run, and its best evaluation."""
    summary = {f"summary.{name}": value for name, value in meter.summary().items()}
    best = run.progress.best.get(next(iter(run.task.measures)))
    if best is not None:
        summary["summary.best_metric"] = best
    if run.progress.skipped:
        summary["summary.skipped_samples"] = run.progress.skipped
    return summary


def show_end(run: TrainingRun, progress: Progress, summary: dict[str, float], seconds: float) -> None:
    """The card of what came of it, with the commands to try next."""
    from paddock.launch.stop import REGROUPING
    from paddock.telemetry import format as show
    from paddock.telemetry.screen.cards import end_card

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
    name = shell_word(run.run_dir)
    if progress.stopped_by is None:
        tries = [f"paddock {run.task.next_command.format(run=name)}"] if run.can_be_tried else []
        title = "done" if trained else f"nothing to do: the run is at its last step, {progress.step}, already"
        looks = f"paddock {'evaluate' if run.task.recipe_is_whole else 'report'} {name}"
        end_card(title, rows, [*tries, looks])
    elif progress.stopped_by == REGROUPING:
        end_card(f"{REGROUPING}: what is done is saved, and the run goes on with them", rows, [])
    elif run.checkpoints.latest() is None:
        end_card(f"stopped by {progress.stopped_by} before the first step; there is nothing to save", rows, [])
    else:
        several = process_counts(LaunchOptions())["nnodes"] > 1
        go_on = f"paddock resume {name}" + (" --node-rank … --master-addr …" if several else "")
        end_card(f"stopped by {progress.stopped_by}; a checkpoint is saved", rows, [go_on])
