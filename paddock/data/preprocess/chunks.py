"""Cutting inputs into chunks of whole lines, without looking into the lines: that is the workers' part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from paddock.data.preprocess.inputs import Input, OpenInput, open_input, reading_errors
from paddock.documents import Natural
from paddock.errors import DataError
from paddock.telemetry.format import bytes_

LONGEST_LINE = 1 << 28


@dataclass(frozen=True)
class Position:
    """A line's beginning: the number of its input, the offset in the decompressed bytes, and the line's number."""

    input: Natural = 0
    offset: Natural = 0
    line: Natural = 1


@dataclass(frozen=True)
class Chunk:
    """Some whole lines."""

    begin: Position
    data: bytes = field(repr=False)
    consumed: int
    """Bytes of the input file that have been read so far, as they lie on the disk."""

    @property
    def end(self) -> Position:
        """Where the next chunk of this input begins."""
        begin = self.begin
        return Position(begin.input, begin.offset + len(self.data), begin.line + self.data.count(b"\n"))


def read_chunks(
    inputs: Sequence[Input], begin: Position, size: int, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Chunk]:
    """All lines from a position on, in chunks of about `size` bytes."""
    for number in range(begin.input, len(inputs)):
        at = begin if number == begin.input else Position(number)
        try:
            with open_input(inputs[number], stopped) as opened:
                opened.skip(at.offset)
                for data in _whole_lines(opened, size):
                    chunk = Chunk(at, data, opened.consumed())
                    yield chunk
                    at = chunk.end
        except _LineTooLong:
            raise DataError(
                f"{inputs[number].name}, line {at.line}: the line has more than {bytes_(LONGEST_LINE)}",
                why="every line should be one document as a JSON object",
                fix="split it, or convert the file to JSON lines",
            ) from None
        except reading_errors() as error:
            kind = "is truncated" if isinstance(error, EOFError) else "cannot be read to its end"
            raise DataError(
                f"{inputs[number].name} {kind}",
                why=f"{error}, after {at.line - 1:,} whole lines ({bytes_(at.offset)} of text)",
                fix="copy the file again, and begin again with --restart",
            ) from None


def _whole_lines(opened: OpenInput, size: int) -> Iterator[bytes]:
    held: list[bytes] = []
    length = 0
    while block := opened.read(size):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join([*held, block[:end]])
            held, length = [], 0
        if end < len(block):
            held.append(block[end:])
            length += len(block) - end
        if length > LONGEST_LINE:
            raise _LineTooLong
    if held:
        yield b"".join(held)


class _LineTooLong(Exception):
    pass
