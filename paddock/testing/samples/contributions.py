"""A contribution to the zoo that trains in a second, finished as its author would finish it."""

from __future__ import annotations

from pathlib import Path

SMALL_RECIPE = """\
extends: gpt2/tiny
model: {layers: 1, hidden: 16, heads: 2, vocab: 300, context: 16}
data: {sequence_length: 16}
evaluate: {every: 100, batches: 1}
schedule: {warmup: 0}
optimizer: {lr: 1.0e-2}
"""
"""What to make one from."""


def finished(folder: Path) -> Path:
    """A contribution with something in place of every TODO."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = text.replace("| TODO |", "| cpu |", 1).replace("TODO |", "97.4 |").replace("TODO:", "From")
    readme.write_text(text, encoding="utf-8")
    return folder
