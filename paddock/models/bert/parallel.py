"""How BERT is cut: which weights lie over which processes, and what a pipeline stage is."""

from __future__ import annotations

from torch import Tensor, nn
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

from paddock.models.bert.config import BertConfig
from paddock.models.bert.heads import MaskedLanguageHead
from paddock.models.bert.model import Bert, Block

MAIN_INPUT = "tokens"
"""The name of what the first stage reads, in a batch; all stages get the rest."""
ASKED = 0.15
"""Of the positions of a text, those that a masked-language head is asked about."""


def tensor_plan(model: Bert, sequence: bool) -> dict[str, ParallelStyle]:
    """Heads, feed-forward columns and the vocabulary are shared out; with `sequence`, so is the time between them."""
    outside = Shard(1) if sequence else Replicate()
    plan: dict[str, ParallelStyle] = {}
    if hasattr(model, "embedding"):
        plan["embedding.token"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        if sequence:
            plan["embedding"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=outside)
    for name in model.layers:
        block = f"layers.{name}"
        for part, into in (("attention", "qkv"), ("feed_forward", "input")):
            plan[f"{block}.{part}.{into}"] = ColwiseParallel(input_layouts=outside)
            plan[f"{block}.{part}.output"] = RowwiseParallel(output_layouts=outside)
            if sequence:
                plan[f"{block}.{part}_norm"] = SequenceParallel(use_local_output=True)
    if hasattr(model, "head"):
        if isinstance(model.head, MaskedLanguageHead):
            plan["head.decoder"] = _RowsShared()
        if sequence:
            plan["head"] = PrepareModuleInput(
                input_layouts=(Shard(1), None, None),
                desired_input_layouts=(Replicate(), None, None),
                use_local_output=True,
            )
    return plan


class _RowsShared(ParallelStyle):
    """A module whose parameters are cut along their first dimension, and which does nothing itself."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            shared = nn.Parameter(distribute_tensor(parameter.data, device_mesh, [Shard(0)]))
            module.register_parameter(name, shared)
        return module


def mark_shards(model: Bert, tensor_rank: int, sequence: bool) -> None:
    """Tell the parts whose activations are shared out which share is here: they drop different elements."""
    for block in model.layers.values():
        assert isinstance(block, Block)
        block.attention.shard = tensor_rank
        block.shard = tensor_rank if sequence else None


class Stage(nn.Module):
    """Consecutive layers of the model, with the embedding before the first and the head behind the last."""

    def __init__(self, model: Bert, layers: range, first: bool, last: bool) -> None:
        super().__init__()
        self.model = model
        self.first, self.last = first, last
        for name in list(model.layers):
            if int(name) not in layers:
                del model.layers[name]
        if not first and last and is_tied(model.config):
            del model.embedding.position, model.embedding.token_type, model.embedding.norm
        elif not first:
            del model.embedding
        if not last:
            del model.head

    def forward(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        token_types: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        if self.first:
            x = self.model.embedding(x, token_types)
        for block in self.model.layers.values():
            x = block(x, lengths)
        return self.model.finish(x, labels, lengths) if self.last else x


def layer_costs(config: BertConfig) -> tuple[float, float, float]:
    """What the embedding, a layer and the head cost, in multiply-adds a token: for balanced stages."""
    block = 4 * config.hidden**2 + 2 * config.hidden * config.feed_forward_width
    head = ASKED * config.hidden * (config.hidden + config.vocab) if is_tied(config) else 0.0
    return 0.0, float(block), head


def is_tied(config: BertConfig) -> bool:
    """Whether the first and the last stage share a weight."""
    return config.head == "masked_language_modeling"


def tied_weight(model: Bert) -> nn.Parameter:
    """The weight that both the first and the last stage hold."""
    weight = model.embedding.token.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def boundary(config: BertConfig, micro: int, time: int, tensor: int, sequence: bool) -> tuple[int, int, int]:
    """The shape of what one stage hands to the next."""
    return micro, time // tensor if sequence else time, config.hidden


def tensor_traffic(config: BertConfig, sequence: bool, recompute: bool) -> dict[str, tuple[float, float]]:
    """What the tensor processes exchange for a micro-batch in a layer, the embedding (first) and the head (last).

    Counted in gathers (or scatters; a sum is two of them) of one activation [micro, time, hidden]: how many of them
    in the compute type, and how many in float32. Recomputing a block repeats all that it exchanges on its way
    forward: a norm comes last, and needs it. A masked-language head sums gradients of the positions that it is asked
    about.
    """
    again = 1 if recompute else 0
    asked = 2 * ASKED if is_tied(config) else 0.0
    if sequence:
        return {"layer": (4 + 2 * again, 4 + 2 * again), "first": (0, 3), "last": (asked, 1)}
    return {"layer": (4 + 4 * again, 4), "first": (0, 2), "last": (asked, 0)}
