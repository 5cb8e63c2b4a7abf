"""What a layout costs one process: parameters, memory and bytes sent in a step, known before any step is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor

from paddock.config.recipe import Recipe
from paddock.config.rules import Arithmetic
from paddock.models.build import assign_stages
from paddock.models.config import UnitCost
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import TENSOR, Mesh
from paddock.parallel.pipeline.schedules import bubble_fraction, units_of
from paddock.parallel.placement import local
from paddock.telemetry.screen.cards import ProcessRow, draw_layout
from paddock.training.config import OptimizerConfig

FLOAT32 = 4


@dataclass(frozen=True)
class Footprint:
    """One process's share. Memory is at its highest in a step, before activations; all of it in bytes."""

    rank: int
    stages: list[int]
    layers: list[list[int]]
    """The first and the last layer of each stage."""
    parameters: int
    """Numbers that this process updates."""
    weights: int
    gradients: int
    optimizer: int
    sends: dict[str, int]
    """Bytes sent in a step, over the tensor, pipeline and data dimension."""
    work: float
    """The part of the pipeline's computation that is here."""
    activations: int | None = None
    """About what a micro-batch keeps for its backward pass, dropout aside; None where layers lie over several processes
    or are recomputed, and in mixed precision."""

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer

    @property
    def traffic(self) -> int:
        return sum(self.sends.values())

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "memory": self.memory, "traffic": self.traffic}


def footprint(recipe: Recipe, arithmetic: Arithmetic, engine: Engine) -> Footprint:
    """What the process that holds `engine` has and does; the engine needs no memory for this."""
    assignment = _assignment(recipe)
    stages = sorted(engine.stages)
    units = [units_of(stage, assignment) for stage in stages]
    shard = sum(local(parameter.data).numel() for parameter in engine.trained)
    weights, gradients = _held_at_once(recipe, arithmetic, engine, shard)
    costs = _costs_here(recipe, assignment, engine)
    return Footprint(
        rank=engine.mesh.rank,
        stages=stages,
        layers=[[members[0], members[-1]] for members in units],
        parameters=shard,
        weights=weights,
        gradients=gradients * FLOAT32,
        optimizer=(optimizer_numbers(recipe.optimizer, engine) + (recipe.train.ema is not None) * shard) * FLOAT32,
        sends={
            "tensor": _sent_over_tensor(recipe, arithmetic, costs),
            "pipeline": _sent_over_pipeline(recipe, arithmetic, assignment, engine),
            "data": _sent_over_data(recipe, arithmetic, engine),
        },
        work=_work(recipe, costs),
        activations=_activations(recipe, arithmetic, costs),
    )


def _work(recipe: Recipe, here: Sequence[UnitCost]) -> float:
    """Of a model that does not say what it computes, all of it is in one place."""
    whole = recipe.model.forward_flops(recipe.data.sample_shape())
    return sum(unit.flops for unit in here) / whole if whole else 1.0


def _assignment(recipe: Recipe) -> list[int]:
    return assign_stages(recipe.model, recipe.parallel, recipe.data.sample_shape())


def _costs_here(recipe: Recipe, assignment: list[int], engine: Engine) -> list[UnitCost]:
    """The costs of what the stages of an engine run."""
    parallel = recipe.parallel
    costs = recipe.model.units(
        recipe.data.sample_shape(), sequence=parallel.sequence, recompute=parallel.recompute != "none"
    )
    begin, *units, finish = costs
    here = [unit for unit, stage in zip(units, assignment, strict=True) if stage in engine.stages]
    first, last = 0 in engine.stages, assignment[-1] in engine.stages
    return [*([begin] if first else []), *here, *([finish] if last else [])]


def optimizer_numbers(config: OptimizerConfig, engine: Engine) -> int:
    """Numbers that the optimizer keeps of the parameters that are here: the same for each number of a parameter, or,
    for Adafactor, one for each row and one for each column of a matrix."""
    shapes = [local(parameter.data).shape for parameter in engine.trained]
    if config.name == "adafactor":
        return sum(
            math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1] if len(shape) > 1 else shape.numel()
            for shape in shapes
        )
    each = {"adamw": 2, "adam": 2, "sgd": 1 if config.momentum else 0}[config.name]
    return each * sum(shape.numel() for shape in shapes)


def bubble_of(recipe: Recipe, arithmetic: Arithmetic) -> float:
    """The part of a step that a process of the recipe's pipeline waits."""
    stages = _assignment(recipe)[-1] + 1
    pipeline, micro_batches = arithmetic.layout.pipeline, arithmetic.batch.accumulation
    return bubble_fraction(recipe.parallel.schedule, pipeline, stages, micro_batches)


def draw(arithmetic: Arithmetic, processes: Sequence[Footprint], room: int | None = None) -> list[str]:
    """The layout as a table of so many columns, from one process of each place in the pipeline."""
    layout = arithmetic.layout
    rows = [ProcessRow(one.stages, one.layers, one.parameters, one.memory, one.traffic) for one in processes]
    return draw_layout(layout.data, layout.tensor, rows, room)


