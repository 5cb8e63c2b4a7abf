"""Training samples are a function of (seed, number): whoever reads them, and in whatever batches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from paddock.data.config import TokenizerConfig
from paddock.data.images.config import ImageData
from paddock.data.images.decode import decode
from paddock.data.images.samples import MOST_IN_A_ROW, EvaluationImages, TrainingImages
from paddock.data.images.transforms import training_transform
from paddock.data.loading.loader import StepLoader
from paddock.data.loading.sampler import Sampler
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.models.resnet.config import ResNetConfig
from paddock.tasks.image_classification import ImageClassification
from paddock.testing.samples.images import encoded, picture, write_folder

CLASSES = ("ant", "bee", "cat")
STEPS, BATCH = 5, 6
AUGMENTED = {"colour_jitter": 0.4, "mixup": 0.2, "cutmix": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("samples"), CLASSES, {"train": 5, "val": 2})


def task_of(path: Path, seed: int = 1, **values: object) -> ImageClassification:
    data = ImageData(path=str(path), image_size=16, **values)  # type: ignore[arg-type]
    model = ResNetConfig(arch="resnet18", classes=len(CLASSES))
    return ImageClassification.build(data, ImageClassification.prepare(data, TokenizerConfig(), model), model, seed)


def content(task: ImageClassification, index: int) -> bytes:
    batch = task.collate([task.training_samples()[index]])
    return batch["images"].numpy().tobytes() + batch["labels"].numpy().tobytes()


def epoch_of(samples: TrainingImages, number: int) -> list[bytes]:
    first = int(number * samples.samples_per_epoch)
    return [samples[index]["image"].tobytes() for index in range(first, first + int(samples.samples_per_epoch))]


@pytest.mark.parametrize(
    ("layout", "workers", "values"),
    [
        ((6, 1, 1), 0, {}),
        ((1, 2, 3), 0, {}),
        ((3, 2, 1), 0, AUGMENTED),
        ((1, 2, 3), 0, AUGMENTED),
        ((2, 1, 3), 0, AUGMENTED),
        ((3, 2, 1), 1, AUGMENTED),
        ((3, 1, 2), 2, AUGMENTED),
        ((1, 6, 1), 3, AUGMENTED),
    ],
)
def test_batches_are_the_same_in_every_layout(
    folder: Path, layout: tuple[int, int, int], workers: int, values: dict[str, float]
) -> None:
    """micro × accumulation × data is always the same batch, though pairs of images are torn apart."""
    micro, accumulation, size = layout
    task = task_of(folder, **values)
    expected = [content(task, index) for index in range(STEPS * BATCH)]
    found: dict[int, bytes] = {}
    for rank in range(size):
        sampler = Sampler(micro, accumulation, size, rank)
        with StepLoader(task.training_samples(), sampler, task.collate, 0, STEPS * BATCH, workers) as loader:
            for step in range(STEPS):
                parts = sampler.step(step * BATCH)
                for part, batch in zip(parts, loader.next_step(), strict=True):
                    for place, index in enumerate(part):
                        image, label = batch["images"][place].numpy(), batch["labels"][place].numpy()
                        found[index] = image.tobytes() + label.tobytes()
    assert [found[index] for index in range(STEPS * BATCH)] == expected


def test_an_epoch_has_every_image_once_and_in_another_order(folder: Path) -> None:
    task = task_of(folder, crop_scale=(1, 1), crop_ratio=(1, 1), flip=0)
    samples = task.training_samples()
    assert samples.samples_per_epoch == 15
    assert isinstance(samples, TrainingImages)
    epochs = [epoch_of(samples, number) for number in range(3)]
    assert len(set(epochs[0])) == 15
    assert set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epoch_of(task_of(folder, 2, crop_scale=(1, 1), crop_ratio=(1, 1), flip=0).training_samples(), 0) != epochs[0]


def test_every_epoch_sees_other_parts_of_an_image(folder: Path) -> None:
    samples = task_of(folder).training_samples()
    assert isinstance(samples, TrainingImages)
    assert not set(epoch_of(samples, 0)) & set(epoch_of(samples, 1))


def test_labels_belong_to_their_images(folder: Path) -> None:
    task = task_of(folder, crop_scale=(1, 1), crop_ratio=(1, 1), flip=0)
    samples = [task.training_samples()[index] for index in range(15)]
    by_image = {sample["image"].tobytes(): sample["label"] for sample in samples}
    assert Counter(by_image.values()) == {0: 5, 1: 5, 2: 5}
    data = ImageData(path="it", image_size=16, crop_scale=(1, 1), crop_ratio=(1, 1), flip=0)
    for number, name in enumerate(CLASSES):
        pixels = decode((folder / "train" / name / "3.jpg").read_bytes(), "it")
        assert by_image[training_transform(pixels, data, np.random.default_rng()).tobytes()] == number


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_a_blend_is_of_two_neighbours(folder: Path, kind: str) -> None:
    plain, mixed = (task_of(folder, **values).training_samples() for values in ({}, {kind: 1.0}))
    shares = []
    for index in range(0, 30, 2):
        pair = [plain[index], plain[index + 1]]
        for one, other, sample in ((*pair, mixed[index]), (*pair[::-1], mixed[index + 1])):
            share = sample["share"]
            assert (sample["label"], sample["other"]) == (one["label"], other["label"])
            first, second = one["image"].astype(float), other["image"].astype(float)
            if kind == "mixup":
                assert np.abs(sample["image"] - (share * first + (1 - share) * second)).max() <= 0.51
            else:
                from_second = (sample["image"] == second).all(-1)
                assert ((sample["image"] == first).all(-1) | from_second).all()
                assert from_second.mean() == pytest.approx(1 - share, abs=0.02)
            shares.append(share)
    assert 0.3 < np.mean(shares) < 0.7 and np.std(shares) > 0.1


def test_with_both_each_comes_half_of_the_time(folder: Path) -> None:
    plain, mixed = (task_of(folder, **values).training_samples() for values in ({}, {"mixup": 1.0, "cutmix": 1.0}))
    cut = [bool((mixed[index]["image"] == plain[index]["image"]).all(-1).mean() > 0.1) for index in range(0, 300, 2)]
    assert 0.25 < np.mean(cut) < 0.65


def test_soft_labels_say_how_much_of_each_class(folder: Path) -> None:
    task = task_of(folder, mixup=1.0)
    samples = [task.training_samples()[index] for index in range(8)]
    batch = task.collate(samples)
    assert batch["labels"].shape == (8, 3) and task.count(batch) == 8
    torch.testing.assert_close(batch["labels"].sum(1), torch.ones(8))
    for row, sample in zip(batch["labels"].tolist(), samples, strict=True):
        expected = [0.0] * 3
        expected[sample["label"]] += sample["share"]
        expected[sample["other"]] += 1 - sample["share"]
        assert row == pytest.approx(expected)


def test_a_pair_is_read_once_when_both_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = task_of(folder, mixup=1.0).training_samples()
    seen: list[int] = []
    real = TrainingImages._augmented
    monkeypatch.setattr(TrainingImages, "_augmented", lambda self, index: (seen.append(index), real(self, index))[1])
    for index in range(6):
        samples[index]
    assert seen == [0, 1, 2, 3, 4, 5]


def broken(root: Path, *names: str) -> Path:
    """A folder in which these images are broken."""
    write_folder(root, CLASSES, {"train": 5, "val": 2})
    for name in names:
        spoilt_by_text(root / name)
    return root


def spoilt_by_text(path: Path) -> None:
    path.write_text("this is no photograph")


def cut_short(path: Path) -> None:
    path.write_bytes(encoded(picture(0, 300, 200))[:2000])


@pytest.mark.parametrize("spoil", [spoilt_by_text, cut_short, Path.unlink])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_read_stops_the_run(
    tmp_path: Path, spoil: Callable[[Path], None], workers: int
) -> None:
    task = task_of(write_folder(tmp_path / "it", CLASSES, {"train": 5, "val": 2}))
    path = tmp_path / "it" / "train" / "bee" / "2.jpg"
    samples = task.training_samples()
    times = path.parent.stat()
    spoil(path)
    os.utime(path.parent, ns=(times.st_atime_ns, times.st_mtime_ns))  # the index still has it
    with (
        pytest.raises(DataError, match="train/bee/2.jpg cannot be read"),
        StepLoader(samples, Sampler(5, 1, 1, 0), task.collate, 0, 15, workers) as loader,
    ):
        for _ in range(3):
            loader.next_step()


def test_a_skipped_image_is_replaced_and_the_others_stay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = task_of(write_folder(tmp_path / "whole", CLASSES, {"train": 5, "val": 2}), on_error="skip")
    root = broken(tmp_path / "broken", "train/ant/4.jpg", "train/bee/0.jpg")
    task = task_of(root, on_error="skip")
    same = [content(whole, index) == content(task, index) for index in range(30)]
    assert same.count(False) == 4, "two images, in two epochs"
    samples = [task.training_samples()[index] for index in range(15)]
    assert Counter(sample["label"] for sample in samples) == {0: 4, 1: 6, 2: 5}, "bee/1 stands for both"
    told = capfd.readouterr().err
    assert "ant/4.jpg: this is not an image" in told and "bee/0.jpg" in told


def test_what_is_skipped_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = broken(tmp_path, "train/ant/4.jpg")
    samples = task_of(root, on_error="skip").training_samples()
    for index in range(60):
        samples[index]
    assert capfd.readouterr().err.count("skipped ") == 1


def test_evaluation_leaves_a_broken_image_out(tmp_path: Path) -> None:
    root = broken(tmp_path, "val/bee/1.jpg")
    samples = task_of(root, on_error="skip").validation_samples()
    assert isinstance(samples, EvaluationImages)
    assert sorted(sample["label"] for sample in samples) == [IGNORED, 0, 0, 1, 2, 2]
    with pytest.raises(DataError, match="val/bee/1.jpg"):
        list(task_of(root).validation_samples())


def test_when_all_is_broken_skipping_ends(tmp_path: Path) -> None:
    names = [f"train/{name}/{number}.jpg" for name in CLASSES for number in range(5)]
    root = broken(tmp_path, *names)
    with pytest.raises(DataError, match=f"{MOST_IN_A_ROW} images in a row"):
        task_of(root, on_error="skip").training_samples()[0]
