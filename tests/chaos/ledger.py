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

    def __init__(self, path: Path | None, columns: tuple[str, ...]) -> None:
        self.path, self._columns = path, columns
        self.rows: list[dict[str, str]] = []
        if path is not None and path.exists() and path.stat().st_size:
            self.rows = list(self._read(path))

    def _read(self, path: Path) -> Iterator[dict[str, str]]:
        with open(path, encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            if tuple(reader.fieldnames or ()) != self._columns:
                raise SystemExit(f"{path} is of another campaign: its columns are not {','.join(self._columns)}")
            yield from reader

    def has(self, seed: int, number: int) -> bool:
        return any((row["seed"], row["number"]) == (str(seed), str(number)) for row in self.rows)

    def of(self, seed: int) -> list[dict[str, str]]:
        return [row for row in self.rows if row["seed"] == str(seed)]

    def add(self, row: Mapping[str, object]) -> None:
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
