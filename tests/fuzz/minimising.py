"""Making a finding small: parts are taken away, or put back as they were, as long as it stays the same finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from engine import Outcome, Reader, Workshop, in_a_process, outcome_of, packed, prepare, seeds_of, unpacked
from mutation import Files, to_json

MOST_TRIES = 1500
"""Inputs that are tried for a finding."""
MOST_DEATHS = 12
"""The same, where each try costs a process."""


def minimise(reader: Reader, files: Files, origin: int | None, outcome: Outcome, patience: float) -> Files:
    """A smaller input with the same outcome, or the same one."""
    if not outcome.what.startswith("it ") and not outcome.what.startswith("TooLong"):
        found = in_a_process(lambda folder: packed(_shrink_here(reader, files, origin, outcome, folder)))
        return files if isinstance(found, Outcome) else unpacked(found)

    def same(candidate: Files) -> bool:
        return outcome_of(reader, candidate, origin, patience).what[:12] == outcome.what[:12]

    return _shrink(reader, files, same, MOST_DEATHS)


def _shrink_here(reader: Reader, files: Files, origin: int | None, outcome: Outcome, folder: Any) -> Files:
    prepare(reader)
    workshop = Workshop(reader, folder)
    return _shrink(reader, files, lambda candidate: workshop.judge(candidate, origin).what == outcome.what, MOST_TRIES)


def _shrink(reader: Reader, files: Files, same: Callable[[Files], bool], tries: int) -> Files:
    best, left = files, tries
    again = True
    while again and left > 0:
        again = False
        for candidate in _smaller(reader, best):
            left -= 1
            if left < 0:
                break
            if same(candidate):
                best, again = candidate, True
                break
    return best


def _smaller(reader: Reader, files: Files) -> Iterator[Files]:
    """What might do as well, the boldest first."""
    whole = seeds_of(reader)[0]
    for name in files:
        if name in whole and files[name] != whole[name]:
            yield {**files, name: whole[name]}
        if len(files) > 1:
            yield {other: content for other, content in files.items() if other != name}
    for name, content in files.items():
        if whole.get(name) != content:
            for part in _smaller_contents(content):
                yield {**files, name: part}


def _smaller_contents(content: bytes) -> Iterator[bytes]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict | list):
        for smaller in _smaller_values(values):
            yield to_json(smaller)
    size = len(content) // 2
    while size:
        for begin in range(0, len(content), size):
            yield content[:begin] + content[begin + size :]
        size //= 2


def _smaller_values(values: Any) -> Iterator[Any]:
    """The values without one of their parts."""
    if isinstance(values, dict):
        for key, inside in values.items():
            yield {other: value for other, value in values.items() if other != key}
            for smaller in _smaller_values(inside):
                yield {**values, key: smaller}
    elif isinstance(values, list):
        for number, inside in enumerate(values[:20]):
            yield values[:number] + values[number + 1 :]
            for smaller in _smaller_values(inside):
                yield [*values[:number], smaller, *values[number + 1 :]]
    elif isinstance(values, str) and len(values) > 40:
        yield values[: len(values) // 2]
