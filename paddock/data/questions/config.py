"""The data section of question answering."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paddock.data.config import DataConfig
from paddock.errors import ConfigError, bad_value
from paddock.models.config import SampleShape

SPECIAL = 3
"""Tokens of a row that are no text: [CLS] question [SEP] context [SEP]."""


class QuestionAnsweringData(DataConfig):
    """Questions about texts, with the answers' places in them, and how they are cut into rows of tokens."""

    source: Literal["squad", "synthetic"] = "squad"
    """squad: JSON files in SQuAD's form, v1.1 or v2.0; synthetic: short texts that Paddock writes itself."""
    path: str | None = None
    """squad: a folder with train-v1.1.json and dev-v1.1.json (v2.0 with data.unanswerable), or one train*.json and
    one dev*.json or val*.json of any name."""
    train: str | None = None
    """squad: the training file, or a folder as above; None is data.path."""
    validation: str | None = None
    """squad: the file to evaluate on, or a folder as above; None is data.path."""
    sequence_length: int = Field(384, gt=0)
    """Tokens in a row: the question and a window of its context."""
    stride: int = Field(128, ge=0)
    """Tokens that neighbouring windows of a long context share."""
    question_length: int = Field(64, gt=0)
    """Tokens of a question; what is longer is cut off."""
    answer_length: int = Field(30, gt=0)
    """Tokens of an answer, at most."""
    n_best: int = Field(20, gt=0)
    """Candidates among which an answer's score is its probability."""
    unanswerable: bool = False
    """Some questions have no answer in their context (SQuAD v2.0)."""
    null_threshold: float = 0.0
    """unanswerable: how much better than the best answer "no answer" must be before it is given."""
    padding: Literal["full", "longest"] = "full"
    """Training rows are filled up to sequence_length, or (faster, but not for pipelines) to the longest of their
    micro-batch. Evaluation and prediction take the longest, over rows of like length."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do about a question that cannot be used: stop with an error, or leave it out and say how many."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length)

    def describe(self) -> str:
        named = [part for part in (self.train, self.validation) if part is not None]
        return " ".join([self.source, *([self.path] if self.path else []), *named])

    def lacks_validation(self) -> str | None:
        only_training = self.train is not None and self.path is None and self.validation is None
        return "neither data.validation nor data.path names a file" if only_training else None

    @model_validator(mode="after")
    def _check(self) -> QuestionAnsweringData:
        if self.source != "squad":
            for name in ("path", "train", "validation"):
                if getattr(self, name) is not None:
                    raise bad_value(
                        f"data.{name}",
                        getattr(self, name),
                        f"data.source = {self.source} would ignore it",
                        f"set --data.source squad to read it, or --data.{name} None",
                    )
        room = self.sequence_length - self.question_length - SPECIAL
        if room <= self.stride:
            raise ConfigError(
                f"data.sequence_length = {self.sequence_length} with data.stride = {self.stride}",
                why=f"a question of {self.question_length} tokens leaves {room} for the context, and a window must "
                f"reach further than the {self.stride} that it shares with the one before",
                fix=f"set --data.sequence-length {self.question_length + SPECIAL + 2 * self.stride + 1}, or a smaller "
                "--data.stride or --data.question-length",
            )
        if self.null_threshold and not self.unanswerable:
            raise bad_value(
                "data.null_threshold",
                self.null_threshold,
                "every question has an answer, so nothing would look at it",
                "set --data.unanswerable true, or leave it out",
            )
        return self
