"""What is known of the recipes that ship: layouts that were proven, devices that agree, and what training reached.

All of it comes from files of results beside the recipes, `recipes/FAMILY/results.csv`, which commands wrote
(`benchmarks/zoo_results.py`) and no hand. A row is a number, and the command that it came of.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from paddock.config.load import SHIPPED, ZooEntry, find_recipe, zoo
from paddock.documents import read_text
from paddock.errors import ConfigError, DataError, did_you_mean
from paddock.files import atomic_write
from paddock.schema import ConfigModel

FILE = "results.csv"
LARGEST = 2**20
Kind = Literal["layout", "device", "metric"]


class KnownResult(ConfigModel):
    """A row of a file of results."""

    recipe: str
    kind: Kind
    """layout: the largest relative difference of its losses from one process; device: the largest relative difference,
    from the CPU's, of what any part of the model hands on in one training step; metric: what training reached."""
    name: str
    """The layout, the device, or the metric."""
    value: float
    detail: str = ""
    """How many steps were compared, or trained."""
    precision: str
    """What it was computed in: layouts that agree in float64 alone are not those that agree in float32."""
    machine: str
    torch: str
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    command: str


COLUMNS = tuple(KnownResult.model_fields)


@dataclass(frozen=True)
class CatalogueEntry:
    """A shipped recipe, with what is known of it."""

    recipe: ZooEntry
    results: tuple[KnownResult, ...]

    def named(self, kind: Kind) -> list[str]:
        return [result.name for result in self.results if result.kind == kind]

    def layouts(self) -> str:
        """The layouts that were proven, with the number type where that is not float32."""
        proven = [result for result in self.results if result.kind == "layout"]
        groups = {one.precision: " ".join(r.name for r in proven if r.precision == one.precision) for one in proven}
        return "; ".join(
            names if precision == "float32" else f"{names} ({precision} only)" for precision, names in groups.items()
        )

    def reached(self) -> KnownResult | None:
        """What training reached, by the first metric that is no loss."""
        metrics = (result for result in self.results if result.kind == "metric" and result.name != "val.loss")
        return next(metrics, None)

    def headline(self) -> str:
        """The same in a word and a number."""
        reached = self.reached()
        return f"{reached.name} {reached.value:g}" if reached else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.recipe.name,
            "task": self.recipe.task,
            "family": self.recipe.family,
            "parameters": self.recipe.parameters,
            "aliases": list(self.recipe.aliases),
            "layouts": self.named("layout"),
            "devices": self.named("device"),
            "results": [result.model_dump() for result in self.results],
        }


def catalogue(folder: Path = SHIPPED) -> list[CatalogueEntry]:
    """Every shipped recipe."""
    known = [result for path in sorted(folder.glob(f"*/{FILE}")) for result in read_results(path)]
    return [CatalogueEntry(entry, tuple(result for result in known if result.recipe == entry.name)) for entry in zoo()]


def find_entry(name: str) -> CatalogueEntry:
    """The entry of a recipe, by any of its names."""
    entries = catalogue()
    by_name = {other: entry for entry in entries for other in (entry.recipe.name, *entry.recipe.aliases)}
    if name not in by_name:
        find_recipe(name)  # which knows what to say of a name that there is not
        raise ConfigError(f"{name} is no model of its own", fix=did_you_mean(name, sorted(by_name)))
    return by_name[name]


def read_results(path: Path) -> list[KnownResult]:
    """The rows of a file of results; a DataError names the row that is none."""
    try:
        rows = csv.DictReader(StringIO(read_text(path, max_bytes=LARGEST).decode()), strict=True)
        found = []
        for number, row in enumerate(rows, start=2):
            try:
                found.append(KnownResult(**{str(key): value for key, value in row.items()}))
            except ConfigError as error:
                raise DataError(f"{path}, line {number} is no result", why=f"{error.what}: {error.why}") from None
        return found
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no file of results", why=str(error)) from None


def write_results(path: Path, results: Iterable[KnownResult]) -> None:
    """Add results to a file; one of the same recipe, kind and name takes the place of the old one."""
    kept = read_results(path) if path.exists() else []
    merged = {(one.recipe, one.kind, one.name): one for one in [*kept, *results]}
    with atomic_write(path) as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(one.model_dump() for one in sorted(merged.values(), key=lambda one: (one.recipe, one.kind)))
