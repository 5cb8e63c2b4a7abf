"""A contribution on disk: its files, read once, within bounds. What a local run left beside them is no part of it."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import ConfigError
from paddock.files import read_regular

SCRIPTS = "run_scripts"
MODEL_FILE = "model.yaml"
NOT_PART = ("runs", "__pycache__", ".git", ".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints")
"""Folders that runs and tools leave behind."""
MOST_FILES, MOST_BYTES, LARGEST_FILE = 2_000, 64 * 2**20, 8 * 2**20
"""A contribution is code and words; weights and data are fetched from where they are published."""
LARGEST_PYTHON = 2**20
"""Bytes: a program that somebody wrote."""


@dataclass(frozen=True)
class Contribution:
    """A folder, and what is in it. Paths are relative to it."""

    folder: Path
    files: tuple[Path, ...]
    """Regular files."""
    links: tuple[Path, ...]
    others: tuple[Path, ...]
    """What is neither file, folder nor link: pipes, sockets, devices."""
    is_complete: bool
    """Whether all of it was looked at: it is not, where there are too many files."""

    @classmethod
    def open(cls, folder: Path) -> Contribution:
        """Look at a folder; links are not followed."""
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", fix="give the folder of a contribution, or its model.yaml")
        files: list[Path] = []
        links: list[Path] = []
        others: list[Path] = []
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if name not in NOT_PART)
            for name in [*folders, *sorted(names)]:
                path = Path(place, name)
                kind = links if path.is_symlink() else None if path.is_dir() else files if path.is_file() else others
                if kind is not None:
                    kind.append(path.relative_to(folder))
            if len(files) + len(links) + len(others) > MOST_FILES:
                return cls(folder, tuple(files), tuple(links), tuple(others), False)
        return cls(folder, tuple(files), tuple(links), tuple(others), True)

    def has(self, path: Path | str) -> bool:
        return Path(path) in self.files

    def size(self, path: Path) -> int:
        return (self.folder / path).lstat().st_size

    def data(self, path: Path | str) -> bytes:
        """What a file holds; nothing, if it is too large for a contribution."""
        try:
            return read_regular(self.folder / path, LARGEST_FILE)
        except OSError:
            return b""

    def text(self, path: Path | str) -> str:
        """The same as text, with what is not UTF-8 replaced."""
        return self.data(path).decode(errors="replace")

    def scripts(self) -> list[Path]:
        """The files that run the models."""
        return [path for path in self.files if path.parent == Path(SCRIPTS) and path.match("run_*.py")]

    def syntax(self, path: Path) -> ast.Module | None:
        """A Python file, parsed; None if it is none, or too long to be one."""
        return None if self.size(path) > LARGEST_PYTHON else parse_python(self.text(path))


def parse_python(text: str) -> ast.Module | None:
    """A program, parsed; None if it is none, or too long to be one."""
    if len(text) > LARGEST_PYTHON:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
