"""The corpus that needs no download: the Python language reference inside every CPython, about 0.45 MB of prose."""

from __future__ import annotations

from paddock.errors import DataError


def embedded_documents() -> list[str]:
    """The topics of `pydoc`, in alphabetical order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError(
            "this Python has no pydoc_data",
            why="its distribution left it out",
            fix="use --data.source indexed",
        ) from None
    return [text.strip() for _, text in sorted(topics.items()) if text.strip()]
