"""Samples by their number, of a dataset of the user's own, and how they become a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

from paddock.data.loading.sampler import Shuffle
from paddock.errors import ConfigError, DataError
from paddock.models.own.model import NAMED
from paddock.plugins import PROGRAM, object_at


class OwnTraining:
    """Every sample once an epoch."""

    def __init__(self, dataset: Sequence[Any], seed: int, shuffle: bool) -> None:
        self._dataset, self._seed, self._shuffle = dataset, seed, shuffle
        self._order: Sequence[int] | Shuffle = range(0)
        self._epoch = -1

    @property
    def samples_per_epoch(self) -> float:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        epoch, place = divmod(index, len(self._dataset))
        if epoch != self._epoch:
            count = len(self._dataset)
            self._order = Shuffle(count, self._seed, epoch) if self._shuffle else range(count)
            self._epoch = epoch
        return self._dataset[self._order[place]]


class OwnHeldOut(Sequence[Any]):
    """Every sample, in the dataset's order."""

    def __init__(self, dataset: Sequence[Any]) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        if not 0 <= index < len(self):  # torch's datasets need not say where they end
            raise IndexError(index)
        return self._dataset[index]


def open_dataset(field: str, place: str) -> Sequence[Any]:
    """The dataset at a place, which has at least one sample that becomes a batch."""
    dataset = object_at(place) if place.startswith(PROGRAM) else _made(place)
    check_dataset(field, dataset)
    join_samples([dataset[0]], field)
    return dataset


def check_dataset(field: str, dataset: Any) -> None:
    """Raise ConfigError for what has no samples by their number."""
    if isinstance(dataset, Mapping) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ConfigError(
            f"{field} is of type {type(dataset).__name__}",
            why="samples are read by their number, in an order that every layout shares",
            fix="give a list of samples, or a dataset with __len__ and __getitem__; list(…) makes one of a stream",
        )
    if not len(dataset):
        raise DataError(f"{field} is empty")


def join_samples(samples: Sequence[Any], field: str = "a batch") -> dict[str, Tensor]:
    """One batch, as torch's DataLoader joins samples: entries of dictionaries go by name, others in order."""
    try:
        joined = default_collate(list(samples))
    except (RuntimeError, TypeError, KeyError) as error:
        raise DataError(
            f"{field}: the samples do not make a batch",
            why=str(error).splitlines()[0] if str(error) else type(error).__name__,
            fix="let the dataset give tensors of one size, and the same entries in every sample",
        ) from error
    if isinstance(joined, Mapping):
        batch = {f"{NAMED}{name}": value for name, value in joined.items()}
    else:
        several = joined if isinstance(joined, list | tuple) else [joined]
        batch = {str(number): value for number, value in enumerate(several)}
    wrong = next(((name, value) for name, value in batch.items() if not isinstance(value, Tensor)), None)
    if wrong is not None or not batch:
        what = "nothing" if wrong is None else f"{wrong[0].removeprefix(NAMED)} as {type(wrong[1]).__name__}"
        raise DataError(
            f"{field}: a batch has {what}",
            why="it is made of tensors, which the module's forward takes by name or in order",
            fix="let the dataset give tensors or numbers; one of Hugging Face's does after set_format('torch')",
        )
    return batch


@cache
def _made(place: str) -> Any:
    found = object_at(place)
    is_made = callable(found) and not hasattr(found, "__getitem__")
    made: Callable[[], Iterable[Any]] | Any = found
    return made() if is_made else found
