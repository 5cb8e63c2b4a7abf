"""From lines of JSON to texts, and what is wrong with those lines that are none.

A blank line is no document and no error. Line ends may be those of Windows, and a file may begin with a byte order
mark. Keys that were not asked for are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why."""

    line: int
    reason: str


@dataclass
class Documents:
    """The texts of some lines: those of line i are `texts[key][i]`, for every key."""

    texts: list[list[str]]
    bad: list[BadLine] = field(default_factory=list)


def parse_lines(data: bytes, first_line: int, keys: Sequence[str], begins_file: bool = False) -> Documents:
    """Read the documents of a chunk, whose first line has this number."""
    if begins_file:
        data = data.removeprefix(_BYTE_ORDER_MARK)
    # Half of a surrogate pair cannot stand in UTF-8, but JSON can spell it.
    may_have_halves = _ESCAPED_SURROGATE.search(data) is not None
    documents = Documents([[] for _ in keys])
    for number, line in enumerate(data.split(b"\n"), first_line):
        if not line or line.isspace():
            continue
        try:
            texts = _texts_of(line, keys)
            if may_have_halves:
                "".join(texts).encode()
        except (ValueError, RecursionError) as problem:
            documents.bad.append(BadLine(number, _explain(problem)))
        else:
            for column, text in zip(documents.texts, texts, strict=True):
                column.append(text)
    return documents


def _texts_of(line: bytes, keys: Sequence[str]) -> list[str]:
    document = json.loads(line.decode())
    if not isinstance(document, dict):
        raise _Unusable(f"it holds {_kind(document)}, not a JSON object")
    texts = []
    for key in keys:
        if key not in document:
            have = ", ".join(list(document)[:10]) or "none"
            raise _Unusable(f'it has no key "{key}" (it has: {have})')
        text = document[key]
        if not isinstance(text, str):
            raise _Unusable(f'"{key}" is {_kind(text)}, not a string')
        texts.append(text)
    return texts


def _explain(problem: Exception) -> str:
    match problem:
        case json.JSONDecodeError(msg=message, colno=column):
            return f"invalid JSON: {message} (column {column})"
        case UnicodeDecodeError(object=line, start=at):
            return f"invalid UTF-8: byte {at + 1} of the line is {line[at]:#x}"
        case UnicodeEncodeError(object=text, start=at):
            return f"invalid Unicode: {ascii(text[at])[1:-1]} is half of a character"
        case _Unusable():
            return str(problem)
    return f"invalid JSON: {problem}"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


class _Unusable(ValueError):
    pass
