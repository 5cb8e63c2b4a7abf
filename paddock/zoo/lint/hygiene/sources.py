"""What a file of a contribution is to whoever reads it: a program, commands, settings, a notebook, words, or no text.

A notebook is the programs and the commands of its cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["python", "notebook", "dockerfile", "commands", "settings", "list", "words", "binary"]
SUFFIXES: dict[str, Kind] = {
    ".py": "python",
    ".ipynb": "notebook",
    ".dockerfile": "dockerfile",
    **dict.fromkeys((".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch", ".mk"), "commands"),
    **dict.fromkeys((".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".properties", ".env"), "settings"),
    ".txt": "list",
}
NAMES: tuple[tuple[str, Kind], ...] = (
    (r"(docker|container)file(\..*)?", "dockerfile"),
    (r"makefile", "commands"),
    (r"\.env.*|\.netrc|\.npmrc|\.pypirc|\.s3cfg|credentials", "settings"),
)
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Source:
    """A text to look through: a file, or a cell of a notebook."""

    place: str
    kind: Kind
    text: str


def kind_of(path: Path, data: bytes) -> Kind:
    """What a file is: by its name, or by its first line where the name says nothing."""
    if b"\0" in data and not data.startswith(UTF16):
        return "binary"
    for pattern, kind in NAMES:
        if re.fullmatch(pattern, path.name, re.IGNORECASE):
            return kind
    if not path.suffix and data.startswith(b"#!"):
        return "python" if b"python" in data.partition(b"\n")[0] else "commands"
    return SUFFIXES.get(path.suffix.lower(), "words")


def text_of(data: bytes) -> str:
    """Bytes as text, with what is not UTF-8 replaced; some editors write UTF-16."""
    return data.decode("utf-16" if data.startswith(UTF16) else "utf-8", errors="replace")


def sources_of(path: Path, kind: Kind, text: str) -> Iterator[Source]:
    """The file itself, or the cells of a notebook that are run."""
    if kind != "notebook":
        yield Source(str(path), kind, text)
        return
    for number, cell in enumerate(_cells(text), start=1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            yield from _parts(f"{path}, cell {number}", _text_of_cell(cell.get("source")))


def _cells(text: str) -> list[Any]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return []
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    return cells if isinstance(cells, list) else []


def _text_of_cell(source: Any) -> str:
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _parts(place: str, text: str) -> Iterator[Source]:
    """Of a cell, what Python runs and what a shell does, each in its own lines."""
    if re.match(r"\s*%%(bash|sh|script)\b", text):
        yield Source(place, "commands", re.sub(r"%%.*", "", text, count=1))
        return
    lines = text.splitlines()
    is_command = [bool(re.match(r"\s*[!%]", line)) for line in lines]
    for kind in ("python", "commands"):
        kept = (line.lstrip(" \t!%") if commands else line for line, commands in zip(lines, is_command, strict=True))
        own = [
            line if commands == (kind == "commands") else "" for line, commands in zip(kept, is_command, strict=True)
        ]
        yield Source(place, kind, "\n".join(own))
