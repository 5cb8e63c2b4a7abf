"""Which corpora a recipe reads: one, several, or several with weights.

Kept free of numpy, since every recipe is checked here, also for a help page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from paddock.errors import ConfigError, bad_value

SMALLEST_SHARE = 2.0**-20
"""Of the blend: a corpus with less would hardly ever be read."""


def parse_blend(path: Sequence[float | str] | str) -> list[tuple[float | None, str]]:
    """The weight and the prefix of every corpus: `a`, `[a, b]` or `[0.7, a, 0.3, b]`.

    The weight is None where none is given: then corpora count by their tokens. What looks like a number is a
    weight; a prefix that does can be written `./7`."""
    entries = [path] if isinstance(path, str) else list(path)
    weights = [_number(entry) for entry in entries]
    if all(weight is None for weight in weights):
        blend: list[tuple[float | None, str]] = [(None, str(entry)) for entry in entries]
    else:
        kinds = [weight is None for weight in weights]
        if len(entries) % 2 or kinds != [False, True] * (len(entries) // 2):
            raise _bad(path, "weights and prefixes do not alternate", "write it as 0.7 a 0.3 b, or without any weights")
        blend = [(weights[at], str(entries[at + 1])) for at in range(0, len(entries), 2)]
    _check(path, blend)
    return blend


def _check(path: Sequence[float | str] | str, blend: list[tuple[float | None, str]]) -> None:
    if not blend or not all(prefix for _, prefix in blend):
        raise _bad(path, "it names no corpus", "give the files' prefix, without .bin")
    places: dict[str, str] = {}
    for _, prefix in blend:
        place = os.path.abspath(prefix)
        if place in places:
            raise _bad(path, f"{places[place]} is there twice", "name it once, with the sum of its weights")
        places[place] = prefix
    total = sum(weight or 0.0 for weight, _ in blend)
    for weight, prefix in blend:
        if weight is None:
            continue
        if not math.isfinite(weight) or weight < 0:
            raise _bad(path, f"the weight of {prefix} is {weight}", "weights are positive numbers")
        if weight == 0 or weight < SMALLEST_SHARE * total:
            raise _bad(path, f"{prefix}, with weight {weight:g}, is as good as never read", "leave it out, or raise it")


def _number(entry: float | str) -> float | None:
    try:
        return float(entry)
    except ValueError:
        return None


def _bad(path: Sequence[float | str] | str, why: str, fix: str) -> ConfigError:
    return bad_value("data.path", path if isinstance(path, str) else " ".join(map(str, path)), why, fix)
