"""The files that a job reads: names and patterns become a list, and whatever cannot be read is found before work."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.errors import ConfigError, DataError

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Input:
    """A file, or a stream: a pipe or standard input, of which nobody knows the size, and which is read only once."""

    path: str
    size: int | None = None
    modified: int | None = None
    """Nanoseconds since the epoch."""

    @property
    def is_stream(self) -> bool:
        return self.size is None

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD_INPUT else self.path


def find_inputs(patterns: Sequence[str]) -> list[Input]:
    """Every input in the order of the command line; the files of a pattern by name."""
    if not patterns:
        raise ConfigError("--input names no file", fix="--input FILE…, a quoted pattern, or - for standard input")
    paths = [path for pattern in patterns for path in _expand(pattern)]
    seen: set[str] = set()
    for path in paths:
        place = path if path == STANDARD_INPUT else os.path.realpath(path)
        if place in seen:
            raise ConfigError(
                f"--input names {path} twice", why="its documents would be there twice", fix="name it once"
            )
        seen.add(place)
    return [look_at(path) for path in paths]


def look_at(path: str) -> Input:
    """The input as it is now."""
    if path == STANDARD_INPUT:
        return Input(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise DataError(
                f"--input {path} is a folder",
                why="files of JSON lines are read",
                fix=f"name its files: --input '{os.path.join(path, '*.jsonl')}'",
            )
        if not stat.S_ISREG(status.st_mode):
            return Input(path)
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        raise DataError(
            f"cannot read --input {path}", why=os.strerror(error.errno or 0), fix="check the path"
        ) from None
    return Input(path, status.st_size, status.st_mtime_ns)


def _expand(pattern: str) -> list[str]:
    if pattern == STANDARD_INPUT or os.path.lexists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    found = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
    if not found:
        raise DataError(f"--input {pattern} matches no file", fix="check the pattern")
    return found
