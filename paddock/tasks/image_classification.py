"""Image classification: which of the classes an image shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.checkpoint.position import TRAINING_CONTENT
from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.images.config import SHAPES, ImageData
from paddock.data.images.decode import check_reader
from paddock.data.images.files import ImageFiles, Part, no_part, open_files
from paddock.data.images.samples import EvaluationImages, Images, StoredImages, TrainingImages
from paddock.data.images.synthetic import Noise, Shapes
from paddock.data.images.transforms import normalise, stack
from paddock.errors import DataError
from paddock.models.config import IGNORED, ModelConfig, SampleShape
from paddock.models.layers.basic import widest
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task

TOP = 5
LOOKED_INTO = 32
"""Images whose content tells one set of files from another."""
SKIPPED = "skipped"
"""The entry of samples, and of a batch where there are any, with the numbers of images that could not be read."""


@dataclass(frozen=True)
class PreparedImages:
    """Image files that are listed, and the classes of them all."""

    classes: Sequence[str]
    files: Mapping[Part, ImageFiles]
    tokenizer: None = None


class ImageClassification(Task):
    """Images from files, or drawn, with one class each."""

    measures: ClassVar[Mapping[str, Goal]] = {"top1": "MAXIMIZE", "top5": "MAXIMIZE", "loss": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = True
    reads_tokens: ClassVar[bool] = False
    next_command: ClassVar[str] = "predict {run} IMAGE.jpg"

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedImages:
        assert isinstance(data, ImageData)
        if not data.is_read:
            return PreparedImages(SHAPES if data.source == "shapes" else (), {})
        check_reader()
        parts: tuple[Part, ...] = ("train", "val")
        files = {part: found for part in parts if (found := open_files(data, part)) is not None}
        if not files:
            raise no_part(data, "train")
        classes = next(iter(files.values())).classes
        _check_classes(data, files, classes, model.num_classes())
        return PreparedImages(classes, files)

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedImages, model: ModelConfig, seed: int) -> ImageClassification:
        assert isinstance(data, ImageData)
        return cls(data, prepared, model.num_classes(), seed)

    def __init__(self, data: ImageData, prepared: PreparedImages, classes: int, seed: int) -> None:
        self._data, self._prepared, self._classes, self._seed = data, prepared, classes, seed

    def training_samples(self) -> Samples:
        return TrainingImages(self._images("train"), self._data, self._seed)

    def fingerprint(self) -> dict[str, int | str]:
        return {**self._describe(TRAINING_DATA, "train"), TRAINING_CONTENT: self._content("train")}

    def held_out_fingerprint(self) -> dict[str, int | str]:
        described = self._describe(HELD_OUT_DATA, "val")
        return {**described, HELD_OUT_DATA: f"{described[HELD_OUT_DATA]}, {self._content('val')}"}

    def _content(self, part: Part) -> str:
        """A digest of what some files have in them, spread over them all: of training images, however they are stored.
        That of the others is as version 0.1.0 wrote it."""
        files, digest = self._prepared.files.get(part), hashlib.sha256()
        if files is None or part == "val":
            digest.update(self._data.source.encode())
        if files is not None:
            for index in range(0, len(files), -(-len(files) // LOOKED_INTO)):
                with suppress(OSError, DataError):  # when it is needed, `data.on_error` says what becomes of it
                    digest.update(files.read(index))
        return digest.hexdigest()[:12]

    def _describe(self, entry: str, part: Part) -> dict[str, int | str]:
        classes = "\n".join(self._prepared.classes) or str(self._classes)
        digest = hashlib.sha256(classes.encode()).hexdigest()[:12]
        content = f"{len(self._images(part))} images of {self._classes} classes, {digest}"
        return {"data.image_size": self._data.image_size, entry: content}

    def validation_samples(self) -> Sequence[Sample]:
        return EvaluationImages(self._images("val"))

    def _images(self, part: Part) -> Images:
        data, prepared = self._data, self._prepared
        if data.is_read:
            if part not in prepared.files:
                raise no_part(data, part)
            places = {name: number for number, name in enumerate(prepared.classes)}
            files = prepared.files[part]
            return StoredImages(files, np.array([places[name] for name in files.classes]), data)
        count = data.training_images if part == "train" else data.validation_images
        return Shapes(data, count) if data.source == "shapes" else Noise(data, self._classes, count)

    def collate(self, samples: list[Sample]) -> Batch:
        images = stack([sample["image"] for sample in samples])
        labels = torch.tensor([sample["label"] for sample in samples])
        if "share" in samples[0]:
            others = torch.tensor([sample["other"] for sample in samples])
            shares = torch.tensor([[sample["share"]] for sample in samples], dtype=torch.float32)
            labels = shares * F.one_hot(labels, self._classes) + (1 - shares) * F.one_hot(others, self._classes)
        skipped = [number for sample in samples for number in sample.get(SKIPPED, ())]
        return {"images": images, "labels": labels, **({SKIPPED: torch.tensor(skipped)} if skipped else {})}

    def skipped(self, batch: Batch) -> Sequence[int]:
        return batch[SKIPPED].tolist() if SKIPPED in batch else ()

    def sample_shape(self, batch: Batch) -> SampleShape:
        return SampleShape(self._data.image_size)

    def num_tokens(self, batch: Batch) -> int:
        return 0

    def transform_on_device(self, batch: Batch) -> Batch:
        images = normalise(batch["images"], self._data.mean, self._data.std)
        return {"images": images, "labels": batch["labels"]}

    def count(self, batch: Batch) -> int:
        labels = batch["labels"]
        return int((labels != IGNORED).sum()) if labels.dim() == 1 else len(labels)

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        counts = batch["labels"] != IGNORED
        labels, outputs = batch["labels"][counts], outputs[counts]
        if not len(labels):
            return Judgement({"loss": 0.0, "count": 0.0, "skipped": float(len(counts))})
        beaten_by = better_classes(outputs, labels)
        return Judgement(
            {
                "loss": float(F.cross_entropy(widest(outputs), labels, reduction="sum")),
                "count": float(len(labels)),
                "top1": float((beaten_by < 1).sum()),
                "top5": float((beaten_by < TOP).sum()),
                "skipped": float(len(counts) - len(labels)),
            }
        )

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        sums = judgement.sums
        count = max(sums["count"], 1.0)
        metrics = {name: 100 * sums.get(name, 0.0) / count for name in ("top1", "top5")}
        metrics["loss"] = sums["loss"] / count
        if sums.get("skipped"):
            metrics["skipped"] = sums["skipped"]
        return metrics


def better_classes(outputs: Tensor, labels: Tensor) -> Tensor:
    """For each row how many classes come before the right one: of equals the lower number, and any with no number."""
    right = outputs.gather(1, labels[:, None])
    numbers = torch.arange(outputs.shape[1], device=outputs.device)
    before = (outputs == right) & (numbers < labels[:, None])
    return (~(outputs <= right) | before).sum(1)


def _check_classes(data: ImageData, files: Mapping[Part, ImageFiles], classes: Sequence[str], count: int) -> None:
    known = set(classes)
    for part, found in files.items():
        strange = [name for name in found.classes if name not in known]
        if strange:
            names = ", ".join(strange[:5]) + (" …" if len(strange) > 5 else "")
            raise DataError(
                f"{data.path}: {part} has {len(strange)} classes that train lacks: {names}",
                why="a model cannot tell apart what it was not trained on",
                fix="add them to train, or remove them",
            )
    if len(classes) != count:
        raise DataError(
            f"{data.path} has {len(classes)} classes, and model.classes = {count}",
            why="the model has an output for each class",
            fix=f"set --model.classes {len(classes)}",
        )
