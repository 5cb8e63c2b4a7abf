"""From a chunk to texts: which documents are in it, and which cannot be used, and why.

JSON lines have an object a line; keys that were not asked for are ignored. Plain text has a document a line, or is one
as a whole; it has no control characters but those that part lines, columns and pages. A blank line is no document and
no error. Line ends may be those of Windows, and a file may begin with a byte order mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paddock.data.preprocess.chunks import Chunk

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]|\r(?!\n)")
"""What plain text has none of. A carriage return that ends no line would end one to whoever looks at it."""


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why."""

    line: int
    reason: str
    keys: tuple[str, ...] = ()
    """Where the key is lacking that is read: those that have a text."""

    def other_key(self, flag: str) -> str:
        """How to say that one of them is meant."""
        return f"name the key that has the text: {flag} {self.keys[0]}; or " if self.keys else ""


@dataclass
class Documents:
    """The texts of some lines: those of line i are `texts[key][i]`, for every key."""

    texts: list[list[str]]
    bad: list[BadLine] = field(default_factory=list)


def parse_chunk(chunk: Chunk, keys: Sequence[str], *, refuses_control: bool = False) -> Documents:
    """The documents of a chunk. Plain text has one key, whichever that is. JSON can spell control characters, which a
    reader of text may `refuse` there, too."""
    begins_file = chunk.begin.offset == 0
    if chunk.form == "json":
        return parse_lines(chunk.data, chunk.begin.line, keys, begins_file, refuses_control)
    return parse_text(chunk.data, chunk.begin.line, keys[0], begins_file, whole=chunk.form == "file")


def parse_lines(
    data: bytes, first_line: int, keys: Sequence[str], begins_file: bool = False, refuses_control: bool = False
) -> Documents:
    """Read the documents of JSON lines, of which the first has this number."""
    # Half of a surrogate pair cannot stand in UTF-8, but JSON can spell it.
    may_have_halves = _ESCAPED_SURROGATE.search(data) is not None
    documents = Documents([[] for _ in keys])
    for number, line in _lines(data, first_line, begins_file):
        try:
            texts = _texts_of(line, keys)
            if may_have_halves:
                "".join(texts).encode()
            if refuses_control:
                for text in texts:
                    _check_control(text)
        except (ValueError, RecursionError) as problem:
            documents.bad.append(BadLine(number, _explain(problem), getattr(problem, "keys", ())))
        else:
            for column, text in zip(documents.texts, texts, strict=True):
                column.append(text)
    return documents


def parse_text(data: bytes, first_line: int, key: str, begins_file: bool = False, whole: bool = False) -> Documents:
    """Read the documents of plain text: its lines, of which the first has this number, or all of it as one. A line that
    is JSON with the key was meant otherwise."""
    documents = Documents([[]])
    if not whole:
        for number, line in _lines(data, first_line, begins_file):
            _add_text(documents, line.removesuffix(b"\r"), number, key)
    elif data and not data.isspace():
        _add_text(documents, data.removeprefix(_BYTE_ORDER_MARK), first_line, key)
    return documents


def _lines(data: bytes, first_line: int, begins_file: bool) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number."""
    if begins_file:
        data = data.removeprefix(_BYTE_ORDER_MARK)
    return (pair for pair in enumerate(data.split(b"\n"), first_line) if pair[1] and not pair[1].isspace())


def _add_text(documents: Documents, data: bytes, first_line: int, key: str) -> None:
    try:
        text = data.decode()
        _check_control(text)
        if data.startswith(b"{") and _is_object_with(data, key):
            raise _Unusable(f'it is a JSON object with the key "{key}", in a file that is named as plain text')
    except ValueError as problem:
        documents.bad.append(BadLine(first_line + _lines_before(problem), _explain(problem)))
    else:
        documents.texts[0].append(text)


def _is_object_with(line: bytes, key: str) -> bool:
    try:
        _texts_of(line.partition(b"\n")[0], [key])
    except (ValueError, RecursionError):
        return False
    return True


def _check_control(text: str) -> None:
    found = _CONTROL.search(text)
    if found is not None:
        begin = text.rfind("\n", 0, found.start()) + 1
        raise _ControlCharacter(found.group(), found.start() - begin, text.count("\n", 0, found.start()))


def _texts_of(line: bytes, keys: Sequence[str]) -> list[str]:
    document = json.loads(line.decode())
    if not isinstance(document, dict):
        raise _Unusable(f"it holds {_kind(document)}, not a JSON object")
    texts = []
    for key in keys:
        if key not in document:
            have = ", ".join(list(document)[:10]) or "none"
            others = tuple(name for name, value in document.items() if isinstance(value, str) and name not in keys)
            raise _Lacking(f'it has no key "{key}" (it has: {have})', others[:10])
        text = document[key]
        if not isinstance(text, str):
            raise _Unusable(f'"{key}" is {_kind(text)}, not a string')
        texts.append(text)
    return texts


def _lines_before(problem: Exception) -> int:
    """Lines of a text before the one in which something is wrong."""
    match problem:
        case UnicodeDecodeError(object=data, start=at):
            return data.count(b"\n", 0, at)
        case _ControlCharacter(line=line):
            return line
    return 0


def _explain(problem: Exception) -> str:
    match problem:
        case json.JSONDecodeError(msg=message, colno=column):
            return f"invalid JSON: {message} (column {column})"
        case UnicodeDecodeError(object=data, start=at):
            begin = data.rfind(b"\n", 0, at)
            return f"invalid UTF-8: byte {at - begin} of the line is {data[at]:#x}"
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


class _Lacking(_Unusable):
    """An object without the key, and those of its keys that have a text."""

    def __init__(self, reason: str, keys: tuple[str, ...]) -> None:
        super().__init__(reason)
        self.keys = keys


class _ControlCharacter(_Unusable):
    """One that plain text has none of, with its place in the line, and the line's in the text."""

    def __init__(self, character: str, place: int, line: int) -> None:
        super().__init__(f"character {place + 1} is a control character, U+{ord(character):04X}")
        self.line = line
