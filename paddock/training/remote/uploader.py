"""Copies of a run directory's files in a store, behind training: a thread looks what is new, and brings it there.

Whoever reads there finds what was complete here. Of a checkpoint the weights come first, then what the run says of
itself, and last the checkpoint's description, which makes it count; one that is to go loses its description first.
What fails is tried again, and never ends the training.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.description import CheckpointFiles, Description
from paddock.checkpoint.names import DESCRIPTION, complete_checkpoints
from paddock.checkpoint.stored_run import StoredRun, superfluous
from paddock.documents import read_document
from paddock.errors import DataError, MachineError, UserError
from paddock.files import disk_errors
from paddock.objects.address import Address
from paddock.process import progress

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_SMALL_FILES = 30.0
TIMES_THEIR_DURATION = 20
"""Metrics are sent whole each time: of a long run, so much more seldom as it takes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds after a failure; each time twice as many."""
ATTEMPTS_AT_THE_END = 6
STAGED = ".uploading"
"""Holds a checkpoint that is on its way by links to its files: it may be dropped here meanwhile."""


class TakenOver(MachineError):
    """Another process writes to the same place."""


class Uploader:
    """The thread, for as long as the run lasts. `check` raises an error when it must not write any more."""

    def __init__(self, folder: Path, address: Address, keep: int | None, check: Callable[[], None]) -> None:
        self._folder, self._keep, self._check = folder, keep, check
        self._run = StoredRun.look(address)
        self._store, self._address = self._run.store, address
        self._there = {step: {entry.key for entry in entries} for step, entries in self._run.steps().items()}
        self._complete = set(self._run.complete())
        self._known = {entry.key: entry for entry in self._run.entries}
        self._published: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, int]] = {}
        self._delivered: dict[str, tuple[int, int]] = {}
        self._small_files_due = 0.0
        self._may_drop = True
        """Whether a checkpoint has come since the store was last tidied."""
        self._ending, self._ended = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)

    def start(self) -> None:
        """Begin. A remainder of a process that is no more goes first."""
        shutil.rmtree(self._folder / STAGED, ignore_errors=True)
        self._thread.start()

    def finish(self) -> None:
        """Until everything is there; an error that says what is not, if that cannot be, or at Ctrl-C."""
        self._ending.set()
        try:
            while not self._ended.wait(0.2):
                progress()
        except KeyboardInterrupt:
            raise self._incomplete("it was interrupted") from None
        finally:
            shutil.rmtree(self._folder / STAGED, ignore_errors=True)
        if self._failure is not None:
            raise self._incomplete(str(getattr(self._failure, "why", "") or self._failure)) from self._failure

    def remaining(self) -> list[str]:
        """Names of checkpoints and files that are not in the store as they are here."""
        steps = [f"{FOLDER}/{path.name}" for path in self._new_checkpoints()]
        return steps + [name for name, path in self._small_files() if self._sent.get(name) != _stamp(path)]

    def _work(self) -> None:
        """The thread's life: look, and after a failure pause; at the end until all is there or there is no hope."""
        pause, failures = SHORTEST_PAUSE, 0
        while True:
            is_last = self._ending.wait(pause if failures else SECONDS_BETWEEN_LOOKS)
            try:
                self._bring_everything(is_last)
            except BaseException as error:  # the library's panics, too: whoever waits for the end must hear of it
                failures += 1
                if is_last and (failures > ATTEMPTS_AT_THE_END or isinstance(error, TakenOver)):
                    self._failure = error
                    break
                if failures == 1:
                    _say(f"{self._address}: uploading fails, and is tried again: {_first_line(error)}")
                pause = min(pause * 2, LONGEST_PAUSE)
                if is_last:
                    time.sleep(pause)
            else:
                if failures:
                    _say(f"{self._address}: uploading goes on")
                pause, failures = SHORTEST_PAUSE, 0
                if is_last:
                    break
        self._ended.set()

    def _bring_everything(self, is_last: bool) -> None:
        failure: Exception | None = None
        for path in reversed(self._new_checkpoints()):  # older ones may be dropped before their turn comes
            try:
                self._check()
                self._bring_checkpoint(path)
            except TakenOver:
                raise
            except Exception as error:  # of one, which is no reason to keep the others back
                failure = failure or error
        if failure is not None:
            raise failure
        now = time.monotonic()
        if is_last or now >= self._small_files_due:
            self._bring_small_files()
            self._small_files_due = now + max(
                SECONDS_BETWEEN_SMALL_FILES, TIMES_THEIR_DURATION * (time.monotonic() - now)
            )
        self._drop_superfluous()

    def _new_checkpoints(self) -> list[Path]:
        """Complete checkpoints here that are not known to be there."""
        found = []
        for path in complete_checkpoints(self._folder / FOLDER):
            stamp = _stamp(path / DESCRIPTION)
            if stamp is not None and self._published.get(path.name) != stamp and not path.name.startswith("."):
                found.append(path)
        return found

    def _bring_checkpoint(self, path: Path) -> None:
        stamp, key = _stamp(path / DESCRIPTION), self._key(FOLDER, path.name)
        staged = self._stage(path)
        if staged is None or stamp is None:
            return  # it was dropped here
        try:
            if not self._is_there(path.name, staged):
                if path.name in self._complete:
                    self._store.delete([f"{key}/{DESCRIPTION}"])
                    self._complete.discard(path.name)
                    self._delivered.pop(f"{key}/{DESCRIPTION}", None)
                for file in sorted(staged.iterdir()):
                    if file.name != DESCRIPTION:
                        self._send(f"{key}/{file.name}", file)
                        self._there.setdefault(path.name, set()).add(f"{key}/{file.name}")
                self._bring_small_files()
                self._check()
                self._send(f"{key}/{DESCRIPTION}", staged / DESCRIPTION)
                self._there[path.name].add(f"{key}/{DESCRIPTION}")
                self._complete.add(path.name)
            self._published[path.name] = stamp
            self._may_drop = True
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _stage(self, path: Path) -> Path | None:
        """Links to a checkpoint's files; None if it is dropped meanwhile. An error if some of them are elsewhere."""
        staged = self._folder / STAGED / path.name
        try:
            with disk_errors(staged):
                shutil.rmtree(staged, ignore_errors=True)
                staged.mkdir(parents=True)
                for file in path.iterdir():
                    os.link(file, staged / file.name)
            named = read_document(staged / DESCRIPTION, CheckpointFiles).files
        except (FileNotFoundError, MachineError, DataError):
            if path.exists():
                raise
            return None
        missing = [name for name in named if not (staged / name).is_file()]
        if missing:
            raise DataError(
                f"{path} has no {missing[0]}",
                why="the machines of this job write their parts into folders of their own",
                fix="begin it in a folder that all machines share",
            )
        return staged

    def _is_there(self, step: str, staged: Path) -> bool:
        """Whether the store has just this checkpoint; its description has the sums of all that belongs to it."""
        entry = self._known.get(f"{self._key(FOLDER, step)}/{DESCRIPTION}")
        if entry is None or step not in self._complete or entry.size != os.path.getsize(staged / DESCRIPTION):
            return False
        return bytes(self._store.read(entry)) == (staged / DESCRIPTION).read_bytes()

    def _send(self, key: str, path: Path) -> None:
        """Copy a file there, unless an earlier attempt came so far."""
        entry, stamp = self._known.get(key), _stamp(path)
        if self._delivered.get(key) == stamp:
            return
        if entry is None or not self._store.has_sum_of(entry, path):
            self._store.write(key, path)
        if stamp is not None:
            self._delivered[key] = stamp

    def _bring_small_files(self) -> None:
        for name, path in self._small_files():
            stamp = _stamp(path)
            if stamp is not None and self._sent.get(name) != stamp:
                self._store.write(self._key(name), path)
                self._sent[name] = stamp

    def _small_files(self) -> Iterator[tuple[str, Path]]:
        """What a run says of itself: all but its checkpoints, and what begins with a dot."""
        for place, folders, files in os.walk(self._folder):
            top = Path(place) == self._folder
            folders[:] = sorted(name for name in folders if name[0] != "." and not (top and name == FOLDER))
            for name in sorted(files):
                if name[0] != ".":
                    path = Path(place) / name
                    yield path.relative_to(self._folder).as_posix(), path

    def _drop_superfluous(self) -> None:
        """Drop there what is dropped here, by the same rule; and what was never completed."""
        newest = max(self._published, default=None)
        if not self._may_drop or newest is None or not self._complete:
            return
        path = self._folder / FOLDER / newest / DESCRIPTION
        best = f"step-{read_document(path, Description).best_step:08d}" if path.is_file() else None
        torn = [step for step in self._there if step not in self._complete and step < newest]
        for step in [*superfluous(self._complete, best, self._keep), *torn]:
            description = f"{self._key(FOLDER, step)}/{DESCRIPTION}"
            self._store.delete([description, *sorted(self._there[step] - {description})])
            self._complete.discard(step)
            del self._there[step]
        self._may_drop = False

    def _key(self, *names: str) -> str:
        return "/".join(part for part in (self._address.key, *names) if part)

    def _incomplete(self, why: str) -> MachineError:
        names = self.remaining()
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return MachineError(
            f"not everything is in {self._address}: {', '.join(names[:5])}{more}",
            why=why,
            fix=f"it is all here, in {self._folder}: paddock resume {self._folder} uploads the rest first",
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes with a file; None if it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def _first_line(error: BaseException) -> str:
    words = f"{error.what}: {error.why}" if isinstance(error, UserError) and error.why else str(error)
    return words.splitlines()[0] if words else type(error).__name__


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
