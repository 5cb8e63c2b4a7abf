"""How GPT-2 is cut: which weights lie over which processes, and what a pipeline stage is."""

from __future__ import annotations

from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2, Block

MAIN_INPUT = "tokens"
"""The name of what the first stage reads, in a batch; all stages get the rest."""


def tensor_plan(model: GPT2, sequence: bool) -> dict[str, ParallelStyle]:
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
    if sequence and hasattr(model, "final_norm"):
        plan["final_norm"] = SequenceParallel(use_local_output=True)
        plan["head"] = PrepareModuleInput(
            input_layouts=(Shard(1), None, None),
            desired_input_layouts=(Replicate(), None, None),
            use_local_output=True,
        )
    return plan


def mark_shards(model: GPT2, tensor_rank: int, sequence: bool) -> None:
    """Tell the parts whose activations are shared out which share is here: they drop different elements."""
    for block in model.layers.values():
        assert isinstance(block, Block)
        block.attention.shard = tensor_rank
        block.shard = tensor_rank if sequence else None


class Stage(nn.Module):
    """Consecutive layers of the model, with the embedding before the first and the head behind the last."""

    def __init__(self, model: GPT2, layers: range, first: bool, last: bool) -> None:
        super().__init__()
        self.model = model
        self.first, self.last = first, last
        for name in list(model.layers):
            if int(name) not in layers:
                del model.layers[name]
        if not first:
            del model.embedding.position
        if not first and not last:
            del model.embedding
        if not last:
            del model.final_norm, model.head

    def forward(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        if self.first:
            x = self.model.embedding(x, positions)
        for block in self.model.layers.values():
            x = block(x, segments)
        if self.last:
            x = self.model.head(self.model.final_norm(x), self.model.embedding.token.weight, labels)
        return x


def layer_costs(config: GPT2Config) -> tuple[float, float, float]:
    """What the embedding, a layer and the head cost, in multiply-adds a token: for balanced stages."""
    block = 4 * config.hidden**2 + 2 * config.hidden * config.feed_forward_width
    return 0.0, float(block), float(config.hidden * config.vocab)


def is_tied(config: GPT2Config) -> bool:
    """Whether the first and the last stage share a weight."""
    return True


def tied_weight(model: GPT2) -> nn.Parameter:
    """The weight that both the first and the last stage hold."""
    weight = model.embedding.token.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def boundary(config: GPT2Config, micro: int, time: int, tensor: int, sequence: bool) -> tuple[int, int, int]:
    """The shape of what one stage hands to the next."""
    return micro, time // tensor if sequence else time, config.hidden


def tensor_traffic(config: GPT2Config, sequence: bool, recompute: bool) -> dict[str, tuple[float, float]]:
    """What the tensor processes exchange for a micro-batch in a layer, the embedding (first) and the head (last).

    Counted in gathers (or scatters; a sum is two of them) of one activation [micro, time, hidden]: how many of them
    in the compute type, and how many in float32. Recomputing a block leaves out its very last exchange.
    """
    again = 1 if recompute else 0
    if sequence:
        return {"layer": (4 + again, 4 + 2 * again), "first": (0, 3), "last": (2, 1)}
    return {"layer": (4 + 2 * again, 4), "first": (0, 2), "last": (2, 0)}