def _held_at_once(recipe: Recipe, arithmetic: Arithmetic, engine: Engine, shard: int) -> tuple[int, int]:
    """The most bytes held as weights, and numbers as gradients.

    Sharded weights are gathered for use, in the type of the computation but for what is outside the units: all of them
    and for the whole step where only the optimizer is sharded, and in a pipeline; else two units at a time. Gradients
    are cut into shards when the last micro-batch is through. Where weights are not sharded, autocast keeps a copy of
    each in the type of the computation until its backward pass (of one unit, where units are recomputed).
    """
    layout, mode = arithmetic.layout, recipe.parallel.shard
    whole = _whole(engine.trained, engine.mesh)
    narrow = _compute_bytes(recipe)
    modules = [module for stage in engine.stages.values() for module in stage.unit_modules()]
    units = [_whole(list(module.parameters()), engine.mesh) for module in modules]
    outside = whole - sum(units)
    if layout.data == 1 or mode == "none":
        kept = max(units) if recipe.parallel.recompute == "full" else sum(units)
        return whole * FLOAT32 + (kept * narrow if narrow < FLOAT32 else 0), whole
    sizes = sorted([*(unit * narrow for unit in units), outside * FLOAT32])
    gathered = sum(sizes[-2:]) if mode == "parameters" and layout.pipeline == 1 else sum(sizes)
    weights = shard * FLOAT32 + gathered
    if arithmetic.batch.accumulation > 1:
        return weights, whole
    largest = max([*units, outside])
    if mode == "optimizer" and layout.pipeline == 1:  # weights are given up as gradients come
        return weights, max(0, shard - gathered // FLOAT32) + largest
    return weights, shard + largest


def _sent_over_tensor(recipe: Recipe, arithmetic: Arithmetic, costs: Sequence[UnitCost]) -> int:
    """Of an activation of n bytes in k parts, a gather or a scatter sends n × (k − 1) / k."""
    tensor, batch = arithmetic.layout.tensor, arithmetic.batch
    if tensor == 1:
        return 0
    small = _compute_bytes(recipe)
    a_sample = sum(unit.exchange.compute * small + unit.exchange.float32 * FLOAT32 for unit in costs)
    return int(a_sample * batch.micro * batch.accumulation * (tensor - 1) / tensor)


def _sent_over_pipeline(recipe: Recipe, arithmetic: Arithmetic, assignment: list[int], engine: Engine) -> int:
    """What a stage puts out to another process, and the gradient of what it took in, for every micro-batch; then
    the gradients of the parameters that stages on several processes share."""
    layout, parallel, batch = arithmetic.layout, recipe.parallel, arithmetic.batch
    if layout.pipeline == 1:
        return 0
    _, *units, _ = recipe.model.units(recipe.data.sample_shape())
    outputs = {stage: unit.output for unit, stage in zip(units, assignment, strict=True)}  # of its last unit
    numbers = 0
    for stage in engine.stages:
        for border, other in ((stage - 1, stage - 1), (stage, stage + 1)):  # a gradient back, an output on
            if 0 <= other <= assignment[-1] and other not in engine.stages:
                numbers += outputs[border]
    sent = numbers * FLOAT32 * batch.micro * batch.accumulation // (layout.tensor if parallel.sequence else 1)
    return sent + (0 if engine.shared is None else engine.shared.traffic())


def _sent_over_data(recipe: Recipe, arithmetic: Arithmetic, engine: Engine) -> int:
    """Of n bytes of gradients over k replicas, a sum sends 2n × (k − 1) / k; cut into shards, half of that, and as
    much again for each time that the weights are gathered: once a step, or as they are used."""
    data, mode = arithmetic.layout.data, recipe.parallel.shard
    numbers = _whole(engine.trained, engine.mesh)
    sums = numbers * FLOAT32 * (data - 1) // data
    if mode == "none":
        return 2 * sums
    modules = [module for stage in engine.stages.values() for module in stage.unit_modules()]
    inside = sum(_whole(list(module.parameters()), engine.mesh) for module in modules)
    narrow = _compute_bytes(recipe)
    gather = (inside * narrow + (numbers - inside) * FLOAT32) * (data - 1) // data
    if mode == "optimizer":
        return sums + gather
    pipelined, micro_batches = arithmetic.layout.pipeline > 1, arithmetic.batch.accumulation
    gathers = micro_batches + 1 if pipelined else 2 * micro_batches  # a pipeline keeps them when it goes backward
    return sums + gather * gathers


def _activations(recipe: Recipe, arithmetic: Arithmetic, costs: Sequence[UnitCost]) -> int | None:
    layout = arithmetic.layout
    is_whole = layout.tensor == layout.pipeline == 1 and recipe.parallel.recompute == "none"
    if not is_whole or recipe.precision.compute != "float32":
        return None
    *units, head = costs  # which keeps the gradient of its weight above all: once, however many samples there are
    return (sum(unit.saved for unit in units) * arithmetic.batch.micro + head.saved) * FLOAT32


def _compute_bytes(recipe: Recipe) -> int:
    """Of a number in the type of the computation."""
    return FLOAT32 if recipe.precision.compute == "float32" else 2


def _whole(parameters: list[nn.Parameter], mesh: Mesh) -> int:
    """Numbers in these parameters as the data replicas see them: cut over tensor processes, but not over data."""
    return sum(_unsharded(parameter, mesh) for parameter in parameters)


def _unsharded(parameter: nn.Parameter, mesh: Mesh) -> int:
    weight = parameter.data
    size = weight.numel()
    if not isinstance(weight, DTensor):
        return size
    for name, placement in zip(weight.device_mesh.mesh_dim_names or (), weight.placements, strict=True):
        if name == TENSOR and placement.is_shard():
            whole = weight.shape[placement.dim]  # type: ignore[attr-defined]
            rows = -(-whole // mesh.layout.tensor)
            size = size // whole * max(0, min(rows, whole - rows * mesh.tensor_rank))
    return size
