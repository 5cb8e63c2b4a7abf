"""What joins a model, a dataset, a loss and a metric. The training loop knows tasks, not models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

from torch import Tensor

from paddock.data.config import DataConfig, Part, TokenizerConfig
from paddock.data.tokenizers.interface import Tokenizer
from paddock.models.config import ModelConfig, SampleShape

Batch = dict[str, Tensor]
Sample = dict[str, Any]
Goal = Literal["MINIMIZE", "MAXIMIZE"]

INDEX = "index"
"""The entry of an evaluation's batch that numbers its samples, for `judge`; a model never sees it."""


TRAINING_DATA = "training data"
"""The entry of a fingerprint about the training data; of corpora and images, about how much there is."""
HELD_OUT_DATA = "held-out data"
"""The same of the validation data."""


class Samples(Protocol):
    """Training samples by their number, without end."""

    @property
    def samples_per_epoch(self) -> float: ...

    def __getitem__(self, index: int) -> Sample: ...


class Prepared(Protocol):
    """Data that is ready to be read on this machine. Each task adds what it reads."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    @property
    def classes(self) -> Sequence[str]:
        """The names of what is told apart, by their number; none where nothing is."""


@dataclass
class Judgement:
    """What an evaluation found: plain values, so that it can travel between processes and be added up."""

    sums: dict[str, float] = field(default_factory=dict)
    records: list[Any] = field(default_factory=list)
    """What cannot be summed, a few values a sample."""

    def add(self, other: Judgement) -> None:
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.records += other.records


@dataclass(frozen=True)
class Writing:
    """What an evaluation needs to let the model write for itself, and to compare that with what is right."""

    source: Callable[[int], list[int]]
    """The tokens that the model reads of a sample, by its number."""
    reference: Callable[[int], str]
    """What is right."""
    decode: Callable[[list[int]], str]
    """The text that tokens stand for."""
    language: str
    stop_token: int
    max_new_tokens: int
    num_beams: int


class Task(Protocol):
    """One kind of work that models are trained for."""

    measures: ClassVar[Mapping[str, Goal]]
    """What an evaluation reports. The first decides which checkpoint is the best."""
    judges_outputs: ClassVar[bool]
    """Whether an evaluation looks at what the model puts out (`judge`), or at the loss alone."""
    judges_labels: ClassVar[bool] = False
    """Whether that is said of the labels alone, their log probabilities and the likeliest tokens in their places,
    instead of the scores of all tokens, which take much memory."""
    tells_missed: ClassVar[bool] = False
    """Whether an evaluation can list the samples that the model got wrong (`missed`)."""
    reads_tokens: ClassVar[bool] = True
    """Whether the size of a sample is a number of tokens."""
    recipe_is_whole: ClassVar[bool] = True
    """Whether a run's recipe is all that it needs: not where a program brings code."""
    next_command: ClassVar[str]
    """What to try with a trained model: words behind `paddock`, with {run} for its directory."""

    @classmethod
    def prepare(cls, data: DataConfig, tokenizer: TokenizerConfig, model: ModelConfig) -> Prepared:
        """Find or build what the task reads, and check that it fits the model. What takes long is kept on disk: one
        process does it before the others begin, and they find it."""

    @classmethod
    def build(cls, data: DataConfig, prepared: Any, model: ModelConfig, seed: int) -> Self:
        """The task, over data that is ready."""

    def training_samples(self) -> Samples: ...

    def fingerprint(self) -> Mapping[str, int | str]:
        """What decides, besides the seed, which training sample a number stands for: recipe fields by their name, and
        `training data`, a line about the content. The same on every machine and in every layout; cheap to have."""
        return {TRAINING_DATA: f"{self.training_samples().samples_per_epoch:g} samples an epoch"}

    def held_out_fingerprint(self) -> Mapping[str, int | str]:
        """What decides what an evaluation measures: the same, for the validation samples, as `held-out data`."""
        return {HELD_OUT_DATA: f"{len(self.validation_samples())} samples"}

    def validation_samples(self) -> Sequence[Sample]:
        """In their own order. Where the sequence has `lengths`, batches are made of samples of like length; where it
        has `tokens_at_once` too, of as many as have at most so many tokens together, filled up."""

    def held_out_samples(self, part: Part, stride: int | None) -> Sequence[Sample]:
        """What `paddock evaluate` measures on: `evaluate.split` and `evaluate.stride`, as far as the data section says
        that it has parts and windows."""
        return self.validation_samples()

    def notes(self) -> Sequence[str]:
        """What a user should know of the samples that were asked for: what was left out, and the like."""
        return ()

    def collate(self, samples: list[Sample]) -> Batch:
        """Samples as one batch of tensors, on the host. `labels` are among them; IGNORED is one that does not count."""

    def skipped(self, batch: Batch) -> Sequence[int]:
        """The numbers of what could not be read, in whose place this training batch has others."""
        return ()

    def sample_shape(self, batch: Batch) -> SampleShape:
        """How large each sample of this batch is, filled up."""
        return SampleShape(batch["tokens"].shape[1])

    def num_tokens(self, batch: Batch) -> int:
        """How many tokens the model reads of this batch, filled up; 0 where it reads none."""
        return batch["tokens"].numel()

    def transform_on_device(self, batch: Batch) -> Batch:
        """The batch as the model takes it, made on the device that computes: what would make it larger on its way."""
        return batch

    def count(self, batch: Batch) -> int:
        """How many terms the model's loss sums over in this batch."""

    def judge(self, batch: Batch, outputs: Tensor) -> Judgement:
        """What to say of a batch, given what the model put out for it: `loss` and `count` are among the sums."""

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        """What to report of an evaluation: the `measures`, `loss` among them."""

    def missed(self, judgement: Judgement) -> Iterable[Mapping[str, Any]]:
        """Every sample that the model got wrong, as plain values for people to look at, in the order of the data."""
        return ()

    def writing(self, during_training: bool) -> Writing | None:
        """How the model writes in evaluations, of validation samples by their numbers; None where it does not."""
        return None

    def summary(self, metrics: Mapping[str, float]) -> str | None:
        """A line that people of this task expect to see after an evaluation."""
        return None
