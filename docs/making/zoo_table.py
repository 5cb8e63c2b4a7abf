"""The table of the zoo in README.md and README.zh.md, from the recipes that ship and their files of results.

    python docs/making/zoo_table.py

writes it anew into both. A recipe that was trained, or whose published result is known, has a row of its own; the
others of a family and a task share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from table import table

from paddock.telemetry.format import count
from paddock.zoo.catalogue import CatalogueEntry, catalogue

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- zoo: written by docs/making/zoo_table.py -->", "<!-- end of the zoo -->"
NONE = "–"
HEADS = {
    "README.md": ("recipe", "parameters", "task", "reached", "reference", "command"),
    "README.zh.md": ("配方", "参数量", "任务", "达到", "参考值", "命令"),
}
REFERENCES = {
    "bert/base-uncased-squad": "`val.f1` 88.5 (BERT paper)",
    "resnet/18": "`val.top1` 69.76 (torchvision)",
    "resnet/34": "`val.top1` 73.31 (torchvision)",
    "resnet/50": "`val.top1` 76.13 (torchvision)",
    "resnet/101": "`val.top1` 77.37 (torchvision)",
    "resnet/152": "`val.top1` 78.31 (torchvision)",
}
"""What others published of the same model on the same task: for BERT Devlin et al., NAACL 2019, table 2, on the dev set
of SQuAD 1.1; for ResNet torchvision's first weights (IMAGENET1K_V1), on the validation set of ImageNet."""


def zoo_table(heads: tuple[str, ...], entries: Iterable[CatalogueEntry]) -> str:
    """The table in Markdown, smaller models first."""
    groups: dict[tuple[str, ...], list[CatalogueEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.recipe.parameters):
        groups.setdefault(_group(entry), []).append(entry)
    rows = sorted(groups.items(), key=lambda item: (_folder(item[1][0]), len(item[0])))  # of a family, known ones first
    return "\n".join(table(heads, (_row(group) for _, group in rows))) + "\n"


def pages(entries: Iterable[CatalogueEntry]) -> Iterator[tuple[Path, str]]:
    """Each README, and its text with the table as it should be."""
    entries = list(entries)
    for name, heads in HEADS.items():
        before, begin, rest = (ROOT / name).read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        assert begin and end, f"{name} has no place for the table"
        yield ROOT / name, f"{before}{begin}\n\n{zoo_table(heads, entries)}\n{end}{after}"


def _folder(entry: CatalogueEntry) -> str:
    return entry.recipe.name.partition("/")[0]


def _group(entry: CatalogueEntry) -> tuple[str, ...]:
    """What a row is about: one recipe of which something is known, or the others of a family and a task."""
    name = entry.recipe.name
    return (name,) if entry.headline() or name in REFERENCES else (_folder(entry), entry.recipe.task)


def _row(group: list[CatalogueEntry]) -> tuple[str, ...]:
    names = ", ".join(f"`{entry.recipe.name}`" for entry in group)
    sizes = ", ".join(count(entry.recipe.parameters) for entry in group)
    return names, sizes, f"`{group[0].recipe.task}`", *_reached(group[0])


def _reached(entry: CatalogueEntry) -> tuple[str, str, str]:
    """What training reached, what others did, and the command that says so."""
    reference = REFERENCES.get(entry.recipe.name, NONE)
    reached = entry.reached()
    if reached is None:
        return NONE, reference, NONE
    return f"`{reached.name}` {reached.value:g} ({reached.detail})", reference, f"`{reached.command}`"


def main() -> None:
    for path, text in pages(catalogue()):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
