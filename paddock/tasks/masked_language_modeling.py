"""Masked language modelling: some tokens of a text are hidden, and the model says what they were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch

from paddock.data.cache import cache_beside, cache_folder
from paddock.data.config import DataConfig, MaskedConfig, TokenizerConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.blend import BlendedSamples, ChainedSamples, blend_weights, describe_blend
from paddock.data.language.corpus import Corpus, SyntheticCorpus, split_documents
from paddock.data.language.masking import MaskedLanguageModel, MaskOptions, MaskTokens
from paddock.data.language.passages import EvaluationPassages, TrainingPassages
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.tokenizers.load import Tokenizer, check_fits
from paddock.errors import DataError
from paddock.models.config import IGNORED, ModelConfig
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task

SPECIAL = ("cls", "sep", "mask", "pad")


class MaskedLanguageModeling(Task):
    """What BERT learns from: passages of one corpus or of a blend of several."""

    measures: ClassVar[Mapping[str, Goal]] = {"loss": "MINIMIZE", "perplexity": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = False
    next_command: ClassVar[str] = 'predict {run} "… [MASK] …"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedCorpus:
        assert isinstance(data, MaskedConfig)
        prepared = prepare(data, tokenizer, model.vocabulary())
        if prepared.tokenizer is not None:
            check_fits(prepared.tokenizer, model.vocabulary(), parts=SPECIAL)
        return prepared

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> MaskedLanguageModeling:
        assert isinstance(data, MaskedConfig)
        return cls(data, prepared, model.vocabulary(), seed)

    def __init__(self, data: MaskedConfig, prepared: PreparedCorpus, vocab: int, seed: int) -> None:
        self._data, self._seed, self._blend = data, seed, prepared.prefixes
        self._objective = _objective(data, prepared.tokenizer, vocab)
        self._corpora: list[Corpus] = [IndexedTokens(prefix) for _, prefix in self._blend]
        if not self._corpora:
            self._corpora = [SyntheticCorpus(vocab, data.sequence_length, seed)]
        self._parts = [split_documents(len(corpus.documents) - 1, data.split) for corpus in self._corpora]

    def training_samples(self) -> Samples:
        parts = []
        for corpus, (documents, *_) in zip(self._corpora, self._parts, strict=True):
            cache = cache_beside(corpus, cache_folder(self._data)) if isinstance(corpus, IndexedTokens) else None
            parts.append(TrainingPassages(corpus, documents, self._objective, self._seed, cache=cache))
        if len(parts) == 1:
            return parts[0]
        return BlendedSamples(parts, blend_weights(self._blend, [part.tokens for part in parts]), self._seed)

    def fingerprint(self) -> dict[str, int | str]:
        content = describe_blend(self._blend, self._corpora, [part[0] for part in self._parts])
        return {"data.sequence_length": self._data.sequence_length, TRAINING_DATA: content}

    def held_out_fingerprint(self) -> dict[str, int | str]:
        content = describe_blend(self._blend, self._corpora, [part[1] for part in self._parts])
        return {"data.sequence_length": self._data.sequence_length, HELD_OUT_DATA: content}

    def validation_samples(self) -> Sequence[Sample]:
        pairs = zip(self._corpora, self._parts, strict=True)
        samples = ChainedSamples(
            [EvaluationPassages(corpus, documents, self._objective, self._seed) for corpus, (_, documents, _) in pairs]
        )
        if not len(samples):
            raise DataError(
                "the validation part is empty",
                why=f"data.split {list(self._data.split)} leaves it no text",
                fix="give the second weight of --data.split a larger value, or set --evaluate.every None",
            )
        return samples

    def collate(self, samples: list[Sample]) -> Batch:
        """Labels are those of the positions to predict, whose `places` stand beside them; rows have as many, the rest
        is ignored. So the head scores few positions, and nobody has to look for them on the device."""
        batch = {
            name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in ("tokens", "token_types")
        }
        shape = (len(samples), self._objective.most_predictions)
        places, labels = np.zeros(shape, dtype=np.int64), np.full(shape, IGNORED)
        for row, sample in enumerate(samples):
            # A single word can have more pieces than a row has predictions.
            chosen = np.flatnonzero(sample["labels"] != IGNORED)[: shape[1]]
            places[row, : len(chosen)], labels[row, : len(chosen)] = chosen, sample["labels"][chosen]
        lengths = torch.tensor([int(sample["mask"].sum()) for sample in samples])
        return {**batch, "labels": torch.from_numpy(labels), "places": torch.from_numpy(places), "lengths": lengths}

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        loss = judgement.sums["loss"] / max(judgement.sums["count"], 1.0)
        return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}


def _objective(data: MaskedConfig, tokenizer: Tokenizer | None, vocab: int) -> MaskedLanguageModel:
    options = MaskOptions(data.sequence_length, data.masking, whole_words=data.whole_words)
    if tokenizer is None:  # random tokens: the first few play the special parts
        return MaskedLanguageModel(options, MaskTokens(cls=1, sep=2, mask=3, pad=0, vocab=vocab))
    cls, sep, mask, pad = (tokenizer.special_id(part) for part in SPECIAL)
    assert cls is not None and sep is not None and mask is not None and pad is not None, "checked when prepared"
    tokens = MaskTokens(cls, sep, mask, pad, tokenizer.vocab_size)
    continuation = tokenizer.continuation() if data.whole_words else None
    return MaskedLanguageModel(options, tokens, continuation, tokenizer.unmarked())
