"""A log of a run that anybody wrote: JSON lines in three spellings (`records.py`), or a table with a column of steps.

Whatever it is, it is read as records, one at a time. What is not quite right and does not matter (a last line that was
cut off, lines that are no records) is counted, for `remarks`; damage that would change a number is a `DataError`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from paddock.errors import DataError, shown
from paddock.files import open_regular
from paddock.telemetry.jsonl import Tolerated, read_metrics
from paddock.telemetry.records import FOREIGN, Record, looks_like_record

LONGEST_LINE = 2**20
"""Bytes of a line of a table."""
MOST_COLUMNS = 10_000
SNIFFED, SNIFFED_LINE = 100_000, 2**16
"""Lines at the beginning of a file that are looked at to tell what it is, and bytes of each."""
STEPS = ("step", "global_step", "trainer/global_step", "_step", "iteration", "iter", "steps", "iterations")
"""What a column of steps is called."""
CONSOLE = (b"DLL ", b"TCAPPDLL ")
"""How a line begins that a dllogger printed for people."""
FORMS = {
    FOREIGN[0]: "NVIDIA's dllogger",
    FOREIGN[1]: "Tecorigin's tcap_dllogger",
    FOREIGN[2]: "Tecorigin's tcap_dllogger",
}


class LogFile:
    """The records of a log, one at a time; after the last one, `remarks` says what was left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tolerated = Tolerated()
        first = _first_record(path)
        self.is_table = first is None
        prefix = next((prefix for prefix in FOREIGN if first is not None and first.startswith(prefix)), b"")
        self.form = "a table (CSV)" if first is None else FORMS.get(prefix, "JSON lines")

    def __iter__(self) -> Iterator[Record]:
        self._tolerated = Tolerated()
        return (
            _rows(self.path, self._tolerated) if self.is_table else read_metrics(self.path, tolerated=self._tolerated)
        )

    @property
    def remarks(self) -> list[str]:
        """What the file has besides whole records, in words."""
        found, tolerated = [], self._tolerated
        if tolerated.is_torn:
            found.append(f"the last line of {self.path} is cut off, as a run that was killed leaves it: it is left out")
        if tolerated.has_open_end:
            found.append(f"the last line of {self.path} does not end: if it was cut, so was its last number")
        if tolerated.other_lines:
            where = f"{tolerated.other_lines} (the first is {tolerated.first_other})"
            found.append(f"lines of {self.path} that are no records, and are left out: {where}")
        if tolerated.rewound:
            found.append(f"records of {self.path} that a later attempt made again, which counts: {tolerated.rewound}")
        return found


def _first_record(path: Path) -> bytes | None:
    """The beginning of the first line that is meant as a record; None if the file is a table."""
    header, is_console = b"", False
    try:
        with open_regular(path) as stream:
            for line in islice(iter(lambda: stream.readline(SNIFFED_LINE), b""), SNIFFED):
                if looks_like_record(line):
                    return line.lstrip()
                header = header or line.strip(b"\0\r\n ")
                is_console = is_console or line.startswith(CONSOLE)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", fix="give a run directory, or a log") from None
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or str(error), fix="give a log file") from None
    if _delimiter(header.decode("utf-8-sig", "replace")) is not None:
        return None
    if is_console:
        raise DataError(
            f"{path} is what a dllogger printed for people",
            why="its numbers are rounded, and its lines have no fixed form",
            fix="give the file of its JSONStreamBackend",
        )
    raise DataError(
        f"{path} is no log",
        why="it has neither records in JSON nor a line of column names" if header else "it is empty",
        fix="give a metrics.jsonl, a dllogger file (DLLL …, TCAPPDLL …), or a CSV with a column step",
    )


def _delimiter(header: str) -> str | None:
    """What separates the columns of a table, if the line may be its header."""
    most = max(",;\t", key=header.count)
    is_text = bool(header.strip()) and header.strip().replace("\t", " ").isprintable()
    return most if is_text and header.count(most) else None


def _rows(path: Path, tolerated: Tolerated) -> Iterator[Record]:
    """The rows of a table as records: a column `step`, with `epoch` beside it or alone, and the rest are metrics."""
    with open_regular(path) as stream:
        lines = _text_lines(stream, path)
        header = next((line for line in lines if line.strip()), "")
        rows, heads = (csv.reader(part, delimiter=_delimiter(header) or ",") for part in (lines, [header]))
        names = [name.strip() for _, cells in _numbered(path, heads, before=0) for name in cells]
        places = _step_columns(path, names)
        for number, cells in _numbered(path, rows, before=1):
            try:
                yield _record(names, places, cells)
            except ValueError as error:
                if _is_cut(stream):
                    tolerated.is_torn = True
                    return
                raise DataError(
                    f"{path}, line {number} is no row of the table", why=str(error), fix="remove that line"
                ) from None
        tolerated.has_open_end = _is_cut(stream)


def _text_lines(stream: BinaryIO, path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=1):
        if len(line) == LONGEST_LINE:
            raise DataError(f"{path}, line {number} has more than {LONGEST_LINE:,} bytes", fix="give a log")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {number} is not UTF-8", why=f"byte {error.start} of it is none") from None


def _numbered(path: Path, rows: Any, before: int) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, with the number of the line where each ends; so many lines were read `before`."""
    try:
        for cells in rows:
            if any(cell.strip() for cell in cells):
                yield rows.line_num + before, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num + before} is no row of a table", why=str(error)) from None


def _step_columns(path: Path, names: list[str]) -> list[int]:
    """Where epoch and step are, or one of them."""
    words = [name.casefold().strip('"') for name in names]
    found = [words.index(name) for name in ("epoch",) if name in words]
    found += [words.index(name) for name in STEPS if name in words][:1]
    if found and len(names) <= MOST_COLUMNS:
        return found
    raise DataError(
        f"{path} has no column of steps",
        why=f"its columns are {shown(', '.join(names))}",
        fix="call one of them step (or iteration, or epoch)",
    )


def _record(names: list[str], places: list[int], cells: list[str]) -> Record:
    """A row as a record; a ValueError if it is none."""
    if len(cells) != len(names):
        raise ValueError(f"it has {len(cells)} cells, where the header has {len(names)} columns")
    steps = [_count(names[place], cells[place]) for place in places]
    data = {name: _value(cell) for name, cell in zip(names, cells, strict=True) if cell.strip()}
    for place in places:
        data.pop(names[place], None)
    return {"type": "LOG", "step": steps, "data": data}


def _count(name: str, cell: str) -> int:
    value = float(cell) if len(cell) < 40 and cell.strip().replace(".", "", 1).isdecimal() else -1.0
    if value < 0 or value != int(value) or value >= 2**63:
        raise ValueError(f"{name} is {shown(cell)!r}, which is no number of steps")
    return int(value)


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell.strip()


def _is_cut(stream: BinaryIO) -> bool:
    """Whether all was read, and the last line has no end."""
    if stream.read(1):
        return False
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) != b"\n"
