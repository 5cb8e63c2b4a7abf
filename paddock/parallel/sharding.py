"""Data parallelism: processes that see different samples and keep the same weights, whole or in shards.

All three forms are one engine (torch's FSDP2), so that tensor shards and pipeline stages combine with each of them.
The loss that goes backward is divided by the global count already, so gradients are summed, never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from paddock.parallel.config import ShardMode
from paddock.parallel.mesh import DATA, Mesh


def apply_data_parallel(
    whole: nn.Module, units: Sequence[nn.Module], mode: ShardMode, mesh: Mesh, compute: torch.dtype
) -> None:
    """Make `whole` sum its gradients over the data dimension; each unit is gathered and reduced as one.

    Where parameters are sharded and the computation has fewer bits, units are gathered in those: autocast would keep
    a copy of every gathered weight until the backward pass, and sharding would save nothing.
    """
    if mesh.layout.data == 1:
        return
    row = mesh.along(DATA)
    narrow = compute if compute.itemsize < torch.float32.itemsize else None
    few_bits = MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for part in (*units, whole):
        if mode == "none":
            replicate(part, mesh=row)
        else:
            policy = MixedPrecisionPolicy() if narrow is None or part is whole else few_bits
            fully_shard(part, mesh=row, reshard_after_forward=mode == "parameters", mp_policy=policy)
    for part in (*units, whole):
        assert isinstance(part, FSDPModule)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
    if mode == "parameters":
        _prefetch(units)


def _prefetch(units: Sequence[nn.Module]) -> None:
    """Gather the next unit while one computes, in both directions."""
    for before, after in pairwise(units):
        assert isinstance(before, FSDPModule) and isinstance(after, FSDPModule)
        before.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([before])


def send_gradients(whole: nn.Module, now: bool, mode: ShardMode) -> None:
    """Whether the next backward pass sums gradients over processes, or only adds to those here. Weights that are
    gathered for the whole step stay until it ends."""
    if isinstance(whole, FSDPModule):
        whole.set_requires_gradient_sync(now)
        whole.set_is_last_backward(now)
        if mode == "optimizer":
            whole.set_reshard_after_backward(now)


def statistics_of(models: Sequence[nn.Module]) -> list[Tensor]:
    """What a model measures of its samples instead of learning it, such as a batch norm's running mean."""
    return [buffer for model in models for buffer in model.buffers() if buffer.is_floating_point()]


def average_statistics(tensors: Sequence[Tensor], mesh: Mesh) -> None:
    """Put the mean over the data replicas in place of each one's own.

    They are moving averages: taking the mean now and going on gives what taking it at the end would give.
    """
    if mesh.layout.data == 1 or not tensors:
        return
    together = torch.cat([tensor.flatten().float() for tensor in tensors])
    dist.all_reduce(together, group=mesh.group(DATA))
    together /= mesh.layout.data
    for tensor, part in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape))
