"""A model cut over tensor-parallel processes that compute with plain tensors: for writing.

Training leaves the cutting to DTensor, which takes care of gradients and every placement, at a price of about a tenth
of a millisecond a layer. Where a pass has one token of a few sequences, that is as long as the product itself. So the
parameters are cut by the same plan, and once they are filled, each process multiplies its part and sums are exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import functional as F

from paddock.models.layers.basic import Embedding
from paddock.models.transformer.parallel import RowsDealtOut, VocabularyParallel
from paddock.parallel.vocabulary import VocabularyPartition


def cut_parameters(model: nn.Module, plan: Mapping[str, ParallelStyle], mesh: DeviceMesh) -> None:
    """Cut the parameters of the modules that are here as a plan says, so that each process can load its part. Nothing
    can be computed before `compute_locally`."""
    for name, module in list(model.named_modules()):
        style = plan.get(name)
        if isinstance(style, VocabularyParallel):
            style.partition(module, mesh)
        for own, parameter in list(module.named_parameters(recurse=False)):
            placement = _placement(style, module, own)
            if placement is not None:
                cut = distribute_tensor(parameter.data, mesh, [placement])
                module.register_parameter(own, nn.Parameter(cut, requires_grad=False))


def compute_locally(model: nn.Module, plan: Mapping[str, ParallelStyle], mesh: DeviceMesh) -> None:
    """Let each process compute with the parts of parameters that it has, now that they are filled."""
    group, rank = mesh.get_group(), mesh.get_local_rank()
    for name, module in list(model.named_modules()):
        for own, parameter in list(module.named_parameters(recurse=False)):
            if isinstance(parameter.data, DTensor):
                module.register_parameter(own, nn.Parameter(parameter.data.to_local(), requires_grad=False))
        if isinstance(plan.get(name), RowwiseParallel):
            if isinstance(module, Embedding):
                partition = VocabularyPartition(module.num_embeddings, rank, group)
                model.set_submodule(name, EmbeddingPart(module.weight, partition), strict=True)
            else:
                if rank:
                    module.register_parameter("bias", None)  # the sum has it once
                module.register_forward_hook(lambda _, __, output: _summed(output, group))


class EmbeddingPart(nn.Module):
    """The vectors of some tokens; those of the others come from the processes that have them."""

    def __init__(self, weight: Tensor, partition: VocabularyPartition) -> None:
        super().__init__()
        self.weight, self.partition = nn.Parameter(weight, requires_grad=False), partition

    def forward(self, tokens: Tensor) -> Tensor:
        places = tokens - self.partition.first
        elsewhere = (places < 0) | (places >= len(self.weight))
        found = F.embedding(places.masked_fill(elsewhere, 0), self.weight)
        return self.partition.all_reduce_sum(found.masked_fill_(elsewhere.unsqueeze(-1), 0.0))


def _placement(style: ParallelStyle | None, module: nn.Module, name: str) -> Placement | None:
    """How a parameter is cut; None: not at all."""
    if isinstance(style, ColwiseParallel | RowsDealtOut):
        return Shard(0)
    if isinstance(style, RowwiseParallel):
        along = 0 if isinstance(module, Embedding) else 1
        return Shard(along) if name == "weight" else Replicate()
    return None


def _summed(output: Tensor, group: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(output, group=group)
    return output
