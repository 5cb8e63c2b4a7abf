"""What is in the cache: how large, how old, and how to remove it beside processes that may be using it."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.data.cache import SUFFIX
from paddock.objects.address import COPIES

PREPARED = re.compile(r".+-[0-9a-f]{16}")
"""Folders of tokenized text and learned tokenizers, as `cache.py` calls them; and those of copies from a store."""
SAMPLES = "samples"
"""What a program gave to a Trainer: nothing makes it again. Its folders begin so."""
FETCHED = "fetched"
MEASURED = re.compile(r"products-.+\.json")
"""What `devices/products.py` measured of this machine."""


@dataclass(frozen=True)
class Kept:
    """One thing in the cache."""

    path: Path
    kind: str
    bytes: int
    age: float
    """Seconds since it was last used or made."""


def kept_in(folder: Path) -> list[Kept]:
    """What a cache holds, the largest first. What is none of ours, or still being made, is not looked at."""
    now = time.time()
    found = []
    for path in [*_inside(folder), *_inside(folder / COPIES)]:
        if path.name.startswith(".") or path.is_symlink() or (kind := _kind(path)) is None:
            continue
        stats = [file.stat() for file in _files(path)]
        # A file that was fetched has the time at which somebody wrote it there.
        own = [path.stat().st_mtime] if kind == FETCHED or not stats else []
        used = max([*own, *(max(one.st_mtime, one.st_atime) for one in stats)])
        found.append(Kept(path, kind, sum(one.st_size for one in stats), max(now - used, 0.0)))
    return sorted(found, key=lambda one: -one.bytes)


def remove(kept: Kept) -> bool:
    """Remove it; False, if a process has it open."""
    if _is_mapped(kept.path):
        return False
    if kept.path.is_dir():
        shutil.rmtree(kept.path, ignore_errors=True)
    else:
        kept.path.unlink(missing_ok=True)
    return True


def _kind(path: Path) -> str | None:
    """What it is; None, where it is none of ours."""
    if path.is_file():
        return "machine" if MEASURED.fullmatch(path.name) else None
    if PREPARED.fullmatch(path.name):
        if path.parent.name == COPIES:
            return FETCHED
        return SAMPLES if path.name.startswith(f"{SAMPLES}-") else "prepared"
    names = {file.name for file in _files(path)}
    return path.name if names and all(name == "lock" or name.endswith(SUFFIX) for name in names) else None


def _inside(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _files(path: Path) -> Iterator[Path]:
    return (file for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


def _is_mapped(path: Path) -> bool:
    """Whether a process of ours that can be looked at has a file of it in its memory."""
    inside = f"{path.resolve()}{os.sep}" if path.is_dir() else str(path.resolve())
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if inside in maps.read_text(errors="replace"):
                return True
    return False
