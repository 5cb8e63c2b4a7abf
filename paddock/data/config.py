"""Where training data and the tokenizer come from: sections of the recipe. Free of numpy and torch, for help pages."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field, field_validator, model_validator

from paddock.data.blend_path import bad_path, parse_blend
from paddock.errors import ConfigError, bad_value
from paddock.models.config import SampleShape
from paddock.schema import ConfigModel

MOST_SENTINELS = 10_000
"""More than any model has: T5 has 100."""
TextDocument = Literal["line", "file"]
"""What a document is in a file of plain text."""
TEXT_NAMES = (".txt", ".jsonl", ".json", ".parquet")
"""How the names of files of text end; .gz or .zst may follow, but behind a table."""
LENGTH_MULTIPLE = 8
"""Padded lengths are multiples of this, so that few of them differ and tensor-parallel ranks can divide them."""

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
    """Tokens, indexed or made of text, and how much of them is a sample."""

    parts: ClassVar[tuple[Part, ...]] = get_args(Part)
    reads_sentences: ClassVar[bool] = True
    """Whether text becomes sentences, as `paddock preprocess --split-sentences` makes them; otherwise documents, each
    with an end-of-text token."""
    learns: ClassVar[Literal["bpe", "wordpiece"]] = "bpe"
    """What is learned of text where `tokenizer.kind` is trained."""

    source: Literal["indexed", "text", "synthetic"] = "indexed"
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; text: files of plain text, JSON lines or Parquet
    tables; synthetic: random tokens."""
    path: tuple[float | str, ...] | None = None
    """indexed: the files' prefix, without .bin; several prefixes, or weights and prefixes in turn (0.7 a 0.3 b),
    make a blend. Without weights, corpora count by their tokens. text: one file or several, or patterns in quotes
    ('part-*.txt'), also .gz and .zst; those whose names end in .txt are plain text, in .parquet tables, all others JSON
    lines."""
    document: TextDocument = "line"
    """text: whether a document of plain text is a line (as of prompts) or a whole file (as of books)."""
    json_key: str = "text"
    """text: the key of JSON lines, or the column of tables, whose text is read."""
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
        cut = ["a document a file"] if self.document == "file" else []
        return ", ".join([" ".join(map(str, [self.source, *(self.path or ())])), *cut])

    def lacks_validation(self) -> str | None:
        return f"data.split {list(self.split)} leaves no validation part" if self.split[1] == 0 else None

    @model_validator(mode="after")
    def _check_files(self) -> TokensConfig:
        for part in self.path or ():
            if isinstance(part, str) and not os.path.exists(f"{part}.idx") and (refusal := spreadsheet(part)):
                raise bad_value("data.path", part, f"it is a table, by its name: {refusal.why}", refusal.fix)
        if min(self.split) < 0 or sum(self.split) <= 0:
            raise bad_value("data.split", self.split, "the weights must not be negative, nor all zero")
        if self.source not in ("indexed", "text") and self.path is not None:
            raise bad_value(
                "data.path",
                " ".join(map(str, self.path)),
                f"data.source = {self.source} would ignore it",
                "set --data.source indexed or text to read that path, or --data.path None",
            )
        check_key("data.json_key", self.json_key)
        if self.source == "text" and any(isinstance(part, float) for part in self.path or ()):
            why = "weights are for corpora of tokens, and files of text are one corpus"
            raise bad_path(self.path or (), why, "leave them out, or make corpora of the files: paddock preprocess")
        for name in ("document", "json_key"):
            self.check_used(name, self.source == "text", "data.source text")
        return self

    def check_used(self, name: str, holds: bool, needed: str) -> None:
        """Raise ConfigError for a field that says something where nothing would read it."""
        value = getattr(self, name)
        if not holds and value != type(self).model_fields[name].default:
            raise bad_value(f"data.{name}", value, "it would be ignored", f"set --{needed}, or leave it out")


