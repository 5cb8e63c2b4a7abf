"""How far a job has come, in a file beside its outputs, so that the same command can continue after any end.

The journal also holds what decides the job's output. If that is no longer the same, going on would mix two jobs.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.data.config import TokenizerConfig
from paddock.data.indexed.writer import WriterPosition
from paddock.data.preprocess.chunks import Position
from paddock.data.preprocess.inputs import Input
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.documents import Document, Natural, Parser, read_text
from paddock.errors import DataError
from paddock.files import atomic_write, disk_errors

FORM: Literal[2] = 2
LARGEST = 2**26
"""Bytes: every input has a line in it."""
LIBRARIES = ("paddock", "tokenizers", "sentencepiece", "jieba")


@dataclass(frozen=True)
class Counts:
    """What has been read so far."""

    documents: Natural = 0
    empty: Natural = 0
    """Documents without a token, for each key: they are left out."""
    skipped: Natural = 0
    """Bad lines."""
    bytes: Natural = 0
    """Of text in its JSON, decompressed."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Progress:
    """A point from which a job can go on: everything before `position` is written, and nothing after it."""

    position: Position = field(default_factory=Position)
    counts: Counts = field(default_factory=Counts)
    skipped_bytes: Natural = 0
    """The length of the list of bad lines."""
    skipped_checksum: Natural = 0
    writers: dict[str, WriterPosition] = field(default_factory=dict)


class JournalFile(Document):
    """How the file looks. Its checksum is that of all the rest: a digit that changes would leave out lines unseen."""

    form: Literal[2] = FORM
    outputs: list[Annotated[str, Field(pattern=r"^_[^/\x00]+_(document|sentence)$")]]
    job: dict[str, str]
    progress: Progress
    checksum: Natural = 0

    def content(self) -> dict[str, Any]:
        """Everything but the checksum."""
        return {"form": self.form, "outputs": self.outputs, "job": self.job, "progress": asdict(self.progress)}


def checksum_of_content(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


class Journal:
    """The file. Saving replaces it in one step."""

    def __init__(self, job: PreprocessJob, facts: dict[str, str]) -> None:
        self._prefix = job.output_prefix
        self.path = Path(f"{job.output_prefix}.progress.json")
        self._facts = facts
        self._outputs = [job.output(key).removeprefix(job.output_prefix) for key in job.json_keys]

    def save(self, progress: Progress) -> None:
        content = JournalFile(outputs=self._outputs, job=self._facts, progress=progress).content()
        with atomic_write(self.path) as stream:
            json.dump({**content, "checksum": checksum_of_content(content)}, stream, indent=1)

    def load(self) -> Progress | None:
        """Where an earlier run of this job stopped; None if there was none. An error if that was another job."""
        if not os.path.lexists(self.path):
            return None
        content = self._read()
        if content.checksum != checksum_of_content(content.content()):
            raise DataError(f"{self.path} is damaged", why="its checksum is another one", fix=_FIX)
        facts, progress = content.job, content.progress
        changed = [_change(name, facts.get(name), self._facts.get(name)) for name in {**facts, **self._facts}]
        if any(changed):
            raise DataError(
                f"{self.path} belongs to an unfinished job that was another one",
                why="; ".join(filter(None, changed)),
                fix=f"{_FIX}, or choose another --output-prefix",
            )
        return progress

    def outputs(self) -> list[str]:
        """The prefixes of what this job writes, and of what the job that left the journal was writing."""
        left: list[str] = []
        with suppress(DataError):  # whatever it was, it goes
            left = self._read().outputs
        return [f"{self._prefix}{end}" for end in {*left, *self._outputs}]

    def _read(self) -> JournalFile:
        return _parse(read_text(self.path, fix=_FIX, max_bytes=LARGEST), str(self.path))

    def remove(self) -> None:
        """Delete the file, and what a kill while saving it may have left."""
        with disk_errors(self.path):
            for path in self.path.parent.glob(f".{escape(self.path.name)}.*.partial"):
                path.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)


def facts_of(job: PreprocessJob, inputs: Sequence[Input]) -> dict[str, str]:
    """Everything that decides what a job writes, in words: two jobs with the same facts write the same bytes."""
    facts = {
        "--input": " ".join(source.path for source in inputs),
        "--json-keys": " ".join(job.json_keys),
        "--append-eod": str(job.append_eod),
        "--split-sentences": str(job.split_sentences),
        "--keep-newlines": str(job.keep_newlines),
    }
    if any(source.is_text for source in inputs):
        facts["--document"] = job.document
    for source in inputs:
        if source.size is not None and source.modified is not None:
            facts[source.path] = f"{source.size} bytes, changed {_time(source.modified)}"
    return facts | tokenizer_facts(job.tokenizer) | {f"package {name}": _version(name) for name in LIBRARIES}


def tokenizer_facts(source: TokenizerConfig | TokenizerFolder) -> dict[str, str]:
    """A tokenizer's settings, and the content of its files."""
    if isinstance(source, TokenizerConfig):
        settings = {name: value for name, value in source.model_dump().items() if value is not None}
        paths = [Path(value) for value in settings.values() if isinstance(value, str)]
    else:
        settings = {"folder": source.path, "end_of_text": source.end_of_text}
        names = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model")
        paths = [source.path / name for name in names]
    facts = {f"tokenizer {name}": str(value) for name, value in settings.items()}
    return facts | {str(path): _digest(path) for path in paths if os.path.isfile(path)}


def _change(name: str, before: str | None, now: str | None) -> str:
    return "" if before == now else f"{name} was {before or 'not there'}, and is {now or 'not there'}"


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return "sha256 " + hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


_FIX = "start from the beginning with --restart"
_parse = Parser(JournalFile, fix=_FIX)
