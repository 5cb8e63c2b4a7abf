"""Texts of which the last tokens are asked for: what a model reads of them, and what it is to say of which place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from paddock.data.loading.loader import fill_up
from paddock.models.config import IGNORED

Sample = dict[str, Any]


def ask_for_last(tokens: NDArray[np.int64], count: int) -> Sample:
    """The model reads all tokens but the last; the last `count` are asked for, each in the place before it."""
    assert 0 < count < len(tokens), "something is read, and something is asked for"
    end = len(tokens) - 1
    return {"tokens": tokens[:-1], "labels": tokens[end + 1 - count :], "places": np.arange(end - count, end)}


def join_continuations(samples: Sequence[Sample], longest: int) -> dict[str, Tensor]:
    """Such samples as a batch: tokens of at most `longest`, filled up at the end, where no token before can see it."""
    tokens, labels, places = ([sample[name] for sample in samples] for name in ("tokens", "labels", "places"))
    return {
        "tokens": fill_up(tokens, 0, None, longest),
        "labels": fill_up(labels, IGNORED, None),
        "places": fill_up(places, 0, None),
    }


def is_right(labels: Tensor, likeliest: Tensor) -> Tensor:
    """Of each row, whether greedy decoding gives all that was asked for."""
    found: Tensor = ((likeliest == labels) | (labels == IGNORED)).all(-1)
    return found


def said_instead(labels: Sequence[int], likeliest: Sequence[int]) -> list[int]:
    """What greedy decoding gives up to the first token that is wrong: behind it, it would read something else."""
    wrong = next(place for place, (label, token) in enumerate(zip(labels, likeliest, strict=False)) if label != token)
    return [int(token) for token in likeliest[: wrong + 1]]
