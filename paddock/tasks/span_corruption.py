"""Span corruption: short spans are cut out of a text, and the decoder fills them in. What T5 and mT5 learn from."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from paddock.data.config import DataConfig, SpanConfig, TokenizerConfig
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.language.spans import SpanCorruption, SpanOptions, SpanTokens
from paddock.data.tokenizers.load import Tokenizer, check_fits
from paddock.errors import DataError
from paddock.models.config import ModelConfig, SampleShape
from paddock.tasks.passages import PassageTask
from paddock.tasks.task import Batch, Sample

SPECIAL = ("pad", "end_of_text")
RANDOM_SENTINELS = 100
"""How many of the highest ids are sentinels where tokens are random."""


class SpanCorruptionTask(PassageTask):
    """Passages with spans cut out as the source, and the spans as the target."""

    next_command: ClassVar[str] = "evaluate {run}"

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedCorpus:
        assert isinstance(data, SpanConfig)
        prepared = prepare(data, tokenizer, model.vocabulary())
        if prepared.tokenizer is not None:
            check_fits(prepared.tokenizer, model.vocabulary(), parts=SPECIAL, sentinels=1)
            check_order(prepared.tokenizer)
        return prepared

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> SpanCorruptionTask:
        assert isinstance(data, SpanConfig)
        return cls(data, prepared, model, seed)

    def __init__(self, data: SpanConfig, prepared: PreparedCorpus, model: ModelConfig, seed: int) -> None:
        options = SpanOptions(data.sequence_length, data.target_length, data.masking, data.mean_span)
        tokens = span_tokens(prepared.tokenizer, model)
        unmarked = None if prepared.tokenizer is None else prepared.tokenizer.unmarked()
        objective = SpanCorruption(options, tokens, unmarked)
        # Random tokens leave the sentinels' ids alone.
        text = model.vocabulary() - (len(tokens.sentinels) if prepared.tokenizer is None else 0)
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


def span_tokens(tokenizer: Tokenizer | None, model: ModelConfig) -> SpanTokens:
    """The special tokens of a tokenizer; of random tokens, the first and the last play these parts."""
    start = model.start_token()
    if tokenizer is None:
        highest = model.vocabulary() - 1
        count = min(RANDOM_SENTINELS, model.vocabulary() // 2)
        return SpanTokens(pad=0, end=1, sentinels=tuple(range(highest, highest - count, -1)), start=start)
    pad, end = (tokenizer.special_id(part) for part in SPECIAL)
    assert pad is not None and end is not None, "checked when prepared"
    return SpanTokens(pad, end, tuple(tokenizer.sentinel_ids), start)


def check_order(tokenizer: Tokenizer) -> None:
    """Sentinels follow each other, one way or the other: T5's own from the highest id down, <extra_id_0> first."""
    ids = tokenizer.sentinel_ids
    steps = set(np.diff(ids).tolist())
    if len(steps) > 1 or steps - {1, -1}:
        raise DataError(
            "the tokenizer's sentinels are not in order",
            why=f"<extra_id_0>, <extra_id_1>, … have the ids {', '.join(map(str, ids[:6]))}, …",
            fix="they follow each other in every T5 tokenizer: take the files that the model came with",
        )
