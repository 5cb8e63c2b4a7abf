"""Telling what images show."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from paddock.data.images.config import SHAPES, ImageData
from paddock.data.images.decode import Pixels, decode
from paddock.data.images.files import EXTENSIONS
from paddock.data.images.transforms import evaluation_transform, normalise, stack
from paddock.errors import DataError
from paddock.files import read_regular, user_path
from paddock.inference.outputs import outputs_of
from paddock.inference.predictors import Answer, OnBatch, PredictorSetup

LEAVE_OUT = "repair or remove it, or leave such images out with --on-error skip"


class ImagePredictor:
    """What `paddock predict` runs for image classification. A query is an image file."""

    suffixes: ClassVar[tuple[str, ...]] = EXTENSIONS
    default_top_k: ClassVar[int] = 5

    def __init__(self, setup: PredictorSetup) -> None:
        assert isinstance(setup.data, ImageData)
        self._setup, self._data = setup, setup.data
        config: Any = setup.model.config
        drawn = SHAPES if setup.data.source == "shapes" else ()
        self._classes = list(setup.classes or drawn) or [str(number) for number in range(config.classes)]

    def query(self, value: Any, where: str) -> Path:
        """A path, or {"image": path}."""
        if isinstance(value, dict):
            value = value.get("image")
        if not isinstance(value, str | Path):
            raise DataError(f"{where} names no image", fix='give the path of a file, or {"image": "…"}')
        path = user_path(value)
        if not os.path.isfile(path) and not self._setup.skip_unreadable:
            raise DataError(f"there is no file {path}", why=f"{where} names it", fix="check the path")
        return path

    def predict(
        self, queries: Sequence[Path], top_k: int, on_batch: OnBatch | None = None
    ) -> list[list[Answer] | None]:
        """{"class", "probability"}; one thread reads the next images while the model computes these."""
        size = self._setup.batch
        parts = [queries[start : start + size] for start in range(0, len(queries), size)]
        found: list[list[Answer] | None] = []
        with ThreadPoolExecutor(max_workers=1) as reader:
            ahead = [reader.submit(self._read, part) for part in parts[:1]]
            for number in range(len(parts)):
                views = ahead.pop().result()
                ahead += [reader.submit(self._read, part) for part in parts[number + 1 : number + 2]]
                answers = iter(self._predict_batch([view for view in views if view is not None], top_k))
                found += [None if view is None else next(answers) for view in views]
                if on_batch is not None:
                    on_batch(number + 1, len(parts))
        return found

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        return f"{name}: " + ", ".join(f"{answer['class']} {answer['probability']:.4f}" for answer in answers)

    def _read(self, paths: Sequence[Path]) -> list[Pixels | None]:
        """What the model is to see of each; None of one that is left out."""
        return [self._read_one(path) for path in paths]

    def _read_one(self, path: Path) -> Pixels | None:
        try:
            return evaluation_transform(decode(read_regular(path), str(path)), self._data)
        except (OSError, DataError) as error:
            why = error.why if isinstance(error, DataError) else error.strerror or str(error)
            if not self._setup.skip_unreadable:
                raise DataError(f"{path} cannot be read", why=why, fix=LEAVE_OUT) from error
            print(f"skipped {path}: {why}", file=sys.stderr, flush=True)
            return None

    def _predict_batch(self, views: Sequence[Pixels], top_k: int) -> list[list[Answer]]:
        if not views:
            return []
        seen = normalise(stack(views).to(self._setup.device), self._data.mean, self._data.std)
        outputs = outputs_of(self._setup.model, {"images": seen}).float().softmax(-1).cpu()
        best = outputs.sort(dim=-1, descending=True, stable=True)
        rows = zip(best.indices[:, :top_k].tolist(), best.values[:, :top_k].tolist(), strict=True)
        return [
            [
                {"class": self._classes[number], "probability": round(probability, 4)}
                for number, probability in zip(numbers, probabilities, strict=True)
            ]
            for numbers, probabilities in rows
        ]
