"""What `paddock predict` and the Trainer ask of a trained model, whatever its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from paddock.data.config import DataConfig
from paddock.data.tokenizers.interface import Tokenizer
from paddock.errors import ConfigError
from paddock.models.model import Model
from paddock.tasks.registry import predicting_tasks, predictor_class

Answer = dict[str, Any]
"""Plain values under their names, e.g. text, score, start and end; or label and score."""
OnBatch = Callable[[int, int], None]
"""Called with the number of batches that are done, and of all."""


@dataclass(frozen=True)
class PredictorSetup:
    """A trained model, and what else a predictor works with."""

    model: Model
    tokenizer: Tokenizer | None
    classes: Sequence[str]
    """The names of what the model tells apart, by their number; empty where nobody wrote them down."""
    data: DataConfig
    """The data section of the run's recipe; of a plain folder of weights, the task's defaults."""
    device: torch.device
    batch: int
    """Samples that go through the model at once."""
    origin: Path
    """Where the model was found, for messages."""
    skip_unreadable: bool = False
    """Whether files that cannot be read are left out; else they are an error."""


class Predictor(Protocol):
    """Turns what users give into queries, and queries into answers."""

    suffixes: ClassVar[tuple[str, ...]]
    """Of files that are an input each (.jpg …), so that a folder of them is many; empty where inputs are text."""

    default_top_k: ClassVar[int]
    """How many answers to give where nobody says it."""

    def __init__(self, setup: PredictorSetup) -> None: ...

    def query(self, value: Any, where: str) -> Any:
        """One input: a string, a dictionary (from flags or a JSON line) or, with `suffixes`, a file's path.

        `where` says where it stands, for the DataError about one that cannot be used."""

    def predict(
        self, queries: Sequence[Any], top_k: int, on_batch: OnBatch | None = None
    ) -> Sequence[list[Answer] | None]:
        """For each query its answers, at most `top_k`, the best first; None for one that was left out."""

    def show(self, name: str, answers: Sequence[Answer]) -> str:
        """The answers to one query, for people; `name` is the query's id or file."""


def predictor_of(task: str, setup: PredictorSetup) -> Predictor:
    """The task's predictor over a trained model."""
    found: type[Predictor] | None = predictor_class(task)
    if found is None:
        generate = f"paddock generate {setup.origin} continues text"
        choices = ", ".join(predicting_tasks())
        raise ConfigError(
            f"{setup.origin} was trained for {task}, which predicts nothing of your input",
            fix=generate if task == "language_modeling" else f"take a model that was trained for {choices}",
        )
    return found(setup)
