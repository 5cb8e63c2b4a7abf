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
from paddock.models.registry import parallel_of
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import TENSOR, Mesh
from paddock.parallel.placement import local
from paddock.parallel.schedules import FOLDED, units_of
from paddock.parallel.schedules import bubble_fraction
from paddock.telemetry.layout_card import ProcessRow, draw_layout
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
    assignment = assign_stages(recipe.model, recipe.parallel)
    stages = sorted(engine.parts)
    layers = [units_of(stage, assignment) for stage in stages]
    shard = sum(local(parameter.data).numel() for parameter in engine.trained)
    weights, gradients = _held_at_once(recipe, arithmetic, engine, shard)
    return Footprint(
        rank=engine.mesh.rank,
        stages=stages,
        layers=[[members[0], members[-1]] for members in layers],
        parameters=shard,
        weights=weights * FLOAT32,
        gradients=gradients * FLOAT32,
        optimizer=(optimizer_states(recipe.optimizer) + (recipe.train.ema is not None)) * shard * FLOAT32,
        sends={
            "tensor": _sent_over_tensor(recipe, arithmetic, engine, sum(map(len, layers))),
            "pipeline": _sent_over_pipeline(recipe, arithmetic, engine, assignment[-1] + 1),
            "data": _sent_over_data(recipe, arithmetic, engine),
        },
    )


def optimizer_states(config: OptimizerConfig) -> int:
    """Numbers that the optimizer keeps for each parameter."""
    return {"adamw": 2, "adam": 2, "sgd": 1 if config.momentum else 0}[config.name]


def bubble_of(recipe: Recipe, arithmetic: Arithmetic) -> float:
    """The part of a step that a process of the recipe's pipeline waits."""
    stages = assign_stages(recipe.model, recipe.parallel)[-1] + 1
    pipeline, micro_batches = arithmetic.layout.pipeline, arithmetic.batch.accumulation
    return bubble_fraction(recipe.parallel.schedule, pipeline, stages, micro_batches)


def draw(arithmetic: Arithmetic, processes: Sequence[Footprint]) -> list[str]:
    """The layout as a table, from one process of each place in the pipeline."""
    layout = arithmetic.layout
    rows = [ProcessRow(one.stages, one.layers, one.parameters, one.memory, one.traffic) for one in processes]
    return draw_layout(layout.data, layout.tensor, rows)


def _held_at_once(recipe: Recipe, arithmetic: Arithmetic, engine: Engine, shard: int) -> tuple[int, int]:
    """The most numbers held as weights and as gradients.

    Sharded weights are gathered for use: all of them and for the whole step where only the optimizer is sharded,
    and in a pipeline; else two blocks at a time. Gradients are cut into shards when the last micro-batch is through.
    """
    layout, mode = arithmetic.layout, recipe.parallel.shard
    whole = _whole(engine.trained, engine.mesh)
    if layout.data == 1 or mode == "none":
        return whole, whole
    blocks = [_whole(list(block.parameters()), engine.mesh) for model in engine.models for block in _blocks(model)]
    units = sorted([*blocks, whole - sum(blocks)])
    gathered = sum(units[-2:]) if mode == "parameters" and layout.pipeline == 1 else whole
    return shard + gathered, whole if arithmetic.batch.accumulation > 1 else shard + units[-1]


def _sent_over_tensor(recipe: Recipe, arithmetic: Arithmetic, engine: Engine, layers: int) -> int:
    """Of an activation of n bytes in k parts, a gather or a scatter sends n × (k − 1) / k, a sum twice that."""
    tensor, batch, parallel = arithmetic.layout.tensor, arithmetic.batch, recipe.parallel
    if tensor == 1:
        return 0
    family = parallel_of(recipe.model.family)
    counts = family.tensor_traffic(recipe.model, parallel.sequence, parallel.recompute != "none")
    times = {"layer": layers, "first": 0 in engine.parts, "last": _holds_last(recipe, engine)}
    small = FLOAT32 if recipe.precision.compute == "float32" else 2
    sizes = sum(times[part] * (narrow * small + wide * FLOAT32) for part, (narrow, wide) in counts.items())
    return int(_boundary(recipe, arithmetic, sequence=False) * sizes * batch.accumulation * (tensor - 1) / tensor)


def _sent_over_pipeline(recipe: Recipe, arithmetic: Arithmetic, engine: Engine, count: int) -> int:
    """What a stage puts out to another process, and the gradient of what it took in, for every micro-batch; then
    the gradient of the weight that the first and the last stage share, where they are on two processes."""
    layout, parallel = arithmetic.layout, recipe.parallel
    if layout.pipeline == 1:
        return 0
    elsewhere = 0
    for stage in engine.parts:
        neighbours = (other for other in (stage - 1, stage + 1) if 0 <= other < count)
        elsewhere += sum(other not in engine.parts for other in neighbours)
    sent = elsewhere * _boundary(recipe, arithmetic, parallel.sequence) * FLOAT32 * arithmetic.batch.accumulation
    family, at_an_end = parallel_of(recipe.model.family), 0 in engine.parts or count - 1 in engine.parts
    if parallel.schedule not in FOLDED and at_an_end and family.is_tied(recipe.model):
        model = engine.models[0 if 0 in engine.parts else -1]
        sent += local(family.tied_weight(model).data).numel() * FLOAT32
    return sent


def _sent_over_data(recipe: Recipe, arithmetic: Arithmetic, engine: Engine) -> int:
    """Of n bytes of gradients over k replicas, a sum sends 2n × (k − 1) / k; cut into shards, half of that, and as
    much again for each time that the weights are gathered: once a step, or as they are used."""
    data, mode = arithmetic.layout.data, recipe.parallel.shard
    share = _whole(engine.trained, engine.mesh) * FLOAT32 * (data - 1) // data
    if mode != "parameters":
        return 2 * share
    pipelined, micro_batches = arithmetic.layout.pipeline > 1, arithmetic.batch.accumulation
    gathers = micro_batches + 1 if pipelined else 2 * micro_batches  # a pipeline keeps them when it goes backward
    return share * (1 + gathers)


def _holds_last(recipe: Recipe, engine: Engine) -> bool:
    return assign_stages(recipe.model, recipe.parallel)[-1] in engine.parts


def _boundary(recipe: Recipe, arithmetic: Arithmetic, sequence: bool) -> int:
    """Numbers in what goes from one layer to the next."""
    family, batch = parallel_of(recipe.model.family), arithmetic.batch
    length, tensor = recipe.data.sample_size(), arithmetic.layout.tensor
    return math.prod(family.boundary(recipe.model, batch.micro, length, tensor, sequence))


def _blocks(model: nn.Module) -> list[nn.Module]:
    blocks: list[nn.Module] = model.blocks()  # type: ignore[operator]
    return blocks


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
