"""Where training data and the tokenizer come from: sections of the recipe. Free of numpy and torch, for help pages."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from paddock.errors import ConfigError, bad_value
from paddock.models.config import SampleShape
from paddock.schema import ConfigModel

MOST_SENTINELS = 10_000
"""More than any model has: T5 has 100."""
LENGTH_MULTIPLE = 8
"""Padded lengths are multiples of this, so that few of them differ and tensor-parallel ranks can divide them."""
SMALLEST_SHARE = 2.0**-20
"""Of a blend: a corpus with less would hardly ever be read."""

Part = Literal["train", "validation", "test"]
"""Of a corpus that is split (`data.split`)."""


class DataConfig(ConfigModel):
    """Where the data comes from. Each task adds its own fields."""

    parts: ClassVar[tuple[Part, ...]] = ("validation",)
    """What an evaluation can measure on (`evaluate.split`)."""

    source: str
    """Where the data comes from."""
    workers: int = Field(0, ge=0)
    """Processes that read samples for each training process; 0 is a thread of its own."""
    cache: str | None = None
    """Where prepared data is kept; None is $XDG_CACHE_HOME/paddock or ~/.cache/paddock."""

    @abstractmethod
    def sample_shape(self) -> SampleShape:
        """How large a sample is: what decides how much work it is."""

    def describe(self) -> str:
        """The source in a line, for people."""
        return self.source

    def describe_sample(self) -> str:
        """How large a sample is, for people."""
        return f"sequence {self.sample_shape()}"

    def slides(self) -> bool:
        """Whether an evaluation can read it in windows that overlap (`evaluate.stride`)."""
        return False

    def lacks_validation(self) -> str | None:
        """Why there is nothing to validate on; None where there is, or where only the files can tell."""
        return None


class TokensConfig(DataConfig):
    """Indexed tokens, and how much of them is a sample."""

    parts: ClassVar[tuple[Part, ...]] = get_args(Part)
    source: Literal["indexed", "synthetic"] = "indexed"
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; synthetic: random tokens."""
    path: tuple[float | str, ...] | None = None
    """indexed: the files' prefix, without .bin; several prefixes, or weights and prefixes in turn (0.7 a 0.3 b),
    make a blend. Without weights, corpora count by their tokens."""
    split: tuple[float, float, float] = (949, 50, 1)
    """Weights of the training, validation and test parts, over documents."""
    sequence_length: int = Field(1024, gt=0)
    """Tokens in a sample."""

    @field_validator("path", mode="before")
    @classmethod
    def _one_or_many(cls, path: Any) -> Any:
        return (path,) if isinstance(path, str) else path

    @field_validator("path")
    @classmethod
    def _weights_are_numbers(cls, path: tuple[float | str, ...] | None) -> tuple[float | str, ...] | None:
        if path is None:
            return None
        return tuple(part for pair in parse_blend(path) for part in pair if part is not None)

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length)

    @classmethod
    def sources(cls) -> tuple[str, ...]:
        """What `source` may be."""
        return get_args(cls.model_fields["source"].annotation)

    def describe(self) -> str:
        return " ".join(map(str, [self.source, *(self.path or ())]))

    def lacks_validation(self) -> str | None:
        return f"data.split {list(self.split)} leaves no validation part" if self.split[1] == 0 else None

    @model_validator(mode="after")
    def _check_files(self) -> TokensConfig:
        if min(self.split) < 0 or sum(self.split) <= 0:
            raise bad_value("data.split", self.split, "the weights must not be negative, nor all zero")
        if self.source != "indexed" and self.path is not None:
            raise bad_value(
                "data.path",
                " ".join(map(str, self.path)),
                f"data.source = {self.source} would ignore it",
                "set --data.source indexed to read that path, or --data.path None",
            )
        return self


class CorpusConfig(TokensConfig):
    """A corpus of tokens, and how it is cut into samples."""

    source: Literal["indexed", "embedded", "synthetic"] = "indexed"  # type: ignore[assignment]
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; embedded: the Python language reference
    that every CPython carries; synthetic: random tokens."""
    reset_position_ids: bool = False
    """Count positions from 0 again after every end-of-document token."""
    reset_attention_mask: bool = False
    """Let tokens see only their own document."""
    eod_mask_loss: bool = False
    """Leave out of the loss what is predicted at an end-of-document token: the next document's beginning."""
    eod: int | None = Field(None, ge=0)
    """The end-of-document token that these three look for; None is the tokenizer's end_of_text."""

    def slides(self) -> bool:
        return True

    @property
    def minds_document_ends(self) -> bool:
        """Whether samples must know where documents end."""
        return self.reset_position_ids or self.reset_attention_mask or self.eod_mask_loss

    @model_validator(mode="after")
    def _check(self) -> CorpusConfig:
        if self.eod is not None and not self.minds_document_ends:
            raise bad_value(
                "data.eod",
                self.eod,
                "nothing looks for it",
                "set --data.reset-position-ids, --data.reset-attention-mask or --data.eod-mask-loss, or leave it out",
            )
        return self


class MaskedConfig(TokensConfig):
    """A corpus of tokens of which some are hidden."""

    sequence_length: int = Field(512, gt=2)
    """Tokens in a sample: [CLS], text and [SEP]."""
    masking: float = Field(0.15, gt=0, lt=1)
    """The part of the tokens that is to be predicted; of these 80 % are hidden and 10 % replaced."""
    whole_words: bool = False
    """Hide all tokens of a word or none; needs a tokenizer."""


