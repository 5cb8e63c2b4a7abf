"""Cutting inputs into chunks of whole documents, without looking into them: that is the workers' part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.data.config import TextDocument
from paddock.data.preprocess.inputs import Input, OpenInput, open_input, reading_errors
from paddock.documents import Natural
from paddock.errors import DataError
from paddock.telemetry.format import bytes_

LONGEST = 1 << 28
"""Bytes of a line, or of a file that is a document."""
Form = Literal["json", "line", "file"]
"""What a document is: a JSON object a line, a line of plain text, or a whole file of it."""


@dataclass(frozen=True)
class Position:
    """A line's beginning: the number of its input, the offset in the decompressed bytes, and the line's number."""

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
) -> Iterator[Chunk]:
    """All documents from a position on, in chunks of about `size` bytes; `document` is what one is in plain text."""
    for number in range(begin.input, len(inputs)):
        at = begin if number == begin.input else Position(number)
        form: Form = document if inputs[number].is_text else "json"
        try:
            with open_input(inputs[number], stopped) as opened:
                opened.skip(at.offset)
                for data in _whole(opened, size, cuts=form != "file"):
                    chunk = Chunk(at, data, opened.consumed(), form)
                    yield chunk
                    at = chunk.end
        except _TooLong:
            what = "the file" if form == "file" else f"line {at.line}: the line"
            raise DataError(
                f"{inputs[number].name}, {what} has more than {bytes_(LONGEST)}",
                why=f"every {'file' if form == 'file' else 'line'} should be one document",
                fix="split it, or make a document a line of it",
            ) from None
        except reading_errors() as error:
            kind = "is truncated" if isinstance(error, EOFError) else "cannot be read to its end"
            raise DataError(
                f"{inputs[number].name} {kind}",
                why=f"{error}, after {at.line - 1:,} whole lines ({bytes_(at.offset)} of text)",
                fix="copy the file again, and begin again with --restart",
            ) from None


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
