"""A row for each fault of a campaign, as soon as it is known. A campaign may be interrupted and go on: what has a row
is not done again."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar


class Told(Protocol):
    """What came of a fault."""

    def row(self) -> dict[str, object]: ...


T = TypeVar("T", bound=Told)


class Ledger:
    """The rows of a file, to which others are added; without a path, of this process alone."""

    def __init__(self, path: Path | None, columns: tuple[str, ...], newer: tuple[str, ...] = ()) -> None:
        """`newer` are the columns that a file may lack, in which its rows have nothing then."""
        self.path, self._columns, self._newer = path, columns, newer
        self._lacks_columns = False
        self.rows: list[dict[str, str]] = []
        if path is not None and path.exists() and path.stat().st_size:
            self.rows = list(self._read(path))

    def _read(self, path: Path) -> Iterator[dict[str, str]]:
        with open(path, encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            names = tuple(reader.fieldnames or ())
            lacking = tuple(name for name in self._newer if name not in names)
            if names != tuple(name for name in self._columns if name not in lacking):
                raise SystemExit(f"{path} is of another campaign: its columns are not {','.join(self._columns)}")
            self._lacks_columns = bool(lacking)
            for row in reader:
                yield {name: row.get(name, "") for name in self._columns}

    def has(self, seed: int, number: int) -> bool:
        return any((row["seed"], row["number"]) == (str(seed), str(number)) for row in self.rows)

    def of(self, seed: int) -> list[dict[str, str]]:
        return [row for row in self.rows if row["seed"] == str(seed)]

    def _add_columns(self, path: Path) -> None:
        """Write the rows that are there anew, with all columns; if that is interrupted, they stay as they were."""
        anew = path.with_name(path.name + ".new")
        with open(anew, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(anew, path)
        self._lacks_columns = False

    def add(self, row: Mapping[str, object]) -> None:
        if self.path is not None and self._lacks_columns:
            self._add_columns(self.path)
        self.rows.append({name: "" if value is None else str(value) for name, value in row.items()})
        if self.path is None:
            return
        with open(self.path, "a", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns, lineterminator="\n")
            if not stream.tell():
                writer.writeheader()
            writer.writerow(row)
            stream.flush()
            os.fsync(stream.fileno())


def run_faults(numbers: Iterable[int], seed: int, fault: Callable[[int], T], ledger: Ledger) -> Iterator[T]:
    """One after the other, but those that have a row."""
    for number in numbers:
        if not ledger.has(seed, number):
            verdict = fault(number)
            ledger.add(verdict.row())
            yield verdict
