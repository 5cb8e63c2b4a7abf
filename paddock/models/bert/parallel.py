"""How BERT is cut over tensor-parallel processes."""

from __future__ import annotations

from paddock.models.bert.model import Bert
from paddock.models.transformer.parallel import (
    Plan,
    RowsDealtOut,
    VocabularyParallel,
    block_plan,
    embedding_plan,
    gathered_sequence,
)


def tensor_plan(model: Bert, sequence: bool) -> Plan:
    """Of all modules that the model may have; a pipeline stage has some of them."""
    plan = embedding_plan("embedding", sequence)
    for unit in model.units():
        plan |= block_plan(unit, sequence)
    masked = model.config.head == "masked_language_modeling"
    if masked:
        plan |= {"head.decoder": RowsDealtOut(), "head.scores": VocabularyParallel(model.config.vocab)}
    if sequence:
        plan["head"] = gathered_sequence(3 if masked else 2)
    return plan
