"""From a model's scores of where answers begin and end to the likeliest answers."""

from __future__ import annotations

import math
import unicodedata
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
