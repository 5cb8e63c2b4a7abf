"""What a weight format costs: the perplexity of a text in it beside that in float32, and the bytes of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from paddock.devices.config import WeightFormat
from paddock.errors import DataError, bad_value
from paddock.files import open_text
from paddock.inference.loaded import load
from paddock.models.layers.packing import weight_bytes
from paddock.phases import phase

LARGEST_TEXT = 2**24
"""Characters."""


def format_names() -> list[WeightFormat]:
    """All there are, float32 first."""
    return [name for part in get_args(WeightFormat) for name in (get_args(part) or (part,))]


@dataclass(frozen=True)
class FormatCost:
    """A model in a format."""

    format: str
    perplexity: float
    change: float
    """Of the perplexity, beside that in float32: 0.01 is one percent worse."""
    weight_bytes: int


def check_formats(source: str, text: Path, formats: Sequence[WeightFormat], device: str) -> Iterator[FormatCost]:
    """Each of the formats, one after the other, after float32 itself."""
    content = _read(text)
    reference: float | None = None
    for name in dict.fromkeys(["float32", *formats]):
        if name not in format_names():
            raise bad_value("--formats", name, "there is no such format", ", ".join(format_names()))
        with phase(f"measuring {name}", at_once=True):
            loaded = load(source, device=device, format=name)
            perplexity = loaded.perplexity(content)
        reference = perplexity if reference is None else reference
        yield FormatCost(name, perplexity, perplexity / reference - 1, weight_bytes(loaded.model))


def _read(path: Path) -> str:
    try:
        with open_text(path) as stream:
            content = stream.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise DataError(f"cannot read --text {path}", why=error.strerror or "") from None
    except UnicodeDecodeError:
        raise DataError(f"--text {path} is not text in UTF-8") from None
    if len(content) > LARGEST_TEXT:
        raise DataError(f"--text {path} has more than {LARGEST_TEXT:,} characters", fix="a part of it tells as much")
    return content
