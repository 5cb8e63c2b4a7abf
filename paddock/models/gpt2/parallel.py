"""How GPT-2 is cut over tensor-parallel processes."""

from __future__ import annotations

from torch.distributed.tensor.parallel import SequenceParallel

from paddock.models.gpt2.model import GPT2
from paddock.models.transformer.parallel import Plan, VocabularyParallel, block_plan, embedding_plan


def tensor_plan(model: GPT2, sequence: bool) -> Plan:
    """Of all modules that the model may have; a pipeline stage has some of them."""
    plan = embedding_plan("embedding", sequence)
    for unit in model.units():
        plan |= block_plan(unit, sequence)
    if sequence:
        plan["final_norm"] = SequenceParallel(use_local_output=True)
    return plan | {"head": VocabularyParallel(model.config.vocab, gathers=sequence)}
