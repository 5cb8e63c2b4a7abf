"""What a sample that crosses document borders may know of them: positions, attention and loss, as in Megatron-LM.

Borders are where the end-of-document token stands; that token still belongs to its document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.data.config import CorpusConfig
from paddock.data.tokenizer import Tokenizer
from paddock.errors import ConfigError, bad_value
from paddock.models.labels import IGNORED


@dataclass(frozen=True)
class DocumentEnds:
    """The end-of-document token, and what begins anew behind it."""

    token: int
    reset_positions: bool = False
    reset_attention: bool = False
    mask_loss: bool = False

    def mark(self, sample: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """A sample of `tokens` and `labels` with `positions` in the document, `segments` (the number of the document
        in the sample: tokens see only their own) and without labels at end-of-document tokens, as the options say."""
        tokens, marked = sample["tokens"], dict(sample)
        ends = np.flatnonzero(tokens == self.token)
        borders = np.concatenate([[0], ends + 1, [len(tokens)]])
        starts, lengths = borders[:-1], borders[1:] - borders[:-1]
        if self.reset_positions:
            marked["positions"] = np.arange(len(tokens)) - np.repeat(starts, lengths)
        if self.reset_attention:
            marked["segments"] = np.repeat(np.arange(len(starts)), lengths)
        if self.mask_loss:
            marked["labels"] = sample["labels"].copy()
            marked["labels"][ends] = IGNORED
        return marked


def find_document_ends(data: CorpusConfig, tokenizer: Tokenizer | None) -> DocumentEnds | None:
    """What the recipe asks for; None if it does not care about the ends of documents."""
    if not data.minds_document_ends:
        return None
    known = None if tokenizer is None else tokenizer.end_of_text_id
    token = data.eod if known is None else known
    if token is None:
        raise ConfigError(
            "the token that ends a document is not known",
            why="data.reset_position_ids, reset_attention_mask and eod_mask_loss look for it",
            fix="set --data.eod ID, or a tokenizer with an end_of_text",
        )
    if data.eod not in (None, token):
        raise bad_value("data.eod", data.eod, f"the tokenizer ends documents with token {token}", "leave it out")
    return DocumentEnds(token, data.reset_position_ids, data.reset_attention_mask, data.eod_mask_loss)
