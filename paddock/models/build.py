"""A model built for a layout: cut into stages, shards and replicas while it has no memory, then given some and filled.

No process ever holds more than its own part and, while filling it, one whole tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family
from paddock.models.layers.batch_norm import share_statistics
from paddock.models.layers.initialization import initialize
from paddock.models.model import Model
from paddock.models.model import allocate as allocate_memory
from paddock.models.registry import build_model, example_batch, family_named
from paddock.models.transformer.local import compute_locally, cut_parameters
from paddock.parallel.config import ParallelConfig, RecomputeMode
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import DATA, TENSOR, Mesh
from paddock.parallel.pipeline.schedules import balanced, default_count, stages_of, units_of
from paddock.parallel.pipeline.shared_parameters import SharedParameters
from paddock.parallel.pipeline.stage import BEGIN, FINISH, Batch, Blueprint, CarrySpec, Stage, prune
from paddock.parallel.sharding import apply_data_parallel

WRITTEN = 16
"""How much more often a decoder's units run than an encoder's, where a model writes."""


def assign_stages(config: ModelConfig, parallel: ParallelConfig, shape: SampleShape) -> list[int]:
    """The stage of every unit."""
    if parallel.stages != "auto":
        return list(parallel.stages)
    if parallel.pipeline == 1:
        return [0] * (len(config.units(shape)) - 2)
    count = default_count(parallel.pipeline, parallel.schedule)
    return balanced([unit.flops for unit in config.units(shape)], count)


def build_engine(
    config: ModelConfig,
    parallel: ParallelConfig,
    mesh: Mesh,
    device: torch.device,
    *,
    micro: int,
    shape: SampleShape,
    micro_batches: int = 1,
    compute: torch.dtype = torch.float32,
    autocast: AbstractContextManager[Any] | None = None,
    compile_units: Callable[[Sequence[nn.Module]], None] | None = None,
    allocate: bool = True,
) -> Engine:
    """This process's part of the model, laid out but not yet filled with weights; without `allocate`, to look at.

    `micro`, `shape` and `micro_batches` are those of a training step, which a pipeline is made for; `compute` is the
    type of matrix products, and `autocast` what forward passes run in.
    """
    assignment = assign_stages(config, parallel, shape)
    count = assignment[-1] + 1
    here = stages_of(mesh.pipeline_rank, mesh.layout.pipeline, count, parallel.schedule)
    plan = _StagePlan(config, assignment, mesh.layout.tensor if parallel.sequence else 1)
    if count > 1:
        plan.look_at(example_batch(config, micro, shape, seed=0))
    stages: dict[int, Stage] = {}
    for index in here:
        stage = plan.stage(index, autocast, parallel.recompute)
        _cut_over_tensor(family_named(config.family), stage.model, parallel, mesh)
        if mesh.layout.data > 1:
            share_statistics(stage.model, mesh.group(DATA))
        units = stage.unit_modules()
        if compile_units is not None:
            compile_units(units)
        apply_data_parallel(stage, units, parallel.shard, mesh, compute)
        if allocate:
            allocate_memory(stage, device)
            if mesh.layout.data == 1 and config.is_channels_last():  # replicas keep weights in one run
                stage.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        stages[index] = stage
    if count == 1:
        return Engine(stages, mesh, parallel.shard)
    from paddock.parallel.pipeline.execution import Pipeline  # it brings torch's, which take most of a second to import

    pipeline = Pipeline(
        stages,
        plan.last_units,
        plan.carries_of,
        plan.example,
        parallel.schedule,
        mesh,
        device,
        micro_batches,
        plan.entangled(),
    )
    process_of = {
        stage: process
        for process in range(mesh.layout.pipeline)
        for stage in stages_of(process, mesh.layout.pipeline, count, parallel.schedule)
    }
    models = {index: stage.model for index, stage in stages.items()}
    shared = SharedParameters(plan.holders(), process_of, models, mesh)
    return Engine(stages, mesh, parallel.shard, pipeline, shared)


def build_part(config: ModelConfig, parallel: ParallelConfig, mesh: Mesh) -> Stage:
    """This process's stage of a model that is to write, without memory: a process has one. `complete_part` follows when
    it is filled."""
    assignment = assign_stages(config, parallel, SampleShape(1, WRITTEN))
    plan = _StagePlan(config, assignment, 1)
    if mesh.layout.pipeline > 1:
        plan.look_at(example_batch(config, 1, SampleShape(1, 1), seed=0))
    stage = plan.stage(mesh.pipeline_rank, None, "none")
    if mesh.layout.tensor > 1:
        cut_parameters(stage.model, _tensor_plan(stage.model), mesh.along(TENSOR))
    return stage.eval()


def complete_part(stage: Stage, mesh: Mesh) -> None:
    """Make a stage that has its weights ready to compute."""
    if mesh.layout.tensor > 1:
        compute_locally(stage.model, _tensor_plan(stage.model), mesh.along(TENSOR))


def _tensor_plan(model: nn.Module) -> dict[str, ParallelStyle]:
    assert isinstance(model, Model)
    return family_named(model.config.family).tensor_plan(model, False)


class _StagePlan:
    """Which units and parameters each stage of a model has, known alike to all processes."""

    def __init__(self, config: ModelConfig, assignment: list[int], sequence_parts: int) -> None:
        self._config, self._count = config, assignment[-1] + 1
        self._stages = range(self._count)
        self._sequence_parts = sequence_parts
        names = [cost.name for cost in config.units(SampleShape(1, 1))[1:-1]]
        assert len(names) == len(assignment), "every unit has a stage"
        self._units = [[names[at] for at in units_of(stage, assignment)] for stage in self._stages]
        self.last_units = [units[-1] for units in self._units]
        self._derives = False
        self._uses: dict[str, set[str]] = {}
        self._carries: dict[str, CarrySpec] = {}

    def look_at(self, example: Batch) -> None:
        """Find out what goes from unit to unit of such a micro-batch, and which parameters each uses. Where one stage
        is all, nobody needs to know."""
        self.example = example
        blueprint = _blueprint(self._config, torch.get_default_dtype())
        self._uses, self._derives = blueprint.parameters(example), blueprint.derives
        self._carries = self.carries_of(example)

    def carries_of(self, batch: Batch) -> dict[str, CarrySpec]:
        """What each unit hands on of a micro-batch."""
        return _blueprint(self._config, torch.get_default_dtype()).carries(batch, self._sequence_parts)

    def stage(self, index: int, autocast: AbstractContextManager[Any] | None, recompute: RecomputeMode) -> Stage:
        """A stage of the model, with what it needs of it and nothing else."""
        model = _on_meta(self._config)
        if self._count == 1:
            return Stage(model, self._units[0], None, None, autocast, recompute)
        prune(model, self._needs(index))
        takes = list(self._carries[self.last_units[index - 1]]) if index else None
        gives = None if index == self._count - 1 else self._carries[self.last_units[index]]
        return Stage(model, self._units[index], takes, gives, autocast, recompute)

    def holders(self) -> dict[str, list[int]]:
        """The stages that hold each parameter, by its name."""
        found: dict[str, list[int]] = {}
        for stage in self._stages:
            for name in self._needs(stage):
                found.setdefault(name, []).append(stage)
        return found

    def entangled(self) -> list[int]:
        """The stages whose gradients of weights cannot be told apart from those of what they took in: they use a
        parameter in more than one of their parts, or make something of parameters alone that several units share."""
        used = [Counter(name for part in self._parts(stage) for name in self._uses[part]) for stage in self._stages]
        return [stage for stage in self._stages if self._begins(stage) or used[stage].most_common(1)[0][1] > 1]

    def _begins(self, stage: int) -> bool:
        """Whether something begins in the middle of a stage that is made of no carry: a bias, another stack."""
        if self._derives:
            return True
        names = [
            list(self._carries[unit]) for unit in [*self.last_units[max(stage - 1, 0) : stage], *self._units[stage]]
        ]
        return any(name != names[0] for name in names)

    def _needs(self, stage: int) -> set[str]:
        return set().union(*(self._uses[part] for part in self._parts(stage)))

    def _parts(self, stage: int) -> list[str]:
        begins, ends = stage == 0, stage == self._count - 1
        return [*([BEGIN] if begins else []), *self._units[stage], *([FINISH] if ends else [])]


def initialize_engine(engine: Engine, seed: int) -> None:
    """Initial weights, from (seed, name) alone."""
    for model in engine.models:
        initialize(model, seed)


def optimize_for_inference(models: Sequence[nn.Module]) -> None:
    """Let models with their final weights compute sooner, where their family knows how; what is cut over processes
    stays as it is. Weights of linear layers are not packed here as they are to write text: with the 512 rows and more
    of an evaluation or a prediction that gains 2 to 5 % on the better dense product (with 8 rows, 46 to 62 %), and
    would hold every weight twice."""
    for model in models:
        assert isinstance(model, Model)
        if not any(isinstance(tensor.data, DTensor) for tensor in model.parameters()):
            family_named(model.config.family).optimize_for_inference(model)


@cache
def _blueprint(config: ModelConfig, dtype: torch.dtype) -> Blueprint:
    """Of a config's model; kept, since its units are looked at one by one."""
    return Blueprint(_on_meta(config))


def _on_meta(config: ModelConfig) -> Model:
    with torch.device("meta"):
        return build_model(config)


def _cut_over_tensor(family: Family, model: nn.Module, parallel: ParallelConfig, mesh: Mesh) -> None:
    """Cut the layers that are here over the tensor processes."""
    if mesh.layout.tensor > 1:
        there = {name for name, _ in model.named_modules()}
        plan = family.tensor_plan(model, parallel.sequence)
        parallelize_module(model, mesh.along(TENSOR), {name: style for name, style in plan.items() if name in there})
