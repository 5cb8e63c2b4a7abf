"""How fast a recipe's model computes here: random samples that never change, real steps, and a counted number of
operations. Needs no data and writes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_layout
from paddock.errors import bad_value
from paddock.files import atomic_write, scratch_folder
from paddock.launch.environment import world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.tasks.rules import sequence_fits
from paddock.versions import versions

if TYPE_CHECKING:
    from torch import nn

    from paddock.parallel.world import World

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Measurement:
    """What to measure: forward passes, or whole training steps."""

    train: bool = False
    warmup: int = 5
    iterations: int = 100

    def check(self) -> None:
        if self.iterations < 1 or self.warmup < 0:
            name = "iterations" if self.iterations < 1 else "warmup"
            raise bad_value(f"benchmark.{name}", getattr(self, name), "there is nothing to time", "at least 1")


def benchmark(recipe: Recipe, measurement: Measurement, launch: LaunchOptions) -> dict[str, Any] | None:
    """Measure over all the processes that `launch` asks for. None in all but the main process."""
    from paddock.devices import select

    launch.check()
    measurement.check()
    if recipe.checkpoint.load is not None:
        raise bad_value(
            "checkpoint.load", recipe.checkpoint.load, "a benchmark computes with initial weights and would ignore it"
        )
    sequence_fits(recipe)
    check_layout(recipe, world_of(launch))
    check_device(recipe.parallel, select(recipe.train.device))
    with scratch_folder() as folder:
        result = folder / "result.json"
        payload = {"recipe": recipe.to_dict(), "measurement": asdict(measurement), "result": str(result)}
        run("paddock.jobs.benchmark:work", payload, launch, folder)
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


def work(payload: dict[str, Any]) -> None:
    """One process's part; the first writes the result."""
    from paddock.devices import select
    from paddock.parallel.world import join_world
    from paddock.telemetry.terminal import progress_bar
    from paddock.training.run import chosen_products

    recipe, measurement = recipe_from_dict(payload["recipe"]), Measurement(**payload["measurement"])
    with join_world(select(recipe.train.device)) as world, chosen_products(recipe, world):
        arithmetic = check_layout(recipe, world.size)
        compute = _computation(recipe, arithmetic, world, measurement.train)
        rounds = measurement.warmup + measurement.iterations
        seconds = []
        with progress_bar("benchmark", visible=world.is_main) as on_batch:
            for number in range(rounds):
                if number == measurement.warmup:
                    world.barrier()
                started = time.perf_counter()
                compute(number)
                world.adapter.synchronize()
                if number >= measurement.warmup:
                    seconds.append(time.perf_counter() - started)
                on_batch(number + 1, rounds)
        result = summarise(recipe, arithmetic, measurement, seconds, world)
        if world.is_main:
            with atomic_write(Path(payload["result"])) as stream:
                json.dump(result, stream)


def _computation(recipe: Recipe, arithmetic: Arithmetic, world: World, trains: bool) -> Callable[[int], object]:
    """What one iteration does: a training step, or what an evaluation asks of the model, over a global batch."""
    from paddock.evaluation.held_out import asked
    from paddock.models.build import optimize_for_inference
    from paddock.models.config import IGNORED
    from paddock.models.registry import example_batch
    from paddock.parallel.legality import may_compile
    from paddock.parallel.placement import to_device
    from paddock.tasks.registry import task_class
    from paddock.training.compilation import compile_units
    from paddock.training.optimizer import build_optimizer
    from paddock.training.precision import LossScale
    from paddock.training.run import engine_for, rate_for
    from paddock.training.step import TrainingStep

    plan, shape = arithmetic.batch, recipe.data.sample_shape()
    mode = recipe.train.compile if may_compile(recipe.parallel) else "off"

    def compile_them(units: Sequence[nn.Module]) -> None:
        compile_units(units, mode, world.adapter, recipe.model.num_parameters())

    engine = engine_for(recipe, arithmetic, world, compile_them)
    first = engine.mesh.data_rank * plan.accumulation
    batches = [
        to_device(example_batch(recipe.model, plan.micro, shape, first + number), world.device)
        for number in range(plan.accumulation)
    ]
    if trains:
        engine.train()
        counts = sum(int((batch["labels"] != IGNORED).sum()) for batch in batches)
        (terms,) = world.all_reduce_sum([counts if engine.leads_replica else 0])
        step = TrainingStep(
            engine,
            build_optimizer(engine.trained, recipe.optimizer),
            LossScale(recipe.precision, world.adapter),
            world,
            learning_rate=rate_for(recipe, 10**6, 1000),
            clip=recipe.optimizer.clip,
            seed=recipe.train.seed,
        )
        return lambda number: step.run(number, batches, terms)
    engine.train(False)
    optimize_for_inference(engine.models)
    questions = [asked(task_class(recipe.task), batch) for batch in batches]
    return lambda _: engine.outputs(questions)


def summarise(
    recipe: Recipe, arithmetic: Arithmetic, measurement: Measurement, seconds: list[float], world: World
) -> dict[str, Any]:
    """The numbers, over all processes, with everything that they were measured with."""
    import numpy as np
    import torch

    slowest = max(map(float, world.all_gather(repr(sum(seconds)))))
    shape, samples = recipe.data.sample_shape(), arithmetic.batch.total * measurement.iterations
    flops = recipe.model.forward_flops(shape) * (3 if measurement.train else 1)
    peak, source = _peak(recipe, world)
    memory = [int(told) for told in world.all_gather(str(world.adapter.memory_used() or 0))]
    tokens = shape.source + shape.target if recipe.model.vocabulary() else 0
    layout = arithmetic.layout
    return {
        "mode": "training steps" if measurement.train else "forward passes",
        "unit": "images" if recipe.task == "image_classification" else "samples",
        "samples_per_second": samples / slowest,
        **({"tokens_per_second": samples * tokens / slowest} if tokens else {}),
        "latency": {
            "mean": float(np.mean(seconds)),
            **{f"p{rank}": float(np.percentile(seconds, rank)) for rank in PERCENTILES},
        },
        "flops_per_sample": flops,
        "achieved_flops": samples * flops / slowest,
        "peak_flops": peak,
        "peak_source": source,
        "utilisation": samples * flops / slowest / peak if peak else None,
        "memory": max(memory) or None,
        "parameters": recipe.model.num_parameters(),
        "warmup": measurement.warmup,
        "iterations": measurement.iterations,
        "batch": str(arithmetic.batch),
        "layout": {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline},
        "processes": world.size,
        "device": world.adapter.name,
        "device_name": world.adapter.device_name(),
        "threads": torch.get_num_threads() if world.adapter.computes_on_host else None,
        "versions": versions(),
        "recipe": recipe.to_dict(),
    }


def _peak(recipe: Recipe, world: World) -> tuple[float, str]:
    """What the devices could do at best, over the whole job, and how that is known."""
    from paddock.devices import measure_gemm_flops

    compute = recipe.precision.compute
    published = world.adapter.peak_flops(compute)
    if published is not None:
        return published * world.size, "published"
    world.barrier()  # all at once, as they work
    (together,) = world.all_reduce_sum([measure_gemm_flops(world.adapter, compute)])
    return together, "a matrix product, measured"
