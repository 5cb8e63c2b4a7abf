"""The corpus that needs no download: the Python language reference that every CPython carries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from paddock.data.config import TextDocument
from paddock.errors import DataError


class EmbeddedTexts:
    """The corpus that needs no download, as JSON lines."""

    document: TextDocument = "line"
    json_key = "text"

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(repr(embedded_documents()).encode()).hexdigest()

    def texts(self) -> Iterator[str]:
        return iter(embedded_documents())

    def describe(self) -> str:
        return ""  # always the same, and made in a moment

    def check_unchanged(self) -> None:
        """It cannot change."""

    def inputs(self, folder: Path) -> tuple[str, ...]:
        with open(folder / "corpus.jsonl", "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in self.texts())
        return (str(folder / "corpus.jsonl"),)


def embedded_documents() -> list[str]:
    """The Python language reference inside every CPython, about 0.45 MB of prose.

    These are the topics of `pydoc`, in alphabetical order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError(
            "this Python has no pydoc_data",
            why="its distribution left it out",
            fix="use --data.source indexed or text",
        ) from None
    return [text.strip() for _, text in sorted(topics.items()) if text.strip()]
