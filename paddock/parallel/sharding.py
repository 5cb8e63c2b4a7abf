"""Data parallelism: processes that see different samples and keep the same weights, whole or in shards.

All three forms are one engine (torch's FSDP2), so that tensor shards and pipeline stages combine with each of them.
The loss that goes backward is divided by the global count already, so gradients are summed, never averaged.
"""

from __future__ import annotations

from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, fully_shard

from paddock.parallel.config import ShardMode
from paddock.parallel.mesh import DATA, Mesh


def apply_data_parallel(whole: nn.Module, blocks: list[nn.Module], mode: ShardMode, mesh: Mesh) -> None:
    """Make `whole` sum its gradients over the data dimension; each block is gathered and reduced as one."""
    if mesh.layout.data == 1:
        return
    row = mesh.along(DATA)
    for part in (*blocks, whole):
        if mode == "none":
            replicate(part, mesh=row)
        else:
            fully_shard(part, mesh=row, reshard_after_forward=mode == "parameters")
    for part in (*blocks, whole):
        assert isinstance(part, FSDPModule)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum


def send_gradients(whole: nn.Module, now: bool, mode: ShardMode) -> None:
    """Whether the next backward pass sums gradients over processes, or only adds to those here. Weights that are
    gathered for the whole step stay until it ends."""
    if isinstance(whole, FSDPModule):
        whole.set_requires_gradient_sync(now)
        whole.set_is_last_backward(now)
        if mode == "optimizer":
            whole.set_reshard_after_backward(now)
