"""Answers to questions: the likeliest spans by a model's scores, and their exact match and F1.

Exact match and F1 are those of SQuAD's official scripts (v1.1 and v2.0).
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Spans(NamedTuple):
    """The likeliest answers of each row, best first, as places in the row; -∞ where there are no more."""

    scores: Tensor
    first: Tensor
    last: Tensor


def best_spans(outputs: Tensor, token_types: Tensor, lengths: Tensor, longest: int, count: int) -> Spans:
    """Of all spans of up to `longest` tokens inside the context: the sums of the two scores, compared as they are.

    `outputs` [batch, time, 2]; the context has token type 1, and the row's last token is no part of it.
    """
    places = torch.arange(outputs.shape[1], device=outputs.device)
    outside = (token_types != 1) | (places >= lengths[:, None] - 1)
    begins, ends = outputs.float().masked_fill(outside[..., None], -math.inf).unbind(-1)
    spans = begins[..., None] + F.pad(ends, (0, longest - 1), value=-math.inf).unfold(1, longest, 1)
    scores, found = spans.flatten(1).topk(min(count, spans[0].numel()))
    first = found // longest
    return Spans(scores, first, first + found % longest)


def no_answer_scores(outputs: Tensor) -> Tensor:
    """How likely it is that a row has no answer, on the same scale: both places are [CLS]."""
    return outputs[:, 0].float().sum(-1)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of an answer, without space around it and with the accents of its last letter.

    Tokenizers that drop accents leave those that are characters of their own out of the token's place.
    """
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


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
