"""Cutting inputs into chunks of whole documents, without looking into them: that is the workers' part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.data.config import TextDocument
from paddock.data.preprocess.inputs import Input, OpenInput, open_input, reading_errors
from paddock.data.preprocess.tables import read_table
from paddock.documents import Natural
from paddock.errors import DataError
from paddock.telemetry.format import bytes_

LONGEST = 1 << 28
"""Bytes of a line, or of a file that is a document."""
Form = Literal["json", "line", "file"]
"""What a document is: a JSON object a line, as which rows of tables come too, a line of plain text, or a whole file of
it."""


@dataclass(frozen=True)
class Position:
    """A line's beginning: the number of its input, the offset in the decompressed bytes, and the line's number; of
    tables, in the lines of JSON that their rows become."""

    input: Natural = 0
    offset: Natural = 0
    line: Natural = 1


@dataclass(frozen=True)
class Chunk:
    """Some whole lines, or a whole file."""

    begin: Position
    data: bytes = field(repr=False)
    consumed: int
    """Bytes of the input file that have been read so far, as they lie on the disk."""
    form: Form = "json"

    @property
    def end(self) -> Position:
        """Where the next chunk of this input begins."""
        begin = self.begin
        return Position(begin.input, begin.offset + len(self.data), begin.line + self.data.count(b"\n"))


def read_chunks(
    inputs: Sequence[Input],
    begin: Position,
    size: int,
    stopped: Callable[[], bool] = lambda: False,
    document: TextDocument = "line",
    keys: Sequence[str] = ("text",),
) -> Iterator[Chunk]:
    """All documents from a position on, in chunks of about `size` bytes; `document` is what one is in plain text, and
    `keys` are the columns that are read of tables."""
    for number in range(begin.input, len(inputs)):
        at, source = begin if number == begin.input else Position(number), inputs[number]
        form: Form = document if source.is_text else "json"
        try:
            pieces = _rows(source, keys, at, size) if source.is_table else _lines(source, at, size, stopped, form)
            for data, consumed in pieces:
                chunk = Chunk(at, data, consumed, form)
                yield chunk
                at = chunk.end
        except _TooLong:
            what = "the file" if form == "file" else f"{source.unit} {at.line}: the {source.unit}"
            raise DataError(
                f"{source.name}, {what} has more than {bytes_(LONGEST)}",
                why=f"every {'file' if form == 'file' else source.unit} should be one document",
                fix="split it, or make a document a line of it",
            ) from None
        except reading_errors() as error:
            kind = "is truncated" if isinstance(error, EOFError) else "cannot be read to its end"
            raise DataError(
                f"{source.name} {kind}",
                why=f"{error}, after {at.line - 1:,} whole {source.unit}s ({bytes_(at.offset)} of text)",
                fix="copy the file again, and begin again with --restart",
            ) from None


def _rows(source: Input, keys: Sequence[str], at: Position, size: int) -> Iterator[tuple[bytes, int]]:
    """The rows of a table, and how much of its file they are."""
    for data, share in read_table(source.path, keys, at.line - 1, size):
        if len(data) > LONGEST:
            raise _TooLong
        yield data, round(share * (source.size or 0))


def _lines(
    source: Input, at: Position, size: int, stopped: Callable[[], bool], form: Form
) -> Iterator[tuple[bytes, int]]:
    with open_input(source, stopped) as opened:
        opened.skip(at.offset)
        for data in _whole(opened, size, cuts=form != "file"):
            yield data, opened.consumed()


def _whole(opened: OpenInput, size: int, cuts: bool) -> Iterator[bytes]:
    """The content in pieces of whole lines; all of it, unless somebody `cuts`."""
    held: list[bytes] = []
    length = 0
    while block := opened.read(size):
        end = block.rfind(b"\n") + 1 if cuts else 0
        if end:
            yield b"".join([*held, block[:end]])
            held, length = [], 0
        if end < len(block):
            held.append(block[end:])
            length += len(block) - end
        if length > LONGEST:
            raise _TooLong
    if held:
        yield b"".join(held)


class _TooLong(Exception):
    pass
