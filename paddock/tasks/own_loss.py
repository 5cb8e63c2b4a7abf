"""A module of the user's own, which computes its loss itself, on the user's own dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.own.config import OwnData
from paddock.data.own.samples import OwnHeldOut, OwnTraining, join_samples, open_dataset
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.own.model import num_samples
from paddock.tasks.task import HELD_OUT_DATA, TRAINING_DATA, Batch, Goal, Judgement, Sample, Samples, Task


@dataclass(frozen=True)
class PreparedOwn:
    """The datasets that are there."""

    train: Sequence[Any] | None
    validation: Sequence[Any] | None
    tokenizer: None = None
    classes: tuple[str, ...] = ()


class OwnLoss(Task):
    """Whatever the module's loss says. It is taken for a mean over the samples of its batch."""

    measures: ClassVar[Mapping[str, Goal]] = {"loss": "MINIMIZE"}
    judges_outputs: ClassVar[bool] = False
    recipe_is_whole: ClassVar[bool] = False
    next_command: ClassVar[str] = "report {run}"

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> PreparedOwn:
        assert isinstance(data, OwnData)
        places = {"data.train": data.train, "data.validation": data.validation}
        train, validation = (None if place is None else open_dataset(field, place) for field, place in places.items())
        return PreparedOwn(train, validation)

    @classmethod
    def build(cls, data: DataConfig, prepared: PreparedOwn, model: ModelConfig, seed: int) -> OwnLoss:
        assert isinstance(data, OwnData)
        return cls(data, prepared, seed)

    def __init__(self, data: OwnData, prepared: PreparedOwn, seed: int) -> None:
        self._data, self._prepared, self._seed = data, prepared, seed

    def training_samples(self) -> Samples:
        assert self._prepared.train is not None, "the recipe's rules ask for it"
        return OwnTraining(self._prepared.train, self._seed, self._data.shuffle)

    def fingerprint(self) -> dict[str, int | str]:
        """How many samples there are. Nothing of what they say: a dataset of a program's own may give others each time
        that it is asked."""
        samples = self._prepared.train or ()
        return {"data.shuffle": str(self._data.shuffle), TRAINING_DATA: f"{len(samples)} samples"}

    def held_out_fingerprint(self) -> dict[str, int | str]:
        return {HELD_OUT_DATA: f"{len(self.validation_samples())} samples"}

    def validation_samples(self) -> Sequence[Sample]:
        return OwnHeldOut(self._prepared.validation or ())

    def collate(self, samples: list[Sample]) -> Batch:
        return join_samples(samples)

    def sample_shape(self, batch: Batch) -> SampleShape:
        return self._data.sample_shape()

    def num_tokens(self, batch: Batch) -> int:
        return 0

    def count(self, batch: Batch) -> int:
        return num_samples(batch)

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        return {"loss": judgement.sums["loss"] / max(judgement.sums["count"], 1.0)}
