"""Answering questions about texts: the likeliest answers over all windows of a text, with their probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from paddock.data.loading.loader import pad_rows
from paddock.data.loading.sampler import by_length
from paddock.data.questions.config import SPECIAL, QuestionAnsweringData
from paddock.data.questions.features import QuestionFeatures, build_arrays
from paddock.data.questions.squad import Question, QuestionSet
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import check_fits
from paddock.errors import DataError
from paddock.inference.predictors import Answer, Tick, Tools
from paddock.inference.rows import outputs_of
from paddock.tasks.answer_spans import best_spans, no_answer_scores, trimmed

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


class AnswerPredictor:
    """What `paddock predict` runs for question answering."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    usual_top_k: ClassVar[int] = 1

    def __init__(self, tools: Tools) -> None:
        assert isinstance(tools.data, QuestionAnsweringData)
        if not isinstance(tools.tokenizer, EngineTokenizer):
            raise DataError(
                f"{tools.origin} has no tokenizer that knows the places of tokens in a text",
                why="there is no tokenizer.json or vocab.txt in it or in its run directory",
                fix="put one there; a run keeps its own",
            )
        self._tools, self._tokenizer = tools, tools.tokenizer
        limit: int | None = tools.model.config.longest_sequence()  # type: ignore[union-attr, operator]
        self._data = _fitted(tools.data, limit)
        check_fits(self._tokenizer, tools.model.config.vocabulary(), parts=("cls", "sep", "pad"))  # type: ignore[union-attr, operator]

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

    def predict(self, queries: Sequence[AskedQuestion], top_k: int, tick: Tick | None = None) -> list[list[Answer]]:
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
        batches = by_length(features.lengths.tolist(), self._tools.batch)
        for number, rows in enumerate(batches):
            self._look(features, rows, candidates, none)
            if tick is not None:
                tick(number + 1, len(batches))
        return [
            self._answers(query.context, candidates[number], none[number])[:top_k]
            for number, query in enumerate(queries)
        ]

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return json.dumps(list(answers), ensure_ascii=False)

    def _look(
        self,
        features: QuestionFeatures,
        rows: Sequence[int],
        candidates: list[dict[tuple[int, int], float]],
        none: list[float],
    ) -> None:
        """Put what the model makes of some rows to what is known of their questions."""
        assert self._tokenizer.pad_id is not None
        read = [features.row(row) for row in rows]
        samples = [{"tokens": tokens, "token_types": types, "length": None} for tokens, types, _ in read]
        batch = pad_rows(samples, self._tokenizer.pad_id, self._data.sequence_length)
        batch = {name: tensor.to(self._tools.device) for name, tensor in batch.items()}
        outputs = outputs_of(self._tools.model, batch).float()
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
