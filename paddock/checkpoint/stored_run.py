"""Runs and checkpoints that lie in a store, and copies here of what is needed of them.

A checkpoint there is complete if its `checkpoint.json` is there: that is written last, and removed first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.description import Description
from paddock.checkpoint.names import DESCRIPTION
from paddock.checkpoint.storage import MAX_DESCRIPTION
from paddock.documents import parse_document
from paddock.errors import DataError
from paddock.files import user_path
from paddock.objects.address import Address, is_address
from paddock.objects.fetch import copied, local_path
from paddock.objects.store import Entry, Store

LEFT_THERE = ("metrics.jsonl", "log.txt")
"""Files of a run that nobody needs who only wants its model."""
_STEP = re.compile(r"step-\d{8,}")
_PART = re.compile(rf"(?P<run>.*?)/?{FOLDER}(?:/(?P<which>step-\d{{8,}}|latest|best))?")


@dataclass(frozen=True)
class StoredRun:
    """What there is of a run in a store, at one moment."""

    store: Store
    address: Address
    entries: Sequence[Entry]

    @staticmethod
    def look(address: Address) -> StoredRun:
        """What is there now."""
        store = Store(address)
        return StoredRun(store, address, store.below(address.key))

    def name(self, entry: Entry) -> str:
        """What a file is called in its run directory."""
        return entry.key.removeprefix(self.address.key).strip("/")

    def files(self) -> list[Entry]:
        """All but checkpoints, and what begins with a dot, which is ours alone."""
        return [entry for entry in self.entries if not self.name(entry).startswith((f"{FOLDER}/", "."))]

    def steps(self) -> dict[str, list[Entry]]:
        """The files of all that was ever begun of checkpoints, by their names, in the order of their steps."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            folder, _, rest = self.name(entry).partition("/")
            step = rest.partition("/")[0]
            if folder == FOLDER and _STEP.fullmatch(step):
                found.setdefault(step, []).append(entry)
        return found

    def complete(self) -> dict[str, list[Entry]]:
        """The files of complete checkpoints."""
        return {
            step: entries
            for step, entries in self.steps().items()
            if any(self.name(entry) == f"{FOLDER}/{step}/{DESCRIPTION}" for entry in entries)
        }

    def choose(self, which: str | None) -> str | None:
        """The name of the newest complete checkpoint, of the best, or of one that is named; None if there is none."""
        complete = self.complete()
        newest = max(complete, default=None)
        if which == "best" and newest is not None:
            which = f"step-{self._describe(complete[newest]).best_step:08d}"
        if which not in (None, "latest") and which not in complete:
            raise DataError(f"there is no complete checkpoint {which} in {self.address}/{FOLDER}")
        return newest if which in (None, "latest") else which

    def copy(self, step: str | None) -> Path:
        """A folder here, like a run directory, with this checkpoint and what goes with it."""
        files = [entry for entry in self.files() if "/" not in self.name(entry) and self.name(entry) not in LEFT_THERE]
        checkpoint = [] if step is None else self.complete()[step]
        return copied(self.store, self.address, [*files, *checkpoint], self.address.key)

    def _describe(self, entries: Sequence[Entry]) -> Description:
        entry = next(entry for entry in entries if entry.key.endswith(f"/{DESCRIPTION}"))
        what = str(self.store.address(entry.key))
        if entry.size > MAX_DESCRIPTION:
            raise DataError(f"{what} has {entry.size} bytes", why="that is no description of a checkpoint")
        return parse_document(bytes(self.store.read(entry)), Description, what)


def source_path(source: str | Path) -> Path:
    """The path of a model that somebody names: a run, a checkpoint, or a folder or file of weights. Of an address, that
    of a copy here; of a run there, with its newest complete checkpoint alone."""
    if not is_address(source):
        return user_path(source)
    exact = exact_source(str(source))
    part = _PART.fullmatch(Address.parse(exact).key)
    if part is None or Address.parse(exact).scheme == "file":
        return local_path(exact)
    run = StoredRun.look(_run_of(Address.parse(exact), part))
    return run.copy(part["which"]) / FOLDER / part["which"]


def exact_source(source: str) -> str:
    """The address of one checkpoint, where a run is named: others of this job take it, too, whatever comes later."""
    address = Address.parse(source)
    if address.scheme == "file":
        return source
    part = _PART.fullmatch(address.key)
    run = StoredRun.look(address if part is None else _run_of(address, part))
    step = run.choose(None if part is None else part["which"])
    return source if step is None else str(run.address / FOLDER / step)


def superfluous(steps: Collection[str], best: str | None, keep: int | None) -> list[str]:
    """Of checkpoints, those that are neither among the newest `keep` nor the best; None keeps all."""
    return [] if keep is None else sorted(step for step in steps if step != best)[:-keep]


def _run_of(address: Address, part: re.Match[str]) -> Address:
    return Address(address.scheme, address.bucket, part["run"])
