"""A model built for a layout: cut into stages, shards and replicas while it has no memory, then filled.

No process ever holds more than its own share and, while filling it, one whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from paddock.models.config import ModelConfig
from paddock.models.layers.batch_norm import share_statistics
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model, parallel_of
from paddock.parallel.config import ParallelConfig
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import DATA, TENSOR, Mesh
from paddock.parallel.recompute import apply_recompute
from paddock.parallel.sharding import apply_data_parallel
from paddock.parallel.stages import FOLDED, balanced, default_count, layers_of, stages_of
from paddock.parallel.tied import TiedWeight
from paddock.parallel.vocabulary import VocabularyShards


def assign_stages(config: ModelConfig, parallel: ParallelConfig) -> list[int]:
    """The stage of every layer."""
    if parallel.stages != "auto":
        return list(parallel.stages)
    count = default_count(parallel.pipeline, parallel.schedule) if parallel.pipeline > 1 else 1
    return balanced(config.num_layers(), count, *parallel_of(config.family).layer_costs(config))


def assemble(
    config: ModelConfig,
    parallel: ParallelConfig,
    mesh: Mesh,
    device: torch.device,
    *,
    micro: int,
    sample_size: int,
    micro_batches: int,
    compile_blocks: Callable[[list[nn.Module]], None] | None = None,
    allocate: bool = True,
) -> Engine:
    """This process's part of the model, laid out but not yet filled with weights; without `allocate`, to look at."""
    family = parallel_of(config.family)
    assignment = assign_stages(config, parallel)
    count = assignment[-1] + 1
    parts: dict[int, nn.Module] = {}
    for index in stages_of(mesh.pipeline_rank, mesh.layout.pipeline, count, parallel.schedule):
        with torch.device("meta"):
            model = build_model(config)
        part = family.Stage(model, layers_of(index, assignment), index == 0, index == count - 1)
        if mesh.layout.tensor > 1:
            _share_layers(family, model, parallel, mesh)
        if mesh.layout.data > 1:
            share_statistics(model, mesh.group(DATA))
        blocks: list[nn.Module] = model.blocks()  # type: ignore[operator]
        apply_recompute(blocks, parallel.recompute)
        if compile_blocks is not None:
            compile_blocks(blocks)
        apply_data_parallel(part, blocks, parallel.shard, mesh)
        if allocate:
            part.to_empty(device=device)
            if mesh.layout.data == 1 and getattr(config, "channels_last", False):  # replicas keep weights in one run
                part.to(memory_format=torch.channels_last)
        parts[index] = part
    if count == 1:
        return Engine(parts, mesh, family.MAIN_INPUT, parallel.shard)
    from paddock.parallel.pipeline import Pipeline  # it brings torch's, which take most of a second to import

    def boundary(batch: int, size: int) -> torch.Size:
        return torch.Size(family.boundary(config, batch, size, mesh.layout.tensor, parallel.sequence))

    shape = boundary(micro, sample_size)
    pipeline = Pipeline(parts, count, parallel.schedule, mesh, device, micro_batches, shape, boundary)
    if not family.is_tied(config):
        return Engine(parts, mesh, family.MAIN_INPUT, parallel.shard, pipeline)
    first, last = (family.tied_weight(parts[index].model) if index in parts else None for index in (0, count - 1))
    tied = TiedWeight(first, last, mesh, parallel.schedule in FOLDED)
    return Engine(parts, mesh, family.MAIN_INPUT, parallel.shard, pipeline, tied)


def fill(engine: Engine, seed: int) -> None:
    """Initial weights, from (seed, name) alone."""
    for model in engine.models:
        initialize(model, seed)


def accelerate(models: Sequence[nn.Module]) -> None:
    """Let models with their final weights take whatever short way their family has for evaluation.

    What is cut over processes takes none.
    """
    for model in models:
        config = model.config
        assert isinstance(config, ModelConfig)
        shortened = getattr(parallel_of(config.family), "accelerate", None)
        if shortened is not None and not any(isinstance(tensor.data, DTensor) for tensor in model.parameters()):
            shortened(model)


def _share_layers(family: Any, model: nn.Module, parallel: ParallelConfig, mesh: Mesh) -> None:
    """Cut the layers over the tensor processes."""
    parallelize_module(model, mesh.along(TENSOR), family.tensor_plan(model, parallel.sequence))
    family.mark_shards(model, mesh.tensor_rank, parallel.sequence)
    config, head = model.config, getattr(model, "head", None)
    if head is not None and hasattr(head, "vocabulary"):
        assert isinstance(config, ModelConfig)
        rows = -(-config.vocabulary() // mesh.layout.tensor)
        head.vocabulary = VocabularyShards(mesh.tensor_rank * rows, mesh.group(TENSOR))
