"""Files in SQuAD's form with questions that a small model learns in a minute."""

from __future__ import annotations

import json
from pathlib import Path

from paddock.data.questions.synthetic import synthetic_squad


def write_squad(folder: Path, train: int = 3000, validation: int = 300, unanswerable: bool = False) -> Path:
    """Write a training and a validation file of so many questions, under their usual names; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    version = "v2.0" if unanswerable else "v1.1"
    for name, count, first in (("train", train, 0), ("dev", validation, 500_000)):
        content = synthetic_squad(count, first, unanswerable)
        (folder / f"{name}-{version}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
