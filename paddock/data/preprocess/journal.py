"""How far a job has come, in a file beside its outputs, so that the same command can continue after any end.

The journal also holds what decides the job's output. If that is no longer the same, going on would mix two jobs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paddock.data.config import TokenizerConfig
from paddock.data.indexed.writer import WriterPosition
from paddock.data.preprocess.chunks import Position
from paddock.data.preprocess.inputs import Input
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.errors import DataError
from paddock.files import atomic_write, disk_errors

FORM = 1
LIBRARIES = ("paddock", "tokenizers", "sentencepiece", "jieba")


@dataclass(frozen=True)
class Counts:
    """What has been read so far."""

    documents: int = 0
    empty: int = 0
    """Documents without a token, for each key: they are left out."""
    skipped: int = 0
    """Bad lines."""
    bytes: int = 0
    """Of text in its JSON, decompressed."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Progress:
    """A point from which a job can go on: everything before `position` is written, and nothing after it."""

    position: Position = field(default_factory=Position)
    counts: Counts = field(default_factory=Counts)
    skipped_bytes: int = 0
    """The length of the list of bad lines."""
    writers: dict[str, WriterPosition] = field(default_factory=dict)


class Journal:
    """The file. Saving replaces it in one step."""

    def __init__(self, job: PreprocessJob, facts: dict[str, str]) -> None:
        self._prefix = job.output_prefix
        self.path = Path(f"{job.output_prefix}.progress.json")
        self._facts = facts
        self._outputs = [job.output(key).removeprefix(job.output_prefix) for key in job.json_keys]

    def save(self, progress: Progress) -> None:
        content = {"form": FORM, "outputs": self._outputs, "job": self._facts, "progress": asdict(progress)}
        with atomic_write(self.path) as stream:
            json.dump(content, stream, indent=1)

    def load(self) -> Progress | None:
        """Where an earlier run of this job stopped; None if there was none. An error if that was another job."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            facts, progress = dict(content["job"]), _progress_of(content["progress"])
            known = content["form"] == FORM
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.path} cannot be read", why=str(error), fix=_FIX) from None
        if not known:
            raise DataError(f"{self.path} was written by another version of Paddock", fix=_FIX)
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
        with suppress(OSError, ValueError, KeyError, TypeError):
            left = json.loads(self.path.read_text(encoding="utf-8"))["outputs"]
            return [f"{self._prefix}{end}" for end in {*map(str, left), *self._outputs}]
        return [f"{self._prefix}{end}" for end in self._outputs]

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


def _progress_of(content: dict[str, Any]) -> Progress:
    return Progress(
        Position(**content["position"]),
        Counts(**content["counts"]),
        int(content["skipped_bytes"]),
        {key: WriterPosition(**position) for key, position in content["writers"].items()},
    )


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
