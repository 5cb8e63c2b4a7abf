"""Language modelling: predict every next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from paddock.data.config import DataConfig
from paddock.data.gpt import Corpus, EvaluationSamples, TrainingSamples, split_documents
from paddock.data.indexed import IndexedTokens
from paddock.data.prepare import PreparedData
from paddock.data.synthetic import SyntheticCorpus
from paddock.errors import DataError
from paddock.models.labels import IGNORED
from paddock.tasks.task import Batch, Sample, Samples


class LanguageModeling:
    """Next-token prediction over a corpus that is ready to be read."""

    def __init__(self, data: DataConfig, prepared: PreparedData, vocab: int, seed: int) -> None:
        self._data, self._vocab, self._seed = data, vocab, seed
        self._corpus: Corpus
        if prepared.prefix is None:
            self._corpus = SyntheticCorpus(vocab, data.sequence_length + 1, seed)
        else:
            self._corpus = IndexedTokens(prepared.prefix)
        self._parts = split_documents(len(self._corpus.sizes), data.split)

    @property
    def tokens_per_sample(self) -> int:
        return self._data.sequence_length

    def training_samples(self) -> Samples:
        return TrainingSamples(self._corpus, self._parts[0], self._data.sequence_length, self._seed)

    def validation_samples(self) -> Sequence[Sample]:
        samples = EvaluationSamples(self._corpus, self._parts[1], self._data.sequence_length)
        if not len(samples):
            raise DataError(
                "the validation part is empty",
                why=f"data.split {list(self._data.split)} leaves it {len(self._parts[1])} of "
                f"{len(self._corpus.sizes)} documents",
                fix="give the second weight of --data.split a larger value, or set --evaluate.every None",
            )
        return samples

    def collate(self, samples: list[Sample]) -> Batch:
        batch = {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in samples[0]}
        largest = int(batch["tokens"].max())
        if largest >= self._vocab:
            raise DataError(
                f"the corpus has token {largest}, but model.vocab = {self._vocab}",
                why="it was made with a larger vocabulary",
                fix=f"set --model.vocab to at least {largest + 1}, or preprocess it with the model's tokenizer",
            )
        return batch

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def loss(self, model: Callable[..., Tensor], batch: Batch) -> Tensor:
        return model(batch["tokens"], labels=batch["labels"])

    def metrics(self, loss_sum: float, count: float) -> dict[str, float]:
        loss = loss_sum / max(count, 1.0)
        return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
