"""What a device computed of one training step, in one small file: made on one machine, compared on another.

A tensor is kept as its norm and as a sketch: its numbers, each with a sign that follows from its place, summed into a
few dozen. The sketches of two tensors are about as far apart as the tensors are (within a few tenths of that), whatever
their size; so an error that is many times what it may be shows, and the file has a kilobyte or two a tensor. A tensor
that holds what is no number is near to none, not even to itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, ConfigDict, Field
from torch import Tensor

from paddock.alignment.layers.closeness import Distance, norm
from paddock.alignment.layers.comparison import Compared, Direction
from paddock.documents import Document, read_document
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write
from paddock.versions import versions

SUMS = 64
"""Numbers of a sketch."""
PERIOD = 1 << 16
"""After so many numbers the signs come again, all of them turned or none."""
FORMAT = 2
"""Records of format 1 have no checksum."""
MAX_BYTES = 64_000_000


def _number(value: Any) -> Any:
    """JSON has no words for what is no number or infinite: they are texts. Older records have null for all of them."""
    words = {None: math.nan, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return words.get(value, value) if value is None or isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_number)]


class Entry(Document):
    """One tensor of a part."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    part: str
    direction: Direction
    tensor: str
    shape: list[int]
    norm: Number
    sketch: list[Number] = Field(min_length=SUMS, max_length=SUMS)
    allowed: Number
    """How far, relative to its norm, another device may be from it."""


class Record(Document):
    """A device's training step."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    format: int
    recipe: dict[str, Any]
    device: str
    number_type: str
    versions: dict[str, str]
    entries: list[Entry] = Field(min_length=1)
    checksum: str = ""
    """Of all the rest: a digit that was changed would be another number."""

    def sum_up(self) -> str:
        """What its checksum should be."""
        return sha256(self.model_dump_json(exclude={"checksum"}).encode()).hexdigest()

    def write(self, path: Path) -> None:
        with atomic_write(path) as stream:
            stream.write(self.model_copy(update={"checksum": self.sum_up()}).model_dump_json())


class Recorder:
    """Hears of the tensors that a device computes."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def hear(self, compared: Compared, tensor: Tensor) -> None:
        values = tensor.detach().to("cpu", torch.float32)
        self._entries.append(
            Entry(
                part=compared.part,
                direction=compared.direction,
                tensor=compared.tensor,
                shape=list(tensor.shape),
                norm=norm(values),
                sketch=sketch(values).tolist(),
                allowed=compared.allowed.whole,
            )
        )

    def record(self, recipe: dict[str, Any], device: str, number_type: str) -> Record:
        """What was heard, of a recipe; on which device its training is said to run does not matter."""
        kept = {**recipe, "train": {**recipe["train"], "device": "auto"}}
        return Record(
            format=FORMAT,
            recipe=kept,
            device=device,
            number_type=number_type,
            versions={name: str(value) for name, value in versions().items()},
            entries=self._entries,
        )


def read_record(path: Path) -> Record:
    """What `write` wrote, here or by an earlier version."""
    fix = "paddock align record RECIPE --output FILE makes one"
    record = read_document(path, Record, fix=fix, max_bytes=MAX_BYTES)
    if not 1 <= record.format <= FORMAT:
        raise DataError(f"{path} is a record of format {record.format}", why=f"known are 1 to {FORMAT}", fix=fix)
    if record.format > 1 and record.checksum != record.sum_up():
        raise DataError(f"{path} is damaged", why="its checksum is another one", fix="copy it again, or record again")
    return record


def sketch(values: Tensor) -> Tensor:
    """A few sums of a tensor's numbers, in float64; the same signs whatever machine draws them."""
    pieces = values.reshape(-1).split(PERIOD)
    folded = torch.zeros(PERIOD, dtype=torch.float64)
    for piece, turned in zip(pieces, _signs(len(pieces), 2).tolist(), strict=True):
        folded[: piece.numel()].add_(piece, alpha=turned)
    return (folded * _signs(PERIOD, 1)).view(-1, SUMS).sum(dim=0)


def _signs(count: int, seed: int) -> Tensor:
    return torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(seed)) * 2 - 1


def compare_records(found: Record, reference: Record) -> list[Compared]:
    """Every tensor of a record beside that of another; what one of them lacks is infinitely far away."""
    if found.recipe != reference.recipe:
        differing = sorted(_differences(found.recipe, reference.recipe))
        raise ConfigError(
            f"the records are of different recipes: {', '.join(differing[:5])}",
            why="other weights and other samples give other numbers",
            fix="record both with the same recipe and flags",
        )
    ours, theirs = ({(one.part, one.tensor): one for one in record.entries} for record in (reference, found))
    alone = [_compare(one, None) for place, one in theirs.items() if place not in ours]
    return [*(_compare(one, theirs.get(place)) for place, one in ours.items()), *alone]


def _compare(reference: Entry, found: Entry | None) -> Compared:
    apart = float("inf")
    if found is not None and found.shape == reference.shape:
        there, here = (torch.tensor(one.sketch, dtype=torch.float64) for one in (found, reference))
        size = norm(there - here)
        if math.isfinite(size):
            apart = 0.0 if size == 0 else size / reference.norm if reference.norm else float("inf")
    allowed = max(reference.allowed, 0.0 if found is None else found.allowed)
    worst = float("inf")  # which a sketch does not know
    return Compared(
        reference.part, reference.direction, reference.tensor, Distance(apart, 0.0), Distance(allowed, worst)
    )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], before: str = "") -> Iterable[str]:
    for name in one.keys() | other.keys():
        a, b = one.get(name), other.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{before}{name}.")
        elif a != b:
            yield f"{before}{name}"
