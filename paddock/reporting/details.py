"""One run, looked at closely: what it is, its attempts, its checkpoints, its newest numbers, why it failed, and the
commands to go on with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.alignment.comparison.logged import as_number, run_facts
from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.names import complete_checkpoints, real_place
from paddock.documents import Document, read_document
from paddock.errors import UserError
from paddock.files import read_regular, shell_word
from paddock.reporting.listing import RunEntry, attempt_numbers, describe_run, named_run, size_and_time
from paddock.telemetry.jsonl import read_tail
from paddock.telemetry.records import metrics_of
from paddock.training.run_directory.files import ATTEMPTS, ENVIRONMENT, LARGEST, METRICS, Processes
from paddock.training.run_directory.lock import Holder, holder_of

FACTS = ("model.family", "task", "layout", "device", "batch.global", "precision.compute", "optimizer.lr", "train.seed")
"""What is shown of a run first; of its data and its versions more."""
VERSIONS = ("paddock", "torch", "python")
LAST_WORDS = 12
"""Lines of what a rank left when it failed."""
LONGEST_ERROR = 2**22


@dataclass(frozen=True)
class Attempt:
    """Processes that began to train in a run directory."""

    number: int
    command: str
    processes: int
    device: str
    versions: dict[str, str]


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on the disk."""

    name: str
    bytes: int
    names: tuple[str, ...]
    """Which of `latest` and `best` it is."""


@dataclass(frozen=True)
class RunDetails:
    """All that is shown of one run."""

    entry: RunEntry
    facts: dict[str, Any]
    attempts: tuple[Attempt, ...]
    checkpoints: tuple[SavedCheckpoint, ...]
    last: dict[str, float]
    """The newest value of every metric."""
    holder: Holder | None
    """Who is at it."""
    last_words: tuple[str, ...]
    """What a rank said when it failed."""
    next: tuple[str, ...]
    """Commands to go on."""

    def to_dict(self) -> dict[str, Any]:
        holder = None if self.holder is None else self.holder.model_dump()
        parts = {
            "attempts": [asdict(one) for one in self.attempts],
            "checkpoints": [asdict(one) for one in self.checkpoints],
        }
        rest = {"facts": self.facts, "last": self.last, "holder": holder, "last_words": self.last_words}
        return {**self.entry.to_dict(), **rest, **parts, "next": self.next}


class _Said(Document):
    """What an attempt keeps of how it was started."""

    command: list[str] = []  # noqa: RUF012 - pydantic copies it
    processes: Processes = Processes()
    device: str | None = None


def look_at(name: str) -> RunDetails:
    """Everything about the run that somebody names; of a damaged one, what can be read."""
    path = named_run(name)
    entry = describe_run(name)
    failed = entry.state in ("failed", "damaged")
    return RunDetails(
        entry,
        _facts(path),
        tuple(_attempts(path)),
        tuple(_checkpoints(path)),
        _last(path),
        holder_of(path),
        tuple(_last_words(path)) if failed else (),
        tuple(_next_commands(name, path, entry)),
    )


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = run_facts(path)
    except UserError:
        return {}
    data = {
        name: value for name, value in facts.items() if name.startswith(("data.source", "data.path", "training data"))
    }
    return {name: facts[name] for name in FACTS if name in facts} | {k: v for k, v in data.items() if v is not None}


def _attempts(path: Path) -> Iterator[Attempt]:
    for number in attempt_numbers(path):
        place = path / ATTEMPTS / str(number) / ENVIRONMENT
        try:
            said = read_document(place, _Said, max_bytes=LARGEST)
            values = read_document(place, dict[str, Any], max_bytes=LARGEST)
        except UserError:  # the processes ended before they had written it, or it is damaged
            yield Attempt(number, "", 0, "", {})
            continue
        counts = said.processes
        versions = {name: str(values[name]) for name in VERSIONS if name in values}
        words = [_program(Path(said.command[0])), *said.command[1:]] if said.command else []
        yield Attempt(
            number, _clean(shlex.join(words)), counts.nproc_per_node * counts.nnodes, said.device or "", versions
        )


def _program(path: Path) -> str:
    """What a command begins with; `python -m paddock` is told as the command that does the same."""
    return path.parent.name if path.name == "__main__.py" else path.name


def _checkpoints(path: Path) -> Iterator[SavedCheckpoint]:
    folder = path / FOLDER
    links = {name: real_place(folder / name) for name in ("latest", "best") if (folder / name).is_symlink()}
    for checkpoint in complete_checkpoints(folder):
        names = tuple(name for name, target in links.items() if target == real_place(checkpoint))
        yield SavedCheckpoint(checkpoint.name, size_and_time(checkpoint)[0], names)


def _last(path: Path) -> dict[str, float]:
    try:
        records = read_tail(path / METRICS) if (path / METRICS).is_file() else []
    except UserError:
        return {}
    found = {name: as_number(value) for record in records for name, value in metrics_of(record).items()}
    return {name: value for name, value in found.items() if value is not None}


def _last_words(path: Path) -> Iterator[str]:
    """The end of what the first rank left that failed."""
    for file in sorted((path / "errors").glob("rank*.txt"))[:1]:
        try:
            text = read_regular(file, LONGEST_ERROR).decode(errors="replace")
        except OSError:
            continue
        yield f"{file}:"
        yield from ("  " + _clean(line) for line in text.rstrip().splitlines()[-LAST_WORDS:])


def _clean(text: str) -> str:
    """Without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def _next_commands(name: str, path: Path, entry: RunEntry) -> Iterator[str]:
    run, saved = shell_word(name), bool(complete_checkpoints(path / FOLDER))
    if entry.state == "running":
        yield f"paddock runs plot {run}"
        return
    if entry.state in ("stopped", "failed") and saved:
        yield f"paddock resume {run}"
    if saved:
        yield f"paddock evaluate {run}"
    if entry.step:
        yield f"paddock report {run} --output report.html"
    if entry.state in ("never began", "damaged") or not saved:
        yield f"paddock runs rm {run}"
