"""Masked language modelling: some tokens of a text are hidden, and the model says what they were."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from paddock.data.config import DataConfig, MaskedConfig, TokenizerConfig
from paddock.data.language.masking import MaskedLanguageModel, MaskOptions, MaskTokens
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.tokenizers.load import Tokenizer, check_fits
from paddock.models.config import IGNORED, ModelConfig
from paddock.tasks.corpora import PassageTask
from paddock.tasks.task import Batch, Sample

SPECIAL = ("cls", "sep", "mask", "pad")


class MaskedLanguageModeling(PassageTask):
    """What BERT learns from."""

    next_command: ClassVar[str] = 'predict {run} "… [MASK] …"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedCorpus:
        assert isinstance(data, MaskedConfig)
        vocab = model.vocabulary()
        return prepare(data, tokenizer, vocab, lambda found: check_fits(found, vocab, parts=SPECIAL))

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> MaskedLanguageModeling:
        assert isinstance(data, MaskedConfig)
        return cls(data, prepared, model.vocabulary(), seed)

    def __init__(self, data: MaskedConfig, prepared: PreparedCorpus, vocab: int, seed: int) -> None:
        self._masked = _objective(data, prepared.tokenizer, vocab)
        super().__init__(data, prepared, self._masked, vocab, seed)

    def collate(self, samples: list[Sample]) -> Batch:
        """Labels are those of the positions to predict, whose `places` stand beside them; rows have as many, the rest
        is ignored. So the head scores few positions, and nobody has to look for them on the device."""
        batch = {
            name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in ("tokens", "token_types")
        }
        shape = (len(samples), self._masked.most_predictions)
        places, labels = np.zeros(shape, dtype=np.int64), np.full(shape, IGNORED)
        for row, sample in enumerate(samples):
            # A single word can have more pieces than a row has predictions.
            chosen = np.flatnonzero(sample["labels"] != IGNORED)[: shape[1]]
            places[row, : len(chosen)], labels[row, : len(chosen)] = chosen, sample["labels"][chosen]
        lengths = torch.tensor([int(sample["mask"].sum()) for sample in samples])
        return {**batch, "labels": torch.from_numpy(labels), "places": torch.from_numpy(places), "lengths": lengths}


def _objective(data: MaskedConfig, tokenizer: Tokenizer | None, vocab: int) -> MaskedLanguageModel:
    options = MaskOptions(data.sequence_length, data.masking, whole_words=data.whole_words)
    if tokenizer is None:  # random tokens: the first few play the special parts
        return MaskedLanguageModel(options, MaskTokens(cls=1, sep=2, mask=3, pad=0, vocab=vocab))
    cls, sep, mask, pad = (tokenizer.special_id(part) for part in SPECIAL)
    assert cls is not None and sep is not None and mask is not None and pad is not None, "checked when prepared"
    tokens = MaskTokens(cls, sep, mask, pad, tokenizer.vocab_size)
    continuation = tokenizer.continuation() if data.whole_words else None
    return MaskedLanguageModel(options, tokens, continuation, tokenizer.unmarked())
