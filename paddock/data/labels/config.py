"""The data section of sequence classification."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paddock.data.config import DataConfig
from paddock.errors import bad_value
from paddock.models.config import SampleShape


class LabelledTextData(DataConfig):
    """Texts, or pairs of texts, each with a label."""

    source: Literal["jsonl", "tsv", "synthetic"] = "jsonl"
    """jsonl: a JSON object a line; tsv: columns between tabs, their names in the first line; synthetic: short texts
    that Paddock writes itself, of two labels."""
    train: str | None = None
    """jsonl, tsv: the training file."""
    validation: str | None = None
    """jsonl, tsv: the file to evaluate on."""
    text: str = "text"
    """The key or column of the text."""
    pair: str | None = None
    """The key or column of the second text; None where there is one only."""
    label: str = "label"
    """The key or column of the label: a word or a number."""
    sequence_length: int = Field(128, gt=3)
    """Tokens in a row; longer texts are cut, the longer of a pair first."""
    padding: Literal["full", "longest"] = "full"
    """Training rows are filled up to sequence_length, or (faster, but not for pipelines) to the longest of their
    micro-batch. Evaluation and prediction take the longest, over rows of like length."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length)

    def describe(self) -> str:
        return " ".join([self.source, *(part for part in (self.train, self.validation) if part is not None)])

    def lacks_validation(self) -> str | None:
        return "data.validation names no file" if self.train is not None and self.validation is None else None

    @model_validator(mode="after")
    def _check(self) -> LabelledTextData:
        for name in ("train", "validation", "pair"):
            if self.source == "synthetic" and getattr(self, name) is not None:
                raise bad_value(
                    f"data.{name}",
                    getattr(self, name),
                    "data.source = synthetic would ignore it",
                    f"set --data.source jsonl or tsv, or --data.{name} None",
                )
        return self
