"""The data section of sequence to sequence."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from paddock.data.config import DataConfig
from paddock.errors import bad_value
from paddock.models.config import SampleShape

PARTS = ("train", "validation")


class SequencePairsData(DataConfig):
    """Pairs of texts: a source that the encoder reads, and the target that the decoder is to write."""

    source: Literal["jsonl", "tsv", "text", "synthetic"] = "jsonl"
    """jsonl: a JSON object a line; tsv: columns between tabs, their names in the first line; text: two files, whose
    lines belong together; synthetic: words that are to be written in the opposite order."""
    train: tuple[str, ...] | None = None
    """jsonl, tsv: the training file; text: that of the sources, and that of the targets."""
    validation: tuple[str, ...] | None = None
    """jsonl, tsv: the file to evaluate on; text: that of the sources, and that of the targets."""
    source_key: str = "source"
    """jsonl, tsv: the key or column of the source."""
    target_key: str = "target"
    """jsonl, tsv: the key or column of the target."""
    prefix: str = ""
    """What every source begins with, to tell the model what to do: "translate English to German: "."""
    sequence_length: int = Field(512, gt=1)
    """Tokens that the encoder reads: the prefix, the source and the end token."""
    target_length: int = Field(128, gt=1)
    """Tokens that the decoder writes: the target and the end token."""
    truncate: bool = False
    """Cut sources and targets that are longer, and say how many; without it they are an error."""
    padding: Literal["full", "longest"] = "full"
    """Training samples are filled up to sequence_length and target_length, or (faster, but not for pipelines) to the
    longest of their micro-batch. Evaluation and prediction take the longest, over sources of like length."""
    language: str = Field("en", pattern="^[a-z]{2,3}$")
    """That of the targets, by its ISO code: BLEU and ROUGE-L compare characters in zh and ja, words in others."""
    generate: Literal["never", "after_training", "always"] = "after_training"
    """When evaluations also let the model write (exact match, BLEU, ROUGE-L), which takes long: never; after_training,
    in `paddock evaluate`, where every process holds a whole model; always, also during training."""
    max_new_tokens: int | None = Field(None, gt=0)
    """Tokens of a target that the model writes, at most; None is target_length."""
    num_beams: int = Field(1, gt=0)
    """Targets that are followed at once where the model writes (beam search); 1 takes the likeliest token each time."""

    @field_validator(*PARTS, mode="before")
    @classmethod
    def _one_or_two(cls, files: Any) -> Any:
        return (files,) if isinstance(files, str) else files

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length, self.target_length)

    def describe(self) -> str:
        return " ".join([self.source, *(self.train or ()), *(self.validation or ())])

    def lacks_validation(self) -> str | None:
        return "data.validation names no file" if self.train is not None and self.validation is None else None

    @model_validator(mode="after")
    def _check(self) -> SequencePairsData:
        for name in PARTS:
            files: tuple[str, ...] | None = getattr(self, name)
            if files is None:
                continue
            if self.source == "synthetic":
                fix = f"set --data.source jsonl, tsv or text, or --data.{name} None"
                raise bad_value(f"data.{name}", " ".join(files), "data.source = synthetic would ignore it", fix)
            wanted = 2 if self.source == "text" else 1
            if len(files) != wanted:
                why = f"data.source = {self.source} reads {wanted} file{'s' if wanted > 1 else ''}"
                fix = "give the sources' file and the targets'" if wanted == 2 else "give one file"
                raise bad_value(f"data.{name}", " ".join(files), why, f"{fix}, or change --data.source")
        for name in ("source_key", "target_key"):
            default = type(self).model_fields[name].default
            if self.source in ("text", "synthetic") and getattr(self, name) != default:
                why = f"data.source = {self.source} has no keys or columns"
                raise bad_value(f"data.{name}", getattr(self, name), why, "leave it out")
        for name in ("max_new_tokens", "num_beams"):
            if self.generate == "never" and getattr(self, name) != type(self).model_fields[name].default:
                why = "data.generate = never: nothing is written, and it would be ignored"
                raise bad_value(f"data.{name}", getattr(self, name), why, "leave it out")
        if self.source_key == self.target_key:
            raise bad_value("data.target_key", self.target_key, "data.source_key is the same", "name another one")
        return self
