"""Span corruption: short spans are cut out of a text, and the decoder fills them in. What T5 and mT5 learn from."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from paddock.data.config import DataConfig, SpanConfig, TokenizerConfig
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.language.spans import SpanCorruption, SpanOptions, SpanTokens
from paddock.data.tokenizers.interface import missing_sentinel
from paddock.data.tokenizers.load import Tokenizer, check_fits, check_start
from paddock.errors import DataError
from paddock.models.config import ModelConfig, SampleShape
from paddock.tasks.corpora import PassageTask
from paddock.tasks.task import Batch, Sample

SPECIAL = ("pad", "end_of_text")
THE_MODELS_OWN = "take the files that the model came with; to add sentinels to others, set --tokenizer.extra-ids"
RANDOM_SENTINELS = 100
"""How many of the highest ids are sentinels where tokens are random."""


class SpanCorruptionTask(PassageTask):
    """Passages with spans cut out as the source, and the spans as the target."""

    next_command: ClassVar[str] = 'generate {run} --prompt "… <extra_id_0> …"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedCorpus:
        assert isinstance(data, SpanConfig)
        prepared = prepare(data, tokenizer, model.vocabulary(), lambda found: span_objective(data, found, model))
        if prepared.tokenizer is None:
            span_objective(data, None, model)
        return prepared

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> SpanCorruptionTask:
        assert isinstance(data, SpanConfig)
        return cls(data, prepared, model, seed)

    def __init__(self, data: SpanConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> None:
        objective = span_objective(data, prepared.tokenizer, model)
        # Random tokens leave the sentinels' ids alone.
        text = model.vocabulary() - (len(objective.tokens.sentinels) if prepared.tokenizer is None else 0)
        super().__init__(data, prepared, objective, text, seed)

    def fingerprint(self) -> dict[str, int | str]:
        return super().fingerprint() | self._lengths()

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return super().held_out_fingerprint() | self._lengths()

    def _lengths(self) -> dict[str, int | str]:
        assert isinstance(self._data, SpanConfig)
        return {"data.target_length": self._data.target_length}

    def collate(self, samples: list[Sample]) -> Batch:
        names = ("tokens", "decoder_tokens", "labels")
        batch = {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in names}
        return batch | {"lengths": torch.tensor([int(sample["mask"].sum()) for sample in samples])}

    def sample_shape(self, batch: Batch) -> SampleShape:
        return SampleShape(batch["tokens"].shape[1], batch["decoder_tokens"].shape[1])

    def num_tokens(self, batch: Batch) -> int:
        return batch["tokens"].numel() + batch["decoder_tokens"].numel()


def span_objective(data: SpanConfig, tokenizer: Tokenizer | None, model: ModelConfig | None = None) -> SpanCorruption:
    """What cuts spans out of passages, with the special tokens of a tokenizer; or an error, if it lacks some. Of a
    model's random tokens, the first and the last play their parts."""
    options = SpanOptions(data.sequence_length, data.target_length, data.masking, data.mean_span)
    start = None if model is None else model.start_token()
    if tokenizer is None:
        assert model is not None
        highest = model.vocabulary() - 1
        count = min(RANDOM_SENTINELS, model.vocabulary() // 2)
        sentinels = tuple(range(highest, highest - count, -1))
        return SpanCorruption(options, SpanTokens(pad=0, end=1, sentinels=sentinels, start=start))
    check_sentinels(tokenizer)
    check_fits(tokenizer, tokenizer.vocab_size, parts=SPECIAL)
    if model is not None and start is not None:
        check_start(tokenizer, model)
    pad, end = (tokenizer.special_id(part) for part in SPECIAL)
    assert pad is not None and end is not None
    return SpanCorruption(options, SpanTokens(pad, end, tuple(tokenizer.sentinel_ids), start), tokenizer.unmarked())


def check_sentinels(tokenizer: Tokenizer) -> None:
    """Sentinels follow each other, all of them: in the files of T5's kind from the highest id down, <extra_id_0>
    first; in other vocabularies, to which they were added, perhaps up."""
    missing = missing_sentinel(tokenizer)
    if missing is not None:
        raise DataError(
            f"the tokenizer has no {missing}",
            why="it has sentinels of higher numbers, and each span is named by the next",
            fix=THE_MODELS_OWN,
        )
    check_fits(tokenizer, tokenizer.vocab_size, sentinels=1)
    ids = tokenizer.sentinel_ids
    steps = set(np.diff(ids).tolist())
    if len(steps) > 1 or steps - ({-1} if tokenizer.sentinels_descend else {1, -1}):
        order = "from the highest id down, <extra_id_0> first" if tokenizer.sentinels_descend else "one after the other"
        raise DataError(
            "the tokenizer's sentinels are not in order",
            why=f"they should lie {order}; <extra_id_0>, <extra_id_1>, … have the ids "
            f"{', '.join(map(str, ids[:6]))}{', …' if len(ids) > 6 else ''}",
            fix=THE_MODELS_OWN,
        )
