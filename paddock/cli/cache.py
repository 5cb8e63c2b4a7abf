"""`paddock cache list|clean`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.cli.arguments import parse
from paddock.cli.asking import confirmed
from paddock.cli.subverbs import run_subverb
from paddock.errors import bad_value
from paddock.telemetry.format import bytes_, duration

if TYPE_CHECKING:
    from paddock.data.kept import Kept

DAY = 86400


@dataclass(frozen=True)
class ListOptions:
    """What Paddock keeps for next time: tokenized text, tokenizers, lists of images, copies from stores (s3://…),
    how this machine multiplies.

    All of it is made again where it is missing, but for the samples that a program gave to a Trainer, which are nowhere
    else. --data.cache of a recipe names another folder than the usual one."""

    folder: Path | None = None
    """The folder to look into; None is the usual one, $XDG_CACHE_HOME/paddock or ~/.cache/paddock."""
    json: bool = False
    """Print the list as JSON, with sizes in bytes and ages in seconds."""


@dataclass(frozen=True)
class CleanOptions:
    """Remove what Paddock keeps for next time. Asks first; what a run is using stays, and so do samples that a program
    gave to a Trainer, since its runs are evaluated and go on with them.

        paddock cache clean --older-than 30
        paddock cache clean --yes"""

    folder: Path | None = None
    """The folder to clean; None is the usual one."""
    older_than: float = 0.0
    """Remove only what has not been used for so many days."""
    samples: bool = False
    """Also samples of Trainers: then only the program that has them can evaluate their runs, or go on with them."""
    dry_run: bool = False
    """Say what would be removed, and remove nothing."""
    yes: bool = False
    """Do not ask."""
    json: bool = False
    """Print the list of what was removed as JSON."""


def main(arguments: list[str]) -> None:
    run_subverb("cache", {"list": (show, ListOptions), "clean": (clean, CleanOptions)}, arguments)


def show(arguments: list[str]) -> None:
    options = parse(ListOptions, "cache list", arguments)
    from paddock.data.kept import kept_in
    from paddock.files import user_cache

    _tell(kept_in(options.folder or user_cache()), options.folder or user_cache(), options.json)


def clean(arguments: list[str]) -> None:
    options = parse(CleanOptions, "cache clean", arguments)
    from paddock.data.kept import SAMPLES, kept_in, remove
    from paddock.files import user_cache

    if options.older_than < 0:
        raise bad_value("--older-than", options.older_than, "it is a number of days")
    folder = options.folder or user_cache()
    old = [one for one in kept_in(folder) if one.age >= options.older_than * DAY]
    chosen = [one for one in old if options.samples or one.kind != SAMPLES]
    if left := len(old) - len(chosen):
        print(f"left alone: samples of Trainers, {left} of them, which are nowhere else (--samples)", file=sys.stderr)
    asks = chosen and not (options.dry_run or options.yes)
    size = sum(one.bytes for one in chosen)
    if asks and not confirmed("cache clean", _lines(chosen, folder), size, has_dry_run=True):
        print("nothing was removed", file=sys.stderr)
        return
    gone = [one for one in chosen if options.dry_run or remove(one)]
    _tell(gone, folder, options.json, "would be removed from" if options.dry_run else "removed from")


def _lines(kept: Sequence[Kept], folder: Path) -> list[str]:
    return [
        f"{bytes_(one.bytes):>8}  {duration(round(one.age)):>7} ago  {one.kind:<10} {one.path.relative_to(folder)}"
        for one in kept
    ]


def _tell(kept: Sequence[Kept], folder: Path, as_json: bool, done: str = "in") -> None:
    if as_json:
        print(json.dumps([{**asdict(one), "path": str(one.path)} for one in kept]))
        return
    for line in _lines(kept, folder):
        print(line)
    total = bytes_(sum(one.bytes for one in kept))
    print(f"{total:>8}  {len(kept)} thing{'' if len(kept) == 1 else 's'} {done} {folder}")
