"""Sequence to sequence: read a text, and write another: translation, summaries, anything from text to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.loading.loader import fill_up
from paddock.data.loading.sampler import Shuffle
from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.data.sequence_pairs.text import PairsFile, SequencePairs, load_pairs
from paddock.data.tokenizers.load import (
    Tokenizer,
    check_fits,
    check_start,
    learned_tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from paddock.errors import MachineError
from paddock.models.config import IGNORED, ModelConfig, SampleShape
from paddock.models.layers.basic import widest
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task, Writing

SPECIAL = ("pad", "end_of_text")


@dataclass(frozen=True)
class PreparedPairs:
    """A tokenizer; the pairs are read when they are asked for."""

    tokenizer: Tokenizer
    classes: tuple[str, ...] = ()


class TrainingPairs:
    """Every pair once an epoch, in an order of its own each time."""

    def __init__(self, pairs: SequencePairs, seed: int, shape: SampleShape | None) -> None:
        self._pairs, self._seed, self._shape = pairs, seed, shape
        self._order, self._epoch = Shuffle(len(pairs), seed, 0), 0

    @property
    def samples_per_epoch(self) -> float:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Sample:
        epoch, place = divmod(index, len(self._pairs))
        if epoch != self._epoch:
            self._order, self._epoch = Shuffle(len(self._pairs), self._seed, epoch), epoch
        return read_pair(self._pairs, self._order[place], self._shape)


class EvaluationPairs(Sequence[Sample]):
    """Every pair, in the order of the file."""

    def __init__(self, pairs: SequencePairs) -> None:
        self._pairs = pairs
        self.lengths = pairs.source_lengths

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return read_pair(self._pairs, index, None)


def read_pair(pairs: SequencePairs, index: int, shape: SampleShape | None) -> Sample:
    """A pair as a sample, to be filled up to `shape`."""
    return {"tokens": pairs.source(index), "labels": pairs.target(index), "shape": shape}


class SequenceToSequence(Task):
    """Sources with their targets; the model scores every next token of the target."""

    measures: ClassVar[Mapping[str, Goal]] = {
        "loss": "MINIMIZE",
        **dict.fromkeys(("token_accuracy", "exact_match", "bleu", "rouge_l"), "MAXIMIZE"),
    }
    judges_outputs: ClassVar[bool] = True
    judges_labels: ClassVar[bool] = True
    next_command: ClassVar[str] = 'predict {run} --text "…"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedPairs:
        assert isinstance(data, SequencePairsData)
        found = _learned(data, tokenizer, model) if tokenizer.kind == "trained" else load_tokenizer(tokenizer)
        assert found is not None, "a rule of the recipe sees to it"
        check_fits(found, model.vocabulary(), parts=SPECIAL)
        check_start(found, model)
        if data.generate == "always" and find_spec("sacrebleu") is None:
            raise MachineError(
                "data.generate = always needs the package sacrebleu",
                why="what the model writes is measured by BLEU",
                fix="pip install 'paddock[text]', or set --data.generate never",
            )
        return PreparedPairs(found)

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedPairs, model: ModelConfig, seed: int) -> SequenceToSequence:
        assert isinstance(data, SequencePairsData)
        return cls(data, prepared.tokenizer, model, seed)

    def __init__(self, data: SequencePairsData, tokenizer: Tokenizer, model: ModelConfig, seed: int) -> None:
        start, pad = model.start_token(), tokenizer.pad_id
        assert start is not None and pad is not None, "checked when prepared"
        self._data, self._tokenizer, self._seed = data, tokenizer, seed
        self._start, self._pad = start, pad

    def training_samples(self) -> Samples:
        shape = self._data.sample_shape() if self._data.padding == "full" else None
        return TrainingPairs(self._training, self._seed, shape)

    def validation_samples(self) -> Sequence[Sample]:
        return EvaluationPairs(self._validation)

    def fingerprint(self) -> dict[str, int | str]:
        return {**self._settings(), TRAINING_DATA: self._training.describe()}

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return {**self._settings(), HELD_OUT_DATA: self._validation.describe()}

    def _settings(self) -> dict[str, int | str]:
        return {f"data.{name}": getattr(self._data, name) for name in ("sequence_length", "target_length", "prefix")}

    def notes(self) -> list[str]:
        parts = {"training": self.__dict__.get("_training"), "validation": self.__dict__.get("_validation")}
        return [
            f"of {len(found)} {part} pairs, {found.cut_sources} sources are longer than {self._data.sequence_length} "
            f"tokens and {found.cut_targets} targets longer than {self._data.target_length}: they are cut"
            for part, found in parts.items()
            if found is not None and (found.cut_sources or found.cut_targets)
        ]

    def collate(self, samples: list[Sample]) -> Batch:
        """Behind the end token of a target no label counts."""
        shape = samples[0]["shape"]
        source, target = (None, None) if shape is None else (shape.source, shape.target)
        sources, targets = ([sample[name] for sample in samples] for name in ("tokens", "labels"))
        shifted = [np.concatenate([[self._start], row[:-1]]) for row in targets]
        return {
            "tokens": fill_up(sources, self._pad, source, self._data.sequence_length),
            "lengths": torch.tensor([len(row) for row in sources]),
            "decoder_tokens": fill_up(shifted, self._pad, target, self._data.target_length),
            "labels": fill_up(targets, IGNORED, target, self._data.target_length),
        }

    def sample_shape(self, batch: Batch) -> SampleShape:
        return SampleShape(batch["tokens"].shape[1], batch["decoder_tokens"].shape[1])

    def num_tokens(self, batch: Batch) -> int:
        return batch["tokens"].numel() + batch["decoder_tokens"].numel()

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        """Every target is given to the decoder up to the token that it is asked for."""
        likely, likeliest = outputs.unbind(-1)
        right = float((likeliest == batch["labels"]).sum())
        return Judgement({"loss": -float(widest(likely).sum()), "right": right, "count": float(self.count(batch))})

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        sums, count = judgement.sums, max(judgement.sums["count"], 1.0)
        found = {"loss": sums["loss"] / count, "token_accuracy": 100.0 * sums.get("right", 0.0) / count}
        if cut := max(self._validation.cut_sources, self._validation.cut_targets):
            found["truncated"] = float(cut)
        return found

    def writing(self, during_training: bool) -> Writing | None:
        if self._data.generate == "never" or (during_training and self._data.generate != "always"):
            return None
        pairs, end = self._validation, self._tokenizer.end_of_text_id
        assert end is not None, "checked when prepared"
        return Writing(
            source=lambda index: pairs.source(index).tolist(),
            reference=pairs.target_text,
            decode=self._tokenizer.decode,
            language=self._data.language,
            stop_token=end,
            max_new_tokens=self._data.max_new_tokens or self._data.target_length,
            num_beams=self._data.num_beams,
        )

    @cached_property
    def _training(self) -> SequencePairs:
        return load_pairs(PairsFile(self._data, "train"), self._tokenizer)

    @cached_property
    def _validation(self) -> SequencePairs:
        return load_pairs(PairsFile(self._data, "validation"), self._tokenizer)


def _learned(data: SequencePairsData, config: TokenizerConfig, model: ModelConfig) -> Tokenizer:
    """A byte-level BPE of the training pairs: what it makes of a text can be turned into that text again."""
    file, vocab, extra_ids = PairsFile(data, "train"), model.vocabulary(), config.extra_ids or 0
    facts: tuple[Any, ...] = (file.digest, data.source, data.source_key, data.target_key, data.prefix)
    return learned_tokenizer(
        data,
        config,
        ("pairs-bpe 1", *facts, vocab, config.end_of_text, extra_ids),
        lambda: train_tokenizer(file.texts(), vocab, config.end_of_text, extra_ids, pads=True),
    )
