"""Reading training images: how fast they come, and how fast a million file names do.

The photographs are made up in a scratch folder: noise with a photograph's spectrum, 500 × 375 pixels and 110 kB each,
as ImageNet's are. The peer is what everybody's ImageNet training does, in Pillow and torch: open, random resized crop
to 224, flip, to a tensor, normalise, stack. Every measurement is a process of its own, on one core but for the
workers; the figure is the best of the rounds. Run: python benchmarks/image_reading.py [--rounds 3] [--files 1281167]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from comparison import best_rounds
from report import keep

IMAGES, WIDTH, HEIGHT, QUALITY = 256, 500, 375, 92
BATCH, BATCHES, SIZE = 64, 8, 224
CLASSES = 1000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1_281_167, help="of the folder that is listed")
    parser.add_argument("--scratch", type=Path, default=None, help="a folder with room for as many empty files")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments.folder)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as name:
        folder = Path(name)
        make_photographs(folder / "photographs" / "train" / "noise")
        make_files(folder / "many" / "train", arguments.files)
        best = best_rounds(__file__, CHILDREN, folder, arguments.rounds)
    report(best, arguments.files)


def make_photographs(folder: Path) -> None:
    """Noise whose strength falls with its frequency, the three colours mostly alike."""
    from PIL import Image

    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
    frequency[0, 0] = 1

    def noise(fall: float) -> np.ndarray:
        phases = np.exp(2j * np.pi * generator.random(frequency.shape))
        plane = np.fft.irfft2(phases / frequency**fall, s=(HEIGHT, WIDTH))
        return plane / plane.std()

    for number in range(IMAGES):
        grey = noise(1.1)
        colours = np.stack([grey + 0.3 * noise(1.6) for _ in range(3)], axis=-1)
        pixels = np.clip(colours * 50 + 120, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.jpg", quality=QUALITY)


def make_files(folder: Path, count: int) -> None:
    """Empty files with ImageNet's names."""
    for number in range(CLASSES):
        name = folder / f"n{number:08}"
        name.mkdir(parents=True)
        for index in range(count * number // CLASSES, count * (number + 1) // CLASSES):
            (name / f"n{number:08}_{index}.JPEG").touch()


def usual(folder: Path) -> dict[str, float]:
    """The peer."""
    import torch
    from PIL import Image

    paths = sorted((folder / "photographs").rglob("*.jpg"))
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    generator = random.Random(0)

    def crop() -> tuple[int, int, int, int]:
        for _ in range(10):
            area = WIDTH * HEIGHT * generator.uniform(0.08, 1)
            ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width <= WIDTH and height <= HEIGHT:
                left, top = generator.randint(0, WIDTH - width), generator.randint(0, HEIGHT - height)
                return left, top, left + width, top + height
        return 62, 0, 437, 375

    def read(path: Path) -> torch.Tensor:
        with open(path, "rb") as stream:
            image = Image.open(stream).convert("RGB")
        image = image.crop(crop()).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return tensor.sub_(mean).div_(std)

    def batches() -> Iterator[object]:
        while True:
            yield torch.stack([read(path) for path in generator.choices(paths, k=BATCH)])

    return {"usual_per_second": rate(batches().__next__)}


def paddock(folder: Path) -> dict[str, float]:
    from paddock.data.loading.workers import BatchReader

    task = make_task(folder / "photographs")
    reader = BatchReader(task.training_samples(), task.collate)
    numbers = iter(range(10**9))

    def read() -> object:
        first = next(numbers) * BATCH
        return task.transform_on_device(reader[range(first, first + BATCH)])

    return {"paddock_per_second": rate(read)}


def workers(folder: Path) -> dict[str, float]:
    """What the loader delivers with one and with two processes; making numbers of it is the device's work."""
    from paddock.data.loading.loader import StepLoader
    from paddock.data.loading.sampler import Sampler

    task, found = make_task(folder / "photographs"), {}
    for count in (1, 2):
        end = BATCH * 10**6
        with StepLoader(task.training_samples(), Sampler(BATCH, 1, 1, 0), task.collate, 0, end, count) as loader:
            for _ in range(4 * count):  # until all that is read ahead has been used up
                loader.next_step()
            found[f"workers_{count}_per_second"] = rate(loader.next_step)
    return found


def rate(read: Callable[[], object]) -> float:
    """Images a second."""
    read()
    started = time.perf_counter()
    for _ in range(BATCHES):
        read()
    return BATCH * BATCHES / (time.perf_counter() - started)


def index(folder: Path) -> dict[str, float]:
    """Listing the many files the first time, and opening the list after that."""
    from paddock.data.images.folder import FolderImages

    def seconds() -> float:
        started = time.perf_counter()
        images = FolderImages(folder / "many" / "train", folder / "cache")
        images.name(len(images) - 1)
        return time.perf_counter() - started

    first = seconds()
    return {"first_seconds": first, "open_seconds": seconds()}


def make_task(folder: Path) -> object:
    from paddock.data.config import TokenizerConfig
    from paddock.data.images.config import ImageData
    from paddock.models.resnet.config import ResNetConfig
    from paddock.tasks.image_classification import ImageClassification

    data, model = ImageData(path=str(folder), cache=str(folder / "cache")), ResNetConfig(classes=1)
    return ImageClassification.build(data, ImageClassification.prepare(data, TokenizerConfig(), model), model, 1)


def report(best: dict[str, float], files: int) -> None:
    rows = [
        ("usual Pillow pipeline, images/s", best["usual_per_second"], ""),
        ("paddock, images/s", best["paddock_per_second"], ""),
        ("paddock ÷ usual", best["paddock_per_second"] / best["usual_per_second"], "≥ 1.5"),
        ("one worker, images/s", best["workers_1_per_second"], ""),
        ("two workers, images/s", best["workers_2_per_second"], ""),
        ("two workers ÷ one", best["workers_2_per_second"] / best["workers_1_per_second"], "≥ 1.8"),
        (f"opening an index of {files} files, s", best["open_seconds"], "≤ 2"),
    ]
    keep(__file__, rows)


CHILDREN: dict[str, Callable[[Path], dict[str, float]]] = {
    "usual": usual,
    "paddock": paddock,
    "workers": workers,
    "index": index,
}

if __name__ == "__main__":
    main()
