"""Sequence classification: tell what kind a text, or a pair of texts, is of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.labels.config import LabelledTextData
from paddock.data.labels.text import LabelledFile, LabelledRows, load_rows
from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import Shuffle
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import text_tokenizer
from paddock.errors import DataError, bad_value
from paddock.models.config import IGNORED, ModelConfig
from paddock.models.layers.basic import widest
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


@dataclass(frozen=True)
class PreparedTexts:
    """A tokenizer, and the labels in order."""

    tokenizer: EngineTokenizer
    classes: tuple[str, ...]


class TrainingTexts:
    """Every row once an epoch, in an order of its own each time."""

    def __init__(self, rows: LabelledRows, seed: int, length: int | None) -> None:
        self._rows, self._seed, self._length = rows, seed, length
        self._order, self._epoch = Shuffle(len(rows), seed, 0), 0

    @property
    def samples_per_epoch(self) -> float:
        return len(self._rows)

    def __getitem__(self, index: int) -> Sample:
        epoch, place = divmod(index, len(self._rows))
        if epoch != self._epoch:
            self._order, self._epoch = Shuffle(len(self._rows), self._seed, epoch), epoch
        row = self._order[place]
        tokens, token_types = self._rows.row(row)
        label = self._rows.labels.item(row)
        return {"tokens": tokens, "token_types": token_types, "labels": label, "length": self._length}


class EvaluationTexts(Sequence[Sample]):
    """Every row, in the order of the file, with the numbers that training gives the labels."""

    def __init__(self, rows: LabelledRows, labels: NDArray[np.int64]) -> None:
        self._rows, self._labels = rows, labels
        self.lengths = rows.lengths

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        tokens, token_types = self._rows.row(index)
        return {"tokens": tokens, "token_types": token_types, "labels": self._labels.item(index), "length": None}


class SequenceClassification(Task):
    """Rows of text; the model scores each class."""

    measures: ClassVar[Mapping[str, Goal]] = {"accuracy": "MAXIMIZE", "loss": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = True
    next_command: ClassVar[str] = 'predict {run} --text "…"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedTexts:
        assert isinstance(data, LabelledTextData)
        # An evaluation by itself may do without what was trained on.
        only_validation = data.source != "synthetic" and data.train is None and data.validation is not None
        file = LabelledFile.read(data, "validation" if only_validation else "train")
        found = text_tokenizer(
            data,
            tokenizer,
            model.vocabulary(),
            lambda: [text for one in file.examples(data) for text in (one.text, one.pair) if text],
        )
        classes = load_rows(file, found, data).classes
        wanted = model.num_classes() or len(classes)
        if wanted != len(classes):
            shown = ", ".join(classes[:5]) + (" …" if len(classes) > 5 else "")
            raise bad_value(
                "model.classes",
                wanted,
                f"{file.name} has {len(classes)} labels: {shown}",
                f"set --model.classes {len(classes)}" if len(classes) > 1 else "give a file with two labels or more",
            )
        return PreparedTexts(found, classes)

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedTexts, model: ModelConfig, seed: int) -> SequenceClassification:
        assert isinstance(data, LabelledTextData)
        return cls(data, prepared, seed)

    def __init__(self, data: LabelledTextData, prepared: PreparedTexts, seed: int) -> None:
        self._data, self._seed = data, seed
        self._tokenizer, self._classes = prepared.tokenizer, prepared.classes

    def training_samples(self) -> Samples:
        length = self._data.sequence_length if self._data.padding == "full" else None
        rows = load_rows(LabelledFile.read(self._data, "train"), self._tokenizer, self._data)
        return TrainingTexts(rows, self._seed, length)

    def fingerprint(self) -> dict[str, int | str]:
        return self._describe(TRAINING_DATA, "train")

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return self._describe(HELD_OUT_DATA, "validation")

    def _describe(self, entry: str, part: str) -> dict[str, int | str]:
        file = LabelledFile.read(self._data, part)
        digest = hashlib.sha256(file.raw).hexdigest()[:12]
        content = f"{len(load_rows(file, self._tokenizer, self._data))} rows, {digest}"
        return {"data.sequence_length": self._data.sequence_length, entry: content}

    def validation_samples(self) -> Sequence[Sample]:
        file = LabelledFile.read(self._data, "validation")
        rows = load_rows(file, self._tokenizer, self._data)
        unknown = [name for name in rows.classes if name not in self._classes]
        if unknown:
            raise DataError(
                f'{file.name} has the label "{unknown[0]}"',
                why=f"training knows only {', '.join(self._classes[:8])}",
                fix="train on a file that has every label, or correct it",
            )
        number = np.array([self._classes.index(name) for name in rows.classes])
        return EvaluationTexts(rows, number[rows.labels])

    def collate(self, samples: list[Sample]) -> Batch:
        assert self._tokenizer.pad_id is not None
        batch = pad_rows(samples, self._tokenizer.pad_id, self._data.sequence_length)
        return {**batch, "labels": torch.tensor([sample["labels"] for sample in samples])}

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        labels = batch["labels"]
        right = float((outputs.argmax(-1) == labels).sum())
        loss = float(F.cross_entropy(widest(outputs), labels, reduction="sum"))
        return Judgement({"loss": loss, "right": right, "count": float(len(labels))})

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        sums, count = judgement.sums, max(judgement.sums["count"], 1.0)
        return {"accuracy": 100.0 * sums.get("right", 0.0) / count, "loss": sums["loss"] / count}
