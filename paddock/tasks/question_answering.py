"""Question answering: find the part of a text that answers a question."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import Shuffle
from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.questions.features import QuestionFeatures, QuestionFile, load_features
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import text_tokenizer
from paddock.models.config import IGNORED, ModelConfig
from paddock.models.layers.basic import widest
from paddock.tasks.answers import best_spans, no_answer_scores, score_answers, trimmed
from paddock.tasks.task import HELD_OUT_DATA, INDEX, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


@dataclass(frozen=True)
class PreparedQuestions:
    """A tokenizer; the questions are read when they are asked for."""

    tokenizer: EngineTokenizer
    classes: tuple[str, ...] = ()


class TrainingQuestions:
    """Every row once an epoch, in an order of its own each time."""

    def __init__(self, features: QuestionFeatures, seed: int, length: int | None) -> None:
        self._features, self._seed, self._length = features, seed, length
        self._order = Shuffle(len(features), seed, 0)
        self._epoch = 0

    @property
    def samples_per_epoch(self) -> float:
        return len(self._features)

    def __getitem__(self, index: int) -> Sample:
        epoch, place = divmod(index, len(self._features))
        if epoch != self._epoch:
            self._order, self._epoch = Shuffle(len(self._features), self._seed, epoch), epoch
        return read_row(self._features, self._order[place], self._length)


class EvaluationQuestions(Sequence[Sample]):
    """Every row, in the order of the file."""

    def __init__(self, features: QuestionFeatures) -> None:
        self._features = features
        self.lengths = features.lengths

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return {**read_row(self._features, index), INDEX: index}


def read_row(features: QuestionFeatures, index: int, length: int | None = None) -> Sample:
    """A row as a sample, to be filled up to `length`."""
    tokens, token_types, answer = features.row(index)
    return {"tokens": tokens, "token_types": token_types, "labels": answer, "length": length}


class QuestionAnswering(Task):
    """Rows of a question and a window of its context; the model scores where the answer begins and ends."""

    measures: ClassVar[Mapping[str, Goal]] = {"f1": "MAXIMIZE", "exact_match": "MAXIMIZE", "loss": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = True
    next_command: ClassVar[str] = 'predict {run} --context "…" --question "…"'

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedQuestions:
        assert isinstance(data, QuestionAnsweringData)
        vocab = model.vocabulary()
        return PreparedQuestions(
            text_tokenizer(data, tokenizer, vocab, lambda: QuestionFile.read(data, "train").texts(data))
        )

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedQuestions, model: ModelConfig, seed: int) -> QuestionAnswering:
        assert isinstance(data, QuestionAnsweringData)
        return cls(data, prepared.tokenizer, seed)

    def __init__(self, data: QuestionAnsweringData, tokenizer: EngineTokenizer, seed: int) -> None:
        self._data, self._tokenizer, self._seed = data, tokenizer, seed

    def training_samples(self) -> Samples:
        length = self._data.sequence_length if self._data.padding == "full" else None
        return TrainingQuestions(self._training, self._seed, length)

    def fingerprint(self) -> dict[str, int | str]:
        return self._describe(TRAINING_DATA, "train", self._training)

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return self._describe(HELD_OUT_DATA, "validation", self._validation)

    def _describe(self, entry: str, part: str, rows: QuestionFeatures) -> dict[str, int | str]:
        digest = hashlib.sha256(QuestionFile.read(self._data, part).raw).hexdigest()[:12]
        return {"data.sequence_length": self._data.sequence_length, entry: f"{len(rows)} rows, {digest}"}

    def validation_samples(self) -> Sequence[Sample]:
        return EvaluationQuestions(self._validation)

    def notes(self) -> list[str]:
        parts = {"training": self.__dict__.get("_training"), "validation": self.__dict__.get("_validation")}
        return [
            f"{found.skipped} of {found.skipped + found.num_questions} {part} questions cannot be used and are left out"
            for part, found in parts.items()
            if found is not None and found.skipped
        ]

    def collate(self, samples: list[Sample]) -> Batch:
        assert self._tokenizer.pad_id is not None
        batch = pad_rows(samples, self._tokenizer.pad_id, self._data.sequence_length)
        batch["labels"] = torch.from_numpy(np.stack([sample["labels"] for sample in samples]))
        if INDEX in samples[0]:
            batch[INDEX] = torch.tensor([sample[INDEX] for sample in samples])
        return batch

    def count(self, batch: Batch) -> int:
        return int((batch["labels"][:, 0] != IGNORED).sum())

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        """Of every row the question's number, the best answer's score and its characters, and the score of none."""
        scores = F.log_softmax(outputs, dim=1).gather(1, batch["labels"][:, None])
        found = Judgement({"loss": -float(widest(scores).sum()) / 2, "count": float(len(outputs))})
        spans = best_spans(outputs, batch["token_types"], batch["lengths"], self._data.answer_length, 1)
        columns = (batch[INDEX], spans.scores[:, 0], spans.first[:, 0], spans.last[:, 0], no_answer_scores(outputs))
        for row, score, first, last, none in zip(*(column.tolist() for column in columns), strict=True):
            question = self._validation.question_of(row)
            if math.isinf(score):  # a context without a token
                found.records.append([question, None, 0, 0, none])
            else:
                found.records.append([question, score, *self._validation.characters(row, first, last), none])
        return found

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        data, sums = self._data, judgement.sums
        scores = score_answers(self._answered(judgement.records), data.unanswerable)
        return {**scores, "loss": sums["loss"] / max(sums["count"], 1.0)}

    def summary(self, metrics: Mapping[str, float]) -> str:
        """As MindFormers writes it."""
        told = {name: metrics[name] for name in ("exact_match", "f1")}
        return f"QA Metric = {{'QA Metric': {told}}}"

    def _answered(self, records: Iterable[Sequence[float | None]]) -> Iterable[tuple[str, list[str]]]:
        """What was answered to each question, and what is right: of those whose every row was looked at."""
        features = self._validation
        rows: dict[int, list[Sequence[float | None]]] = {}
        for record in records:
            rows.setdefault(int(record[0] or 0), []).append(record[1:])
        whole = [question for question in sorted(rows) if len(rows[question]) == features.rows_of[question]]
        for question in whole or sorted(rows):  # so few rows that no question is whole: better than nothing
            yield self._answer(question, rows[question]), features.answers(question)

    def _answer(self, question: int, rows: Sequence[Sequence[float | None]]) -> str:
        """The best answer over all rows, or none where that is likelier."""
        spans = [(score, -int(start or 0), int(end or 0)) for score, start, end, _ in rows if score is not None]
        if not spans:
            return ""
        score, start, end = max(spans)
        none = min(none for _, _, _, none in rows if none is not None)
        if self._data.unanswerable and none - score > self._data.null_threshold:
            return ""
        context = self._validation.context(question)
        return context[slice(*trimmed(context, -start, end))]

    @cached_property
    def _training(self) -> QuestionFeatures:
        return self._load("train")

    @cached_property
    def _validation(self) -> QuestionFeatures:
        return self._load("validation")

    def _load(self, part: str) -> QuestionFeatures:
        return load_features(QuestionFile.read(self._data, part), self._tokenizer, self._data)
