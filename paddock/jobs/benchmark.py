"""How fast a recipe's model computes here: random samples that never change, real steps, and a counted number of
operations. Needs no data and writes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_layout
from paddock.errors import bad_value
from paddock.files import atomic_write, scratch_folder
from paddock.launch.environment import with_free_threads, world_of
from paddock.launch.facts import flat
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.tasks.rules import sequence_fits
from paddock.versions import versions

if TYPE_CHECKING:
    from paddock.benchmarking.sides import Measured
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
    launch = with_free_threads(launch, recipe.train.device)
    with scratch_folder() as folder:
        result = folder / "result.json"
        payload = {"recipe": recipe.to_dict(), "measurement": asdict(measurement), "result": str(result)}
        asked = flat(recipe.to_dict() | {"benchmark": asdict(measurement)})
        run("paddock.jobs.benchmark:work", payload, launch, folder, asked=asked)
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


def work(payload: dict[str, Any]) -> None:
    """One process's part; the first writes the result."""
    from paddock.benchmarking.computation import computation
    from paddock.devices import select
    from paddock.parallel.world import join_world
    from paddock.telemetry.screen.terminal import progress_bar
    from paddock.training.run import chosen_products

    recipe, measurement = recipe_from_dict(payload["recipe"]), Measurement(**payload["measurement"])
    with join_world(select(recipe.train.device), recipe.device.fallback) as world, chosen_products(recipe, world):
        arithmetic = check_layout(recipe, world.size)
        compute = computation(recipe, arithmetic, world, measurement.train)
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


# Beside another library


def compare(
    recipe: Recipe,
    peer: str,
    settings: Sequence[str],
    measurement: Measurement,
    launch: LaunchOptions,
    on_turn: Callable[[int, int], None],
) -> dict[str, Any]:
    """The recipe's work by us and by a peer in each of these settings, in turns, one process each."""
    import torch

    from paddock.benchmarking.peers import check_peer
    from paddock.benchmarking.sides import PRODUCT, Side, take_turns
    from paddock.devices import select
    from paddock.training.compilation import find_compiler

    launch.check()
    measurement.check()
    sequence_fits(recipe)
    check_layout(recipe, 1)
    check_peer(peer, recipe)
    adapter = select(recipe.train.device)
    if not adapter.computes_on_host:
        raise bad_value("--device", adapter.name, "peers are measured on the CPU", "--device cpu")
    values, trains = recipe.to_dict(), measurement.train
    settings = [name for name in settings if not name.startswith("compiled") or find_compiler(adapter)]
    sides = {"paddock": Side(values, trains)}
    sides |= {f"{peer} {setting}": Side(values, trains, peer, setting) for setting in settings}
    sides[PRODUCT] = Side(values, trains, setting=PRODUCT)
    threads = with_free_threads(launch, adapter.name).threads
    found = take_turns(sides, measurement.warmup, measurement.iterations, threads, on_turn)
    return _comparison(recipe, peer, measurement, found) | {"threads": threads or torch.get_num_threads()}


def _comparison(recipe: Recipe, peer: str, measurement: Measurement, found: Mapping[str, Measured]) -> dict[str, Any]:
    """Medians, and ratios turn by turn."""
    from statistics import median

    from paddock.benchmarking.sides import PRODUCT, product_flops
    from paddock.devices.cpu import cpu_model

    samples, shape = check_layout(recipe, 1).batch.total, recipe.data.sample_shape()
    flops = samples * recipe.model.forward_flops(shape) * (3 if measurement.train else 1)
    product, ours = found[PRODUCT], found["paddock"]
    theirs = {name: side for name, side in found.items() if name not in (PRODUCT, "paddock")}
    best = min(theirs, key=lambda name: median(theirs[name].seconds))
    return {
        "work": "training steps" if measurement.train else "forward passes",
        "peer": peer,
        "turns": measurement.iterations,
        "batch": samples,
        "sides": {
            name: {"samples_per_second": samples / median(side.seconds), "memory": side.memory}
            for name, side in {"paddock": ours, **theirs}.items()
        },
        "ratios": {name: _ratio(side.seconds, ours.seconds) for name, side in theirs.items()},
        "best": best,
        "memory_ratios": {name: _share(ours.memory, side.memory) for name, side in theirs.items()},
        "product_flops": product_flops() / median(product.seconds),
        "fraction_of_product": _ratio([seconds * flops / product_flops() for seconds in product.seconds], ours.seconds),
        "compute": recipe.precision.compute,
        "processor": cpu_model(),
        "versions": versions(),
        "recipe": recipe.to_dict(),
    }


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times faster we were: in the middle of the turns, and in the worst and the best."""
    from statistics import median

    ratios = [other / own for other, own in zip(theirs, ours, strict=True)]
    return {"median": median(ratios), "low": min(ratios), "high": max(ratios)}


def _share(ours: int | None, theirs: int | None) -> float | None:
    return ours / theirs if ours and theirs else None
