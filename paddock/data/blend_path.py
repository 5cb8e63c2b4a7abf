"""`data.path` as a blend: prefixes of corpora, with weights or without. Free of numpy, for help pages."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from paddock.errors import ConfigError, bad_value

SMALLEST_SHARE = 2.0**-20
"""Of a blend: a corpus with less would hardly ever be read."""


def parse_blend(path: Sequence[float | str] | str) -> list[tuple[float | None, str]]:
    """The weight and the prefix of every corpus: `a`, `[a, b]` or `[0.7, a, 0.3, b]`.

    The weight is None where none is given: then corpora count by their tokens. What looks like a number is a
    weight; a prefix that does can be written `./7`."""
    entries = [path] if isinstance(path, str) else list(path)
    weights = [_weight(entry) for entry in entries]
    if all(weight is None for weight in weights):
        blend: list[tuple[float | None, str]] = [(None, str(entry)) for entry in entries]
    else:
        kinds = [weight is None for weight in weights]
        if len(entries) % 2 or kinds != [False, True] * (len(entries) // 2):
            raise bad_path(
                path, "weights and prefixes do not alternate", "write it as 0.7 a 0.3 b, or without any weights"
            )
        blend = [(weights[at], str(entries[at + 1])) for at in range(0, len(entries), 2)]
    _check_blend(path, blend)
    return blend


def _check_blend(path: Sequence[float | str] | str, blend: list[tuple[float | None, str]]) -> None:
    if not blend or not all(prefix for _, prefix in blend):
        raise bad_path(path, "it names no corpus", "give the files' prefix, without .bin")
    places: dict[str, str] = {}
    for _, prefix in blend:
        place = os.path.abspath(prefix)
        if place in places:
            raise bad_path(path, f"{places[place]} is there twice", "name it once, with the sum of its weights")
        places[place] = prefix
    total = sum(weight or 0.0 for weight, _ in blend)
    for weight, prefix in blend:
        if weight is None:
            continue
        if not math.isfinite(weight) or weight < 0:
            raise bad_path(path, f"the weight of {prefix} is {weight}", "weights are positive numbers")
        if weight == 0 or weight < SMALLEST_SHARE * total:
            raise bad_path(
                path, f"{prefix}, with weight {weight:g}, is as good as never read", "leave it out, or raise it"
            )


def _weight(entry: float | str) -> float | None:
    try:
        return float(entry)
    except ValueError:
        return None


def bad_path(path: Sequence[float | str] | str, why: str, fix: str) -> ConfigError:
    """The error of a path that cannot be meant."""
    return bad_value("data.path", path if isinstance(path, str) else " ".join(map(str, path)), why, fix)
