"""Language modelling: predict every next token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from paddock.data.cache import ArrayCache
from paddock.data.config import CorpusConfig, DataConfig, TokenizerConfig
from paddock.data.language.corpus import Corpus
from paddock.data.language.padded import PaddedDocuments, TrainingDocuments
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.language.windows import EvaluationSamples, SlidingSamples, TrainingSamples, find_document_ends
from paddock.data.loading.loader import fill_up
from paddock.errors import DataError
from paddock.models.config import IGNORED, ModelConfig
from paddock.tasks.corpora import CorpusTask
from paddock.tasks.task import Batch, Sample


class LanguageModeling(CorpusTask):
    """Next-token prediction over one corpus or a blend of several, ready to be read."""

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
        super().__init__(data, prepared, vocab, data.sequence_length + 1, seed)
        self._vocab, self._ends = vocab, find_document_ends(data, prepared.tokenizer)
        self._pads, self._truncates = data.samples == "padded", data.truncate
        self._cut: dict[tuple[str, int], int] = {}
        """How many documents were cut, by the part and the corpus that they are of."""

    def training_part(
        self, corpus: Corpus, documents: range, cache: ArrayCache | None
    ) -> TrainingSamples | TrainingDocuments:
        if self._pads:
            return TrainingDocuments(self._padded(corpus, documents, "training"), self._seed)
        length = self._data.sequence_length
        return TrainingSamples(corpus, documents, length, self._seed, ends=self._ends, cache=cache)

    def validation_part(self, corpus: Corpus, documents: range) -> Sequence[Sample]:
        if self._pads:
            return self._padded(corpus, documents, "validation")
        return EvaluationSamples(corpus, documents, self._data.sequence_length, ends=self._ends)

    def _padded(self, corpus: Corpus, documents: range, part: str) -> PaddedDocuments:
        found = PaddedDocuments(corpus, documents, self._data.sequence_length, self._truncates)
        self._cut[part, id(corpus)] = found.num_cut
        return found

    def notes(self) -> list[str]:
        counts: Counter[str] = Counter()
        for (part, _), count in self._cut.items():
            counts[part] += count
        cut = " and ".join(f"{count:,} {part} documents" for part, count in counts.items() if count)
        room = self._data.sequence_length + 1
        return [*super().notes(), *([f"{cut} have more than {room} tokens: they are cut"] if cut else [])]

    def fingerprint(self) -> dict[str, int | str]:
        # Nothing is said of packed samples, as ever: checkpoints from before go on.
        return super().fingerprint() | ({"data.samples": "padded"} if self._pads else {})

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return super().held_out_fingerprint() | ({"data.samples": "padded"} if self._pads else {})

    def sliding_part(self, corpus: Corpus, documents: range, stride: int) -> Sequence[Sample]:
        return SlidingSamples(corpus, documents, self._data.sequence_length, stride, ends=self._ends)

    def collate(self, samples: list[Sample]) -> Batch:
        batch = join_windows(samples)
        largest = max(int(batch["tokens"].max()), int(batch["labels"].max()))
        if largest >= self._vocab:
            raise DataError(
                f"the corpus has token {largest}, but model.vocab = {self._vocab}",
                why="it was made with a larger vocabulary",
                fix=f"set --model.vocab to at least {largest + 1}, or preprocess it with the model's tokenizer",
            )
        return batch


def join_windows(samples: list[Sample]) -> Batch:
    """Windows as a batch. Of those that slide, the first is asked for more tokens than the others, and the last for
    fewer: labels that nobody has do not count."""
    fills = {"labels": IGNORED, "places": 0} if "places" in samples[0] else {}
    rows = {name: [sample[name] for sample in samples] for name in samples[0]}
    return {
        name: fill_up(row, fills[name], None) if name in fills else torch.from_numpy(np.stack(row))
        for name, row in rows.items()
    }
