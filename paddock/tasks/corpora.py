"""What tasks share that learn from a corpus of tokens, or from a blend of several."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, get_args

from paddock.checkpoint.position import HELD_OUT_CONTENT, TRAINING_CONTENT
from paddock.data.cache import ArrayCache, cache_beside, cache_folder
from paddock.data.config import Part, TokensConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.blend import (
    BlendedSamples,
    ChainedSamples,
    CorpusSamples,
    blend_weights,
    describe_blend,
    describe_contents,
)
from paddock.data.language.corpus import Corpus, CutDocument, SyntheticCorpus, count_tokens, split_documents
from paddock.data.language.passages import EvaluationPassages, Objective, TrainingPassages
from paddock.data.language.prepare import PreparedCorpus
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


def perplexity(loss: float) -> float:
    """Of a mean negative log-likelihood; infinite where no number can hold it."""
    return math.exp(loss) if loss < 700 else math.inf


class CorpusTask(Task):
    """Learns from parts of the documents of each corpus, of which a kind of task makes samples."""

    measures: ClassVar[Mapping[str, Goal]] = {"loss": "MINIMIZE", "perplexity": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = False

    def __init__(self, data: TokensConfig, prepared: PreparedCorpus, vocab: int, random_length: int, seed: int) -> None:
        """Without a corpus there are random tokens below `vocab`, in documents of `random_length`."""
        self._data, self._seed, self._blend = data, seed, prepared.prefixes
        self._corpora: list[Corpus] = [IndexedTokens(prefix) for _, prefix in self._blend]
        if not self._corpora:
            self._corpora = [SyntheticCorpus(vocab, random_length, seed)]
        self._parts = [split_documents(len(corpus.documents) - 1, data.split) for corpus in self._corpora]
        self._is_cut = self._is_one_document()
        if self._is_cut:
            self._corpora = [CutDocument(self._corpora[0], data.split)]
            self._parts = [(range(1), range(1, 2), range(2, 3))]

    def _is_one_document(self) -> bool:
        """Whether the corpus is a single document, such as a book, that several parts must share."""
        return (
            len(self._corpora) == 1
            and len(self._corpora[0].documents) == 2
            and sum(weight > 0 for weight in self._data.split) > 1
        )

    @abstractmethod
    def training_part(self, corpus: Corpus, documents: range, cache: ArrayCache | None) -> CorpusSamples:
        """Endless samples of some documents."""

    @abstractmethod
    def validation_part(self, corpus: Corpus, documents: range) -> Sequence[Sample]:
        """Every sample of some documents."""

    def sliding_part(self, corpus: Corpus, documents: range, stride: int) -> Sequence[Sample]:
        """The same, of windows that begin so far apart, where the data section says that they may."""
        raise AssertionError("a rule of the recipe refuses it")

    def training_samples(self) -> Samples:
        parts = []
        for corpus, (documents, *_) in zip(self._corpora, self._parts, strict=True):
            cache = cache_beside(corpus, cache_folder(self._data)) if isinstance(corpus, IndexedTokens) else None
            parts.append(self.training_part(corpus, documents, cache))
        if len(parts) == 1:
            return parts[0]
        return BlendedSamples(parts, blend_weights(self._blend, [part.tokens for part in parts]), self._seed)

    def validation_samples(self) -> Sequence[Sample]:
        return self.held_out_samples("validation", None)

    def held_out_samples(self, part: Part, stride: int | None) -> Sequence[Sample]:
        number = get_args(Part).index(part)
        documents = [parts[number] for parts in self._parts]
        read = self.validation_part if stride is None else partial(self.sliding_part, stride=stride)
        samples = ChainedSamples(
            [read(corpus, chosen) for corpus, chosen in zip(self._corpora, documents, strict=True)]
        )
        if not len(samples):
            otherwise = ", or set --evaluate.every None" if part == "validation" else ""
            weight = f"the {('first', 'second', 'third')[number]} weight of --data.split a larger value"
            raise DataError(
                f"the {part} part is empty",
                why=f"data.split {list(self._data.split)} leaves it {self._share(documents)}",
                fix=f"give more text, or {weight}{otherwise}",
            )
        return samples

    def _share(self, documents: Sequence[range]) -> str:
        """What some documents are of the whole, in words."""
        corpora = self._corpora
        tokens = sum(count_tokens(corpus, part) for corpus, part in zip(corpora, documents, strict=True))
        all_documents = [range(len(corpus.documents) - 1) for corpus in corpora]
        if self._is_cut:
            whole = count_tokens(corpora[0], all_documents[0])
            return f"{tokens:,} of the {whole:,} tokens of the one document, which is split inside it"
        few = f", with {tokens:,} token{'' if tokens == 1 else 's'}" if any(map(len, documents)) else ""
        return f"{sum(map(len, documents))} of {sum(map(len, all_documents))} documents{few}"

    def notes(self) -> list[str]:
        if not self._is_cut:
            return []
        tokens = (f"{count_tokens(self._corpora[0], part):,}" for part in self._parts[0])
        return [f"the corpus is one document, split inside it: {' + '.join(tokens)} tokens by data.split"]

    def fingerprint(self) -> dict[str, int | str]:
        return self._describe(0, TRAINING_DATA, TRAINING_CONTENT)

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return self._describe(1, HELD_OUT_DATA, HELD_OUT_CONTENT)

    def _describe(self, part: int, entry: str, content: str) -> dict[str, int | str]:
        documents = [parts[part] for parts in self._parts]
        return {
            "data.sequence_length": self._data.sequence_length,
            entry: describe_blend(self._blend, self._corpora, documents),
            content: describe_contents(self._corpora, documents),
        }

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        loss = judgement.sums["loss"] / max(judgement.sums["count"], 1.0)
        return {"loss": loss, "perplexity": perplexity(loss)}


class PassageTask(CorpusTask):
    """Passages, of which an objective makes samples: masked language modelling, span corruption."""

    def __init__(
        self, data: TokensConfig, prepared: PreparedCorpus, objective: Objective, vocab: int, seed: int
    ) -> None:
        super().__init__(data, prepared, vocab, data.sequence_length, seed)
        self._objective = objective

    def training_part(self, corpus: Corpus, documents: range, cache: ArrayCache | None) -> TrainingPassages:
        return TrainingPassages(corpus, documents, self._objective, self._seed, cache=cache)

    def validation_part(self, corpus: Corpus, documents: range) -> Sequence[Sample]:
        return EvaluationPassages(corpus, documents, self._objective, self._seed)
