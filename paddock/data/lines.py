"""Files with an example a line: lines of UTF-8, each with its place, and columns of them from JSON lines or tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from paddock.documents import Parser, shape_json
from paddock.errors import DataError

Scalar = str | int | float | bool
"""What a column may hold; it is read as it is written."""
LONGEST_LINE = 2**28
"""Bytes."""
MARK = b"\xef\xbb\xbf"
"""What some programs begin a file of UTF-8 with."""


def read_lines(stream: BinaryIO, name: str) -> Iterator[tuple[str, str]]:
    """Every line with its place, FILE:NUMBER, without what ends it; one at a time, however long the file is.

    Only a line feed ends a line: a text may hold what Unicode, too, calls the end of one.
    """
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=1):
        where = f"{name}:{number}"
        if len(line) == LONGEST_LINE:
            raise DataError(f"{where} has more than {LONGEST_LINE:,} bytes", fix="give an example a line")
        if number == 1:
            line = line.removeprefix(MARK)
        try:
            yield where, line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{where} is not text in UTF-8", why=str(error)) from None


def read_columns(
    lines: Iterable[tuple[str, str]], form: str, columns: Sequence[str], fix: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place of every line that is not blank, and what it has in these columns: of a JSON object (`jsonl`), or
    between tabs (`tsv`), where the first line names them. `fix` says how to name others."""
    make: Any = TypedDict  # a type whose fields are the columns, which the recipe names
    row: Any = with_config(ConfigDict(strict=True))(make("row", dict.fromkeys(columns, Scalar)))
    if form == "tsv":
        yield from ((where, shape_json(values, row, where, fix=fix)) for where, values in _table(lines))
    else:
        parse = Parser(row, fix=fix)
        yield from ((where, parse(line, where)) for where, line in lines if line and not line.isspace())


def _table(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Columns between tabs, without quotes; the first line names them."""
    names: list[str] | None = None
    for where, line in lines:
        values = line.split("\t")
        if values == [""]:
            continue
        if names is None:
            names = values
            continue
        if len(values) > len(names):
            raise DataError(f"{where} has more columns than the first line")
        yield where, dict(zip(names, values, strict=False))