class SpanConfig(TokensConfig):
    """A corpus of tokens out of which spans are cut."""

    source: Literal["indexed", "embedded", "synthetic"] = "indexed"  # type: ignore[assignment]
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; embedded: the Python language reference
    that every CPython carries; synthetic: random tokens."""
    sequence_length: int = Field(512, gt=2)
    """Tokens that the encoder reads: text with a sentinel for each span, and the end token."""
    target_length: int = Field(128, gt=2)
    """Tokens that the decoder writes: each span behind its sentinel, and the end token."""
    masking: float = Field(0.15, gt=0, lt=1)
    """The part of the tokens that is cut out."""
    mean_span: float = Field(3.0, ge=1)
    """Tokens in a span, on average."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.sequence_length, self.target_length)


class TokenizerConfig(ConfigModel):
    """How text becomes token ids."""

    kind: Literal["none", "trained", "gpt2", "wordpiece", "sentencepiece", "file"] = "none"
    """none: the data is already tokens; trained: a byte-level BPE learned from the corpus; gpt2: vocab and
    merges files; wordpiece: BERT's vocab.txt; sentencepiece: T5's spiece.model; file: a tokenizer.json."""
    vocab: str | None = None
    """gpt2: the vocab.json; wordpiece: the vocab.txt."""
    merges: str | None = None
    """gpt2: the merges.txt."""
    model: str | None = None
    """sentencepiece: the spiece.model."""
    path: str | None = None
    """file: the tokenizer.json."""
    lower_case: bool = False
    """wordpiece: for an uncased vocabulary: text becomes lower case and loses its accents."""
    chinese_whole_words: bool = False
    """wordpiece: mark the characters inside Chinese words as ##x, for masking whole words; needs jieba."""
    extra_ids: int | None = Field(None, ge=0, le=MOST_SENTINELS)
    """trained, wordpiece, sentencepiece: how many sentinels <extra_id_0>, <extra_id_1>, … to add to the vocabulary
    (wordpiece: behind [BOS] and [EOS]); None is 100 for a sentencepiece model without its own, else none."""
    end_of_text: str | None = None
    """The token that ends a document; None is the usual one: <|endoftext|> (trained, gpt2), [SEP] (wordpiece; with
    extra_ids [EOS]), </s> (sentencepiece), or the one of these that the file has."""

    @model_validator(mode="after")
    def _check(self) -> TokenizerConfig:
        needs, takes = _TOKENIZER_FIELDS[self.kind]
        for name in needs:
            if getattr(self, name) is None:
                raise ConfigError(
                    f"tokenizer.kind = {self.kind} needs tokenizer.{name}", fix=f"set --tokenizer.{name} FILE"
                )
        for name in ("vocab", "merges", "model", "path", "lower_case", "chinese_whole_words", "extra_ids"):
            value = getattr(self, name)
            if name not in needs + takes and value:
                raise bad_value(
                    f"tokenizer.{name}",
                    value,
                    f"tokenizer.kind = {self.kind} would ignore it",
                    "set tokenizer.kind",
                )
        return self


_TOKENIZER_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ()),
    "trained": ((), ("extra_ids",)),
    "gpt2": (("vocab", "merges"), ()),
    "wordpiece": (("vocab",), ("lower_case", "chinese_whole_words", "extra_ids")),
    "sentencepiece": (("model",), ("extra_ids",)),
    "file": (("path",), ()),
}
"""What each kind needs, and what else it takes."""


def parse_blend(path: Sequence[float | str] | str) -> list[tuple[float | None, str]]:
    """The weight and the prefix of every corpus: `a`, `[a, b]` or `[0.7, a, 0.3, b]`.

    The weight is None where none is given: then corpora count by their tokens. What looks like a number is a
    weight; a prefix that does can be written `./7`."""
    entries = [path] if isinstance(path, str) else list(path)
    weights = [_weight(entry) for entry in entries]
    if all(weight is None for weight in weights):
        blend: list[tuple[float | None, str]] = [(None, str(entry)) for entry in entries]
    else:
        kinds = [weight is None for weight in weights]
        if len(entries) % 2 or kinds != [False, True] * (len(entries) // 2):
            raise _bad_path(
                path, "weights and prefixes do not alternate", "write it as 0.7 a 0.3 b, or without any weights"
            )
        blend = [(weights[at], str(entries[at + 1])) for at in range(0, len(entries), 2)]
    _check_blend(path, blend)
    return blend


def _check_blend(path: Sequence[float | str] | str, blend: list[tuple[float | None, str]]) -> None:
    if not blend or not all(prefix for _, prefix in blend):
        raise _bad_path(path, "it names no corpus", "give the files' prefix, without .bin")
    places: dict[str, str] = {}
    for _, prefix in blend:
        place = os.path.abspath(prefix)
        if place in places:
            raise _bad_path(path, f"{places[place]} is there twice", "name it once, with the sum of its weights")
        places[place] = prefix
    total = sum(weight or 0.0 for weight, _ in blend)
    for weight, prefix in blend:
        if weight is None:
            continue
        if not math.isfinite(weight) or weight < 0:
            raise _bad_path(path, f"the weight of {prefix} is {weight}", "weights are positive numbers")
        if weight == 0 or weight < SMALLEST_SHARE * total:
            raise _bad_path(
                path, f"{prefix}, with weight {weight:g}, is as good as never read", "leave it out, or raise it"
            )


def _weight(entry: float | str) -> float | None:
    try:
        return float(entry)
    except ValueError:
        return None


def _bad_path(path: Sequence[float | str] | str, why: str, fix: str) -> ConfigError:
    return bad_value("data.path", path if isinstance(path, str) else " ".join(map(str, path)), why, fix)
