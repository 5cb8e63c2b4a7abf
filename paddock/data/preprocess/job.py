"""What a preprocessing job is: where text comes from, what becomes of it, and where the tokens go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paddock.data.config import TextDocument, TokenizerConfig, check_key
from paddock.errors import ConfigError, bad_value

if TYPE_CHECKING:
    from paddock.data.preprocess.inputs import Input


@dataclass(frozen=True)
class TokenizerFolder:
    """A folder that holds a tokenizer, as transformers and Paddock save them."""

    path: Path
    end_of_text: str | None = None


@dataclass(frozen=True)
class PreprocessJob:
    """JSON lines, or plain text, to indexed tokens: `{output_prefix}_{key}_document`, or `_sentence`, for every key.

    Only the first block of fields decides what is written; the rest may change when a job is continued."""

    inputs: tuple[str, ...]
    output_prefix: str
    tokenizer: TokenizerConfig | TokenizerFolder
    json_keys: tuple[str, ...] = ("text",)
    append_eod: bool = False
    split_sentences: bool = False
    keep_newlines: bool = False
    document: TextDocument = "line"
    """Of plain text, which has no keys: it goes by the name of the one that there is."""

    on_error: Literal["stop", "skip"] = "stop"
    workers: int = 1
    """Processes that tokenize; one works in place."""
    overwrite: bool = False
    restart: bool = False
    chunk_bytes: int = 1 << 20
    """How much text a worker gets at a time."""
    checkpoint_seconds: float = 5.0
    """How much time a killed job loses, at most."""

    def output(self, key: str) -> str:
        """The prefix of the files that hold one key's tokens."""
        return f"{self.output_prefix}_{key}_{'sentence' if self.split_sentences else 'document'}"

    def check(self) -> None:
        """Raise ConfigError for what cannot be meant."""
        if not self.output_prefix or self.output_prefix.endswith("/"):
            raise bad_value(
                "--output-prefix",
                f'"{self.output_prefix}"',
                "it is the beginning of file names",
                "give a path such as corpora/my-gpt: the files are my-gpt_text_document.bin and .idx",
            )
        if not self.json_keys:
            raise ConfigError("--json-keys names no key", fix="leave it out for text, or name the keys to tokenize")
        for key in self.json_keys:
            check_key("--json-keys", key)
            if self.json_keys.count(key) > 1:
                raise bad_value("--json-keys", " ".join(self.json_keys), f"{key} is there twice", "name it once")
        if self.keep_newlines and not self.split_sentences:
            raise ConfigError(
                "--keep-newlines would be ignored",
                why="it keeps the line breaks between sentences, and without --split-sentences none is lost",
                fix="add --split-sentences, or leave it out",
            )
        if self.workers < 1:
            raise bad_value("--workers", self.workers, "somebody has to do the work", "--workers 1 or more")

    def check_forms(self, inputs: Sequence[Input]) -> None:
        """Raise ConfigError for what these inputs would ignore."""
        texts = [source.name for source in inputs if source.is_text]
        if self.document != "line" and not texts:
            raise bad_value("--document", self.document, "no input is plain text (.txt): it would be ignored")
        if texts and len(self.json_keys) > 1:
            why = f"{texts[0]} is plain text, and has no keys"
            raise bad_value("--json-keys", " ".join(self.json_keys), why, "preprocess it by itself")
