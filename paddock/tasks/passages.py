"""What tasks share that learn from passages of a corpus: masked language modelling, span corruption."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from paddock.data.cache import cache_beside, cache_folder
from paddock.data.config import TokensConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.blend import BlendedSamples, ChainedSamples, blend_weights, describe_blend
from paddock.data.language.corpus import Corpus, SyntheticCorpus, split_documents
from paddock.data.language.passages import EvaluationPassages, Objective, TrainingPassages
from paddock.data.language.prepare import PreparedCorpus
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


class PassageTask(Task):
    """Passages of one corpus, or of a blend of several, that an objective makes samples of."""

    measures: ClassVar[Mapping[str, Goal]] = {"loss": "MINIMIZE", "perplexity": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = False

    def __init__(
        self, data: TokensConfig, prepared: PreparedCorpus, objective: Objective, vocab: int, seed: int
    ) -> None:
        self._data, self._seed, self._blend = data, seed, prepared.prefixes
        self._objective = objective
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

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        loss = judgement.sums["loss"] / max(judgement.sums["count"], 1.0)
        return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