class CorpusConfig(TokensConfig):
    """A corpus of tokens, and how it is cut into samples."""

    reads_sentences: ClassVar[bool] = False

    source: Literal["indexed", "text", "embedded", "synthetic"] = "indexed"  # type: ignore[assignment]
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; text: files of plain text, JSON lines or Parquet
    tables; embedded: the Python language reference that every CPython carries; synthetic: random tokens."""
    samples: Literal["packed", "padded"] = "packed"
    """packed: documents in a row, cut into windows of sequence_length (sequence packing), where the reset_ options tell
    them apart; padded: a document a sample, filled up with padding that no loss counts."""
    truncate: bool = False
    """padded: cut documents of more than sequence_length tokens and the one that is predicted last, and say how many;
    without it they are an error."""
    reset_position_ids: bool = False
    """Count positions from 0 again after every end-of-document token."""
    reset_attention_mask: bool = False
    """Let tokens see only their own document."""
    eod_mask_loss: bool = False
    """Leave out of the loss what is predicted at an end-of-document token: the next document's beginning."""
    eod: int | None = Field(None, ge=0)
    """The end-of-document token that these three look for; None is the tokenizer's end_of_text."""

    def slides(self) -> bool:
        return self.samples == "packed"

    @property
    def minds_document_ends(self) -> bool:
        """Whether samples must know where documents end. One that is a document needs not be told."""
        return self.samples == "packed" and (self.reset_position_ids or self.reset_attention_mask or self.eod_mask_loss)

    @model_validator(mode="after")
    def _check(self) -> CorpusConfig:
        if self.eod is not None and not self.minds_document_ends:
            raise bad_value(
                "data.eod",
                self.eod,
                "nothing looks for it",
                "set --data.reset-position-ids, --data.reset-attention-mask or --data.eod-mask-loss, or leave it out",
            )
        self.check_used("truncate", self.samples == "padded", "data.samples padded")
        return self


class MaskedConfig(TokensConfig):
    """A corpus of tokens of which some are hidden."""

    learns: ClassVar[Literal["bpe", "wordpiece"]] = "wordpiece"

    sequence_length: int = Field(512, gt=2)
    """Tokens in a sample: [CLS], text and [SEP]."""
    masking: float = Field(0.15, gt=0, lt=1)
    """The part of the tokens that is to be predicted; of these 80 % are hidden and 10 % replaced."""
    whole_words: bool = False
    """Hide all tokens of a word or none; needs a tokenizer."""


class SpanConfig(TokensConfig):
    """A corpus of tokens out of which spans are cut."""

    source: Literal["indexed", "text", "embedded", "synthetic"] = "indexed"  # type: ignore[assignment]
    """indexed: PREFIX.bin and PREFIX.idx, as Megatron-LM writes them; text: files of plain text, JSON lines or Parquet
    tables; embedded: the Python language reference that every CPython carries; synthetic: random tokens."""
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

    kind: Literal["none", "trained", "gpt2", "wordpiece", "sentencepiece", "file", "folder"] = "none"
    """none: the data is already tokens, and knows its tokenizer, or has none; trained: a byte-level BPE learned from
    the corpus; gpt2: vocab and merges files; wordpiece: BERT's vocab.txt; sentencepiece: T5's spiece.model; file: a
    tokenizer.json; folder: whatever a folder holds, as transformers and Paddock save it."""
    vocab: str | None = None
    """gpt2: the vocab.json; wordpiece: the vocab.txt."""
    merges: str | None = None
    """gpt2: the merges.txt."""
    model: str | None = None
    """sentencepiece: the spiece.model."""
    path: str | None = None
    """file: the tokenizer.json; folder: the folder."""
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
    "folder": (("path",), ()),
}
"""What each kind needs, and what else it takes."""


def check_key(field: str, key: str) -> None:
    """Raise ConfigError for a key of JSON lines that no corpus can be called by."""
    if not key or "/" in key or "\0" in key:
        raise bad_value(field, f'"{key}"', "the key becomes a part of a file name", "rename the key")


class Refusal(NamedTuple):
    """Why a file is not read, and what to do."""

    why: str
    fix: str


def spreadsheet(path: str) -> Refusal | None:
    """What to say of a table by its name, .csv or .tsv, of which nobody knows which column is text."""
    name, packed = path.lower(), re.compile(r"(\.csv|\.tsv)(\.gz|\.zst)?$")
    found = packed.search(name)
    if found is None:
        return None
    tabs = ", delimiter='\\t'" if found[1] == ".tsv" else ""
    program = f"import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin{tabs})]"
    return Refusal(
        "plain text (.txt), JSON lines (.jsonl) and Parquet tables (.parquet) are read",
        f'make JSON lines of it, a row each: python -c "{program}" < FILE{found[1]} > FILE.jsonl; '
        "the columns are its keys (--data.json-key, or --json-keys of preprocess)",
    )


def named_as_text(path: str) -> bool:
    """Whether a file is text by its name, rather than the prefix of indexed tokens."""
    return path.removesuffix(".gz").removesuffix(".zst").lower().endswith(TEXT_NAMES)
