"""Language modelling: predict every next token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch

from paddock.data.cache import cache_beside, cache_folder
from paddock.data.config import CorpusConfig, DataConfig, TokenizerConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.blend import BlendedSamples, ChainedSamples, blend_weights, describe_blend
from paddock.data.language.corpus import Corpus, SyntheticCorpus, split_documents
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.language.windows import EvaluationSamples, TrainingSamples, find_document_ends
from paddock.errors import DataError
from paddock.models.config import IGNORED, ModelConfig
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


class LanguageModeling(Task):
    """Next-token prediction over one corpus or a blend of several, ready to be read."""

    measures: ClassVar[Mapping[str, Goal]] = {"loss": "MINIMIZE", "perplexity": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = False
    next_command: ClassVar[str] = 'generate {run} --prompt "The"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedCorpus:
        assert isinstance(data, CorpusConfig)
        return prepare(data, tokenizer, model.vocabulary())

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> LanguageModeling:
        assert isinstance(data, CorpusConfig)
        return cls(data, prepared, model.vocabulary(), seed)

    def __init__(self, data: CorpusConfig, prepared: PreparedCorpus, vocab: int, seed: int) -> None:
        self._data, self._vocab, self._seed = data, vocab, seed
        self._blend = prepared.prefixes
        self._ends = find_document_ends(data, prepared.tokenizer)
        self._corpora: list[Corpus] = [IndexedTokens(prefix) for _, prefix in self._blend]
        if not self._corpora:
            self._corpora = [SyntheticCorpus(vocab, data.sequence_length + 1, seed)]
        self._parts = [split_documents(len(corpus.documents) - 1, data.split) for corpus in self._corpora]

    def training_samples(self) -> Samples:
        parts = [self._training_part(corpus, part[0]) for corpus, part in zip(self._corpora, self._parts, strict=True)]
        if len(parts) == 1:
            return parts[0]
        return BlendedSamples(parts, blend_weights(self._blend, [part.tokens for part in parts]), self._seed)

    def _training_part(self, corpus: Corpus, documents: range) -> TrainingSamples:
        cache = cache_beside(corpus, cache_folder(self._data)) if isinstance(corpus, IndexedTokens) else None
        length = self._data.sequence_length
        return TrainingSamples(corpus, documents, length, self._seed, ends=self._ends, cache=cache)

    def fingerprint(self) -> dict[str, int | str]:
        content = describe_blend(self._blend, self._corpora, [part[0] for part in self._parts])
        return {"data.sequence_length": self._data.sequence_length, TRAINING_DATA: content}

    def held_out_fingerprint(self) -> dict[str, int | str]:
        content = describe_blend(self._blend, self._corpora, [part[1] for part in self._parts])
        return {"data.sequence_length": self._data.sequence_length, HELD_OUT_DATA: content}

    def validation_samples(self) -> Sequence[Sample]:
        length, parts = self._data.sequence_length, [part[1] for part in self._parts]
        samples = ChainedSamples(
            [
                EvaluationSamples(corpus, documents, length, ends=self._ends)
                for corpus, documents in zip(self._corpora, parts, strict=True)
            ]
        )
        if not len(samples):
            total = sum(len(corpus.documents) - 1 for corpus in self._corpora)
            raise DataError(
                "the validation part is empty",
                why=f"data.split {list(self._data.split)} leaves it {sum(map(len, parts))} of {total} documents",
                fix="give the second weight of --data.split a larger value, or set --evaluate.every None",
            )
        return samples

    def collate(self, samples: list[Sample]) -> Batch:
        batch = {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}
        largest = max(int(batch["tokens"].max()), int(batch["labels"].max()))
        if largest >= self._vocab:
            raise DataError(
                f"the corpus has token {largest}, but model.vocab = {self._vocab}",
                why="it was made with a larger vocabulary",
                fix=f"set --model.vocab to at least {largest + 1}, or preprocess it with the model's tokenizer",
            )
        return batch

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        loss = judgement.sums["loss"] / max(judgement.sums["count"], 1.0)
        return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
