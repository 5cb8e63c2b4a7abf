"""Text that is worth tokenizing, as JSON lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from paddock.data.language.prepare import embedded_documents
from paddock.data.preprocess.job import PreprocessJob

MakeJob = Callable[..., PreprocessJob]


def sample_texts(count: int = 300, seed: int = 0) -> list[str]:
    """Pieces of the embedded corpus, of very different lengths."""
    rng = random.Random(seed)
    source = "\n\n".join(embedded_documents())
    texts = []
    for _ in range(count):
        begin = rng.randrange(len(source))
        texts.append(source[begin : begin + int(rng.paretovariate(1.2) * 40)])
    return texts


def write_lines(path: Path, texts: list[str], key: str = "text") -> Path:
    """Texts as JSON lines, each with its number under a key that nobody asks for."""
    path.write_text("".join(json.dumps({key: text, "other": number}) + "\n" for number, text in enumerate(texts)))
    return path
