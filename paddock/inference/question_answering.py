"""Answering questions about texts: the likeliest answers over all windows of a text, with their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddock.data.questions.config import SPECIAL, QuestionAnsweringData
from paddock.data.questions.features import QuestionFeatures, build_arrays
from paddock.data.questions.squad import Question, QuestionSet
from paddock.data.tokenizers.interface import check_text
from paddock.errors import DataError
from paddock.inference.outputs import outputs_of
from paddock.inference.predictors import Answer, OnBatch, PredictorSetup
from paddock.inference.text_predictors import TextPredictor
from paddock.tasks.answers import best_spans, no_answer_scores, trimmed

BETWEEN = " - "
"""What parts a context from its question where both are one string, as MindFormers takes it."""


@dataclass(frozen=True)
class AskedQuestion:
    """A question, and the text to find its answer in."""

    context: str
    question: str


@dataclass(frozen=True)
class Candidate:
    """A possible answer: its score, and the characters of the context."""

    score: float
    start: int
    end: int


class AnswerPredictor(TextPredictor):
    """What `paddock predict` runs for question answering."""

    def __init__(self, setup: PredictorSetup) -> None:
        super().__init__(setup)
        assert isinstance(setup.data, QuestionAnsweringData)
        self._data = _fitted(setup.data, self._config.longest_sequence())

    def query(self, value: Any, where: str) -> AskedQuestion:
        """{"context": …, "question": …}, or "context - question", parted at the last " - "."""
        context: Any = None
        question: Any = None
        if isinstance(value, str):
            context, between, question = value.rpartition(BETWEEN)
            if not between:
                raise DataError(
                    f"{where} has no question",
                    why=f'it is one string without "{BETWEEN}" between a context and a question',
                    fix='write "context - question", or {"context": "…", "question": "…"}',
                )
        elif isinstance(value, dict):
            context, question = value.get("context"), value.get("question")
        for name, part in (("context", context), ("question", question)):
            if not isinstance(part, str):
                raise DataError(f"{where} has no {name}", fix='give {"context": "…", "question": "…"}, both text')
            if not part.strip():
                raise DataError(f"{where}: the {name} is empty")
            check_text(f"{where}: the {name}", part)
        return AskedQuestion(context, question)

    def predict(
        self, queries: Sequence[AskedQuestion], top_k: int, on_batch: OnBatch | None = None
    ) -> list[list[Answer]]:
        """{"text", "score", "start", "end"}: the score is the probability among the likeliest `data.n_best`, and the
        places count characters of the context. Where questions may have no answer, an empty text stands for none."""
        if not queries:
            return []
        contexts = {text: number for number, text in enumerate(dict.fromkeys(one.context for one in queries))}
        questions = [
            Question(str(number), one.question, contexts[one.context], ()) for number, one in enumerate(queries)
        ]
        found = QuestionSet(list(contexts), questions)
        features = QuestionFeatures(build_arrays(found, self._tokenizer, self._data, "input"), self._tokenizer)
        candidates: list[dict[tuple[int, int], float]] = [{} for _ in queries]
        none = [math.inf] * len(queries)
        for rows in self._batches(features.lengths.tolist(), on_batch):
            self._score(features, rows, candidates, none)
        return [
            self._answers(query.context, candidates[number], none[number])[:top_k]
            for number, query in enumerate(queries)
        ]

    def _score(
        self,
        features: QuestionFeatures,
        rows: Sequence[int],
        candidates: list[dict[tuple[int, int], float]],
        none: list[float],
    ) -> None:
        """Add the spans that the model scores highest in some rows to the candidates of their questions."""
        tokens, types, _ = zip(*(features.row(row) for row in rows), strict=True)
        batch = self._padded(tokens, types, self._data.sequence_length)
        outputs = outputs_of(self._setup.model, batch).float()
        spans = best_spans(outputs, batch["token_types"], batch["lengths"], self._data.answer_length, self._data.n_best)
        columns = (*(column.tolist() for column in spans), no_answer_scores(outputs).tolist())
        for row, scores, firsts, lasts, nothing in zip(rows, *columns, strict=True):
            question = features.question_of(row)
            none[question] = min(none[question], nothing)
            for score, first, last in zip(scores, firsts, lasts, strict=True):
                if not math.isinf(score):
                    place = features.characters(row, first, last)
                    known = candidates[question]
                    known[place] = max(score, known.get(place, -math.inf))

    def _answers(self, context: str, found: dict[tuple[int, int], float], none: float) -> list[Answer]:
        order = sorted((Candidate(score, *place) for place, score in found.items()), key=lambda one: -one.score)
        order = order[: self._data.n_best]
        if self._data.unanswerable:
            wins = not order or none - order[0].score > self._data.null_threshold
            behind = max(1, sum(one.score >= none for one in order))
            order.insert(0 if wins else behind, Candidate(none, 0, 0))
            order = order[: self._data.n_best]
        if not order:  # not one token in the whole context
            return [{"text": "", "score": 0.0, "start": 0, "end": 0}]
        highest = max(one.score for one in order)
        weights = [math.exp(one.score - highest) for one in order]
        answers = []
        for one, weight in zip(order, weights, strict=True):
            start, end = trimmed(context, one.start, one.end) if one.end else (0, 0)
            score = round(weight / sum(weights), 4)
            answers.append({"text": context[start:end], "score": score, "start": start, "end": end})
        return answers


def _fitted(data: QuestionAnsweringData, limit: int | None) -> QuestionAnsweringData:
    """The same with rows that the model can take, where its positions are fewer."""
    if limit is None or data.sequence_length <= limit:
        return data
    room = limit - SPECIAL
    question = min(data.question_length, room // 3)
    stride = min(data.stride, (room - question) // 3)
    return data.model_copy(update={"sequence_length": limit, "question_length": question, "stride": stride})
