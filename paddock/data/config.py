"""Where the training data and the tokenizer come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paddock.errors import ConfigError, bad_value
from paddock.schema import ConfigModel


class DataConfig(ConfigModel):
    """The corpus, and how it is cut into samples."""

    source: Literal["indexed", "embedded", "synthetic"] = "indexed"
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; embedded: the Python language reference
    that every CPython carries; synthetic: random tokens."""
    path: str | None = None
    """indexed: the files' prefix, without .bin."""
    split: tuple[float, float, float] = (949, 50, 1)
    """Weights of the training, validation and test parts, over documents."""
    sequence_length: int = Field(1024, gt=0)
    """Tokens in a sample."""
    cache: str | None = None
    """Where prepared data is kept; None is $XDG_CACHE_HOME/paddock or ~/.cache/paddock."""

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        if min(self.split) < 0 or sum(self.split) <= 0:
            raise bad_value("data.split", self.split, "the weights must not be negative, nor all zero")
        if self.source != "indexed" and self.path is not None:
            raise bad_value(
                "data.path",
                self.path,
                f"data.source = {self.source} would ignore it",
                "set --data.source indexed to read that path, or --data.path None",
            )
        return self


class TokenizerConfig(ConfigModel):
    """How text becomes token ids."""

    kind: Literal["none", "trained", "gpt2", "file"] = "none"
    """none: the data is already tokens; trained: a byte-level BPE learned from the corpus; gpt2: vocab and
    merges files; file: a tokenizer.json."""
    vocab: str | None = None
    """gpt2: the vocab.json."""
    merges: str | None = None
    """gpt2: the merges.txt."""
    path: str | None = None
    """file: the tokenizer.json."""
    end_of_text: str = "<|endoftext|>"
    """The token that ends a document."""

    @model_validator(mode="after")
    def _check(self) -> TokenizerConfig:
        needs = {"gpt2": ("vocab", "merges"), "file": ("path",)}.get(self.kind, ())
        for name in ("vocab", "merges", "path"):
            value = getattr(self, name)
            if name in needs and value is None:
                raise ConfigError(
                    f"tokenizer.kind = {self.kind} needs tokenizer.{name}", fix=f"set --tokenizer.{name} FILE"
                )
            if name not in needs and value is not None:
                raise bad_value(
                    f"tokenizer.{name}",
                    value,
                    f"tokenizer.kind = {self.kind} would ignore it",
                    "set tokenizer.kind",
                )
        return self
