"""How T5 is cut over tensor-parallel processes: by heads, also the position bias, feed-forward columns and tokens."""

from __future__ import annotations

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

from paddock.models.t5.model import T5
from paddock.models.transformer.parallel import (
    MasksOfTheirOwn,
    Plan,
    RowsDealtOut,
    VocabularyParallel,
    block_plan,
    embedding_plan,
)


def tensor_plan(model: T5, sequence: bool) -> Plan:
    """Of all modules that the model may have; a pipeline stage has some of them."""
    plan = embedding_plan("embedding", sequence)
    plan |= {f"position_bias.{stack}": RowsDealtOut() for stack in ("encoder", "decoder")}
    for unit in model.units():
        plan |= block_plan(unit, sequence) | _feed_forward_plan(unit, sequence)
        if unit.startswith("decoder"):
            plan |= _cross_attention_plan(unit, sequence)
    if sequence:
        plan |= {norm: SequenceParallel(use_local_output=True) for norm in ("encoder_norm", "decoder_norm")}
        plan["dropout"] = MasksOfTheirOwn()
    return plan | {"output": RowsDealtOut(), "head": VocabularyParallel(model.config.vocab, gathers=sequence)}


def _feed_forward_plan(unit: str, sequence: bool) -> Plan:
    return {
        f"{unit}.feed_forward.gate": ColwiseParallel(input_layouts=Shard(1) if sequence else Replicate()),
        f"{unit}.feed_forward.dropout": MasksOfTheirOwn(),
    }


def _cross_attention_plan(unit: str, sequence: bool) -> Plan:
    """What was read comes cut along its time too, and every layer gathers it for its keys and values."""
    name, outside = f"{unit}.cross_attention", Shard(1) if sequence else Replicate()
    plan: Plan = {
        f"{name}.dropout": MasksOfTheirOwn(),
        f"{name}.query": ColwiseParallel(input_layouts=outside),
        f"{name}.key_value": ColwiseParallel(input_layouts=outside),
        f"{name}.output": RowwiseParallel(output_layouts=outside),
    }
    return plan | ({f"{name}_norm": SequenceParallel(use_local_output=True)} if sequence else {})
