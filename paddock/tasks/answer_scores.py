"""Exact match and F1 of answers, as SQuAD's official scripts (v1.1 and v2.0) compute them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_answers(pairs: Iterable[tuple[str, Sequence[str]]], unanswerable: bool) -> dict[str, float]:
    """Percentages over all questions, each given as what was answered and what counts as right.

    With `unanswerable` (v2.0) a question may have no right answer, and saying nothing is then right.
    """
    scores = [(*_score(said, right, unanswerable), bool(right)) for said, right in pairs]
    found = _percentages("", scores)
    if unanswerable:
        found |= _percentages("has_answer_", [score for score in scores if score[2]])
        found |= _percentages("no_answer_", [score for score in scores if not score[2]])
    return found


def normalize(answer: str) -> str:
    """Lower case, without punctuation, articles and superfluous space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def _percentages(prefix: str, scores: Sequence[tuple[float, float, bool]]) -> dict[str, float]:
    count = max(1, len(scores))
    return {
        f"{prefix}exact_match": 100.0 * sum(exact for exact, _, _ in scores) / count,
        f"{prefix}f1": 100.0 * sum(f1 for _, f1, _ in scores) / count,
    }


def _score(said: str, right: Sequence[str], unanswerable: bool) -> tuple[float, float]:
    """The best exact match and the best F1 over all right answers."""
    if unanswerable:
        right = [answer for answer in right if normalize(answer)] or [""]
    said, accepted = normalize(said), [normalize(answer) for answer in right]
    exact = max(float(said == answer) for answer in accepted)
    return exact, max(_f1(said.split(), answer.split(), unanswerable) for answer in accepted)


def _f1(said: list[str], right: list[str], unanswerable: bool) -> float:
    if unanswerable and not (said and right):
        return float(said == right)
    shared = sum((Counter(said) & Counter(right)).values())
    if not shared:
        return 0.0  # in v1.1 also where both are nothing but articles
    precision, recall = shared / len(said), shared / len(right)
    return 2 * precision * recall / (precision + recall)
