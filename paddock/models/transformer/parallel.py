"""How a transformer is cut over tensor-parallel processes: the plan of what all families share.

Heads, feed-forward columns and the vocabulary are dealt out; with `sequence`, the activations between them too, along
the time. Layers whose activations differ from process to process draw dropout masks of their own.
"""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

from paddock.models.layers.cross_entropy import VocabularyHead
from paddock.models.layers.dropout import Dropout
from paddock.parallel.vocabulary import VocabularyPartition

Plan = dict[str, ParallelStyle]


def embedding_plan(name: str, sequence: bool) -> Plan:
    """An embedding whose tokens are dealt out; what it puts out is whole, or with `sequence` cut along the time."""
    plan: Plan = {f"{name}.token": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())}
    if sequence:
        plan[name] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1))
    return plan


def block_plan(name: str, sequence: bool) -> Plan:
    """A block of attention and feed-forward layers, each with a norm."""
    outside = Shard(1) if sequence else Replicate()
    plan: Plan = {f"{name}.attention.dropout": MasksOfTheirOwn()}
    for part, into in (("attention", "qkv"), ("feed_forward", "input")):
        plan[f"{name}.{part}.{into}"] = ColwiseParallel(input_layouts=outside)
        plan[f"{name}.{part}.output"] = RowwiseParallel(output_layouts=outside)
        if sequence:
            plan[f"{name}.{part}_norm"] = SequenceParallel(use_local_output=True)
    if sequence:
        plan[f"{name}.dropout"] = MasksOfTheirOwn()
    return plan


def gathered_sequence(inputs: int) -> ParallelStyle:
    """A module of so many inputs that wants the first whole, which comes cut along the time."""
    return PrepareModuleInput(
        input_layouts=(Shard(1), *[None] * (inputs - 1)),
        desired_input_layouts=(Replicate(), *[None] * (inputs - 1)),
        use_local_output=True,
    )


class MasksOfTheirOwn(ParallelStyle):
    """A dropout layer whose processes hold different activations, and drop different elements of them."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, Dropout)
        module.tensor_rank = device_mesh.get_local_rank()
        return module


class VocabularyParallel(ParallelStyle):
    """A head whose vocabulary is dealt out as the token embedding is. With `gathers`, what it scores comes cut along
    the time."""

    def __init__(self, vocabulary: int, gathers: bool = False) -> None:
        super().__init__()
        self._size, self._gathers = vocabulary, gathers

    def partition(self, module: nn.Module, device_mesh: DeviceMesh) -> None:
        """Tell the head which part is here."""
        assert isinstance(module, VocabularyHead)
        module.partition = VocabularyPartition(self._size, device_mesh.get_local_rank(), device_mesh.get_group())

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        self.partition(module, device_mesh)
        return gathered_sequence(3)._apply(module, device_mesh) if self._gathers else module


class RowsDealtOut(ParallelStyle):
    """A module whose parameters are cut along their first dimension, and which does nothing itself."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.data, device_mesh, [Shard(0)])))
        return module
