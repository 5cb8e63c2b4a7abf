"""The data sections of what language models are measured by, and never trained for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paddock.data.config import DataConfig
from paddock.models.config import SampleShape


class TextData(DataConfig):
    """A text, whose perplexity is measured."""

    source: Literal["text"] = "text"
    """text: a file of UTF-8, read as one text from its first character to its last."""
    path: str | None = None
    """The file. --text is the same."""
    sequence_length: int = Field(1024, gt=0)
    """Tokens in a window: the model's context, unless told otherwise."""

    def slides(self) -> bool:
        return True

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length)

    def describe(self) -> str:
        return str(self.path)


class LambadaData(DataConfig):
    """LAMBADA: passages whose last word is to be found."""

    source: Literal["jsonl", "lines"] = "jsonl"
    """jsonl: a JSON object {"text": …} a line, as lambada_openai and lambada_standard come; lines: a passage a line,
    as in LAMBADA's own archive."""
    path: str | None = None
    """The file. --lambada is the same."""
    form: Literal["strict", "last_token", "harness"] = "strict"
    """strict: the last word, behind any white space, is found if greedy decoding gives all of its tokens: so count
    OneFlow-GPT and Megatron-LM (--strict-lambada); last_token: the last token of the text alone, as Megatron-LM counts
    without it; harness: all behind the last blank, as lm-eval counts (another target than strict's where a line break
    stands before the last word)."""
    sequence_length: int = Field(1024, gt=0)
    """Tokens that the model reads, at most: the model's context, unless told otherwise. Longer passages lose their
    beginning, and are counted."""
    tokens_at_once: int = Field(8192, gt=0)
    """Tokens that go through a process together, filled up: passages of like length are. It bounds memory."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length)

    def describe(self) -> str:
        return f"{self.path}, {self.form.replace('_', '-')} form"
