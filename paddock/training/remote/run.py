"""A run that is kept in a store: it works in a folder here, and a copy of that folder follows behind training.

Whoever goes on with it elsewhere fetches the newest complete checkpoint. One process at a time writes there: it says
who it is in `.holder`, and one that finds somebody else's name there stops writing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.stored_run import StoredRun
from paddock.documents import Document, parse_document
from paddock.errors import ConfigError, UserError
from paddock.files import atomic_write
from paddock.objects.address import Address, is_address
from paddock.objects.fetch import fetch
from paddock.objects.store import Store
from paddock.process import unhurried
from paddock.training.remote.uploader import TakenOver, Uploader
from paddock.training.run_directory.files import ATTEMPTS, CONFIG
from paddock.training.run_directory.lock import Holder

HOLDER = ".holder"
MARK = ".address"
"""In the folder here: where its copy is."""


class Claim(Document):
    """Who writes to a run in a store."""

    token: str
    holder: Holder


class RemoteRun:
    """The address of a run, and the folder here in which it works."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.address, self.folder = address, folder

    @staticmethod
    def at(address: str) -> RemoteRun:
        """The run of an address, which works in `runs/<its name>`."""
        place = Address.parse(address)
        if not place.key:
            raise ConfigError(f"{place} is a whole bucket", fix=f"give the run a name: {place}/runs/NAME")
        return RemoteRun(place, Path("runs") / place.name)

    @staticmethod
    def of(run_dir: str | Path) -> RemoteRun | None:
        """The run of an address, or of a folder in which such a run works; None for any other folder."""
        if is_address(run_dir):
            return RemoteRun.at(str(run_dir))
        mark = Path(run_dir) / MARK
        if not mark.is_file():
            return None
        return RemoteRun(Address.parse(mark.read_text(encoding="utf-8").strip()), mark.parent)

    def prepare(self, goes_on: bool, leads: bool) -> None:
        """Make ready to train, or raise an error before any work; one process `leads`, and looks for all."""
        if leads:
            self._check(goes_on)
        if goes_on:
            self.brought()

    def _check(self, goes_on: bool) -> None:
        """An error, if the run cannot be kept there: the place is in use, or refuses."""
        self._check_folder()
        there = StoredRun.look(self.address)
        if self.is_here():
            self._check_newest(there)
        elif not goes_on and any(there.name(entry) == CONFIG for entry in there.entries):
            raise ConfigError(
                f"{self.address} already holds a run",
                why="a new run would mix with it",
                fix=f"continue it with `paddock resume {self.address}`, or choose another --run-dir",
            )

    def brought(self) -> Path:
        """The folder here, with what is needed to go on, which is fetched unless the run is here, or nowhere yet."""
        self._check_folder()
        there = StoredRun.look(self.address)
        if self.is_here() or not there.files():
            return self.folder
        newest = there.choose(None)
        entries = [*there.files(), *([] if newest is None else there.complete()[newest])]
        if fetch(there.store, entries, self.address.key, self.folder, str(self.address), self._mark):
            print(f"note: {self.address} goes on in {self.folder}, from {newest or 'its beginning'}", file=sys.stderr)
        return self.folder

    def is_here(self) -> bool:
        """Whether this machine has a folder of the run."""
        return (self.folder / CONFIG).is_file()

    @contextmanager
    def kept(self, verb: str, keep: int | None) -> Iterator[None]:
        """Let the copy follow the folder inside, and be complete afterwards, or say what is not there."""
        if not self.is_here():
            print(f"note: the run works in {self.folder}, and is copied to {self.address}", file=sys.stderr)
        store, claim = Store(self.address), Claim(token=os.urandom(8).hex(), holder=Holder.me(verb))
        place = (self.address / HOLDER).key
        store.write_bytes(place, json.dumps(claim.model_dump()).encode())
        self._mark(self.folder)
        uploader = Uploader(self.folder, self.address, keep, lambda: _check_claim(store, place, claim))
        uploader.start()
        try:
            yield
        except BaseException:
            try:
                if self.is_here():
                    self._finish(uploader)
                else:
                    (self.folder / MARK).unlink()  # what is made for nothing goes again
                    uploader.finish()
                store.delete([place])
            except UserError as error:
                print(f"note: {error}", file=sys.stderr)
            raise
        self._finish(uploader)
        try:
            store.delete([place])
        except UserError as error:  # all is there; whoever goes on writes another name over ours
            print(f"note: {error.what}, and still says that this process writes there", file=sys.stderr)

    def _finish(self, uploader: Uploader) -> None:
        left = uploader.remaining()
        if any(name.startswith(FOLDER) for name in left):
            print(f"note: uploading what is left to {self.address}; Ctrl-C leaves it here", file=sys.stderr)
        with unhurried(), _patient():
            uploader.finish()
        print(f"note: all of {self.folder} is in {self.address}", file=sys.stderr)

    def _mark(self, folder: Path) -> None:
        with atomic_write(folder / MARK) as stream:
            stream.write(f"{self.address}\n")

    def _check_folder(self) -> None:
        """An error, if the folder here is something else's."""
        known = RemoteRun.of(self.folder)
        if (self.is_here() and known is None) or (known is not None and known.address != self.address):
            of_what = "a run that is only here" if known is None else f"the run {known.address}"
            raise ConfigError(
                f"{self.address} would work in {self.folder}",
                why=f"that folder is {of_what}",
                fix="choose another name, or start in another working directory",
            )

    def _check_newest(self, there: StoredRun) -> None:
        """An error, if another machine has gone on with the run since it was here."""
        names = [there.name(entry).split("/") for entry in there.entries]
        elsewhere = max((int(name[1]) for name in names if name[0] == ATTEMPTS and name[1].isdecimal()), default=0)
        here = max((int(path.name) for path in self.folder.glob(f"{ATTEMPTS}/*") if path.name.isdecimal()), default=0)
        if elsewhere > here:
            raise ConfigError(
                f"{self.folder} is behind {self.address}",
                why=f"the run has gone on elsewhere: it was begun {elsewhere} times, and {here} times from here",
                fix=f"remove or rename {self.folder}: it is then fetched as it is there",
            )


@contextmanager
def _patient() -> Iterator[None]:
    """Go on at SIGTERM and SIGHUP: who sends them wants what there is to be saved, and that is under way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _check_claim(store: Store, place: str, mine: Claim) -> None:
    entry = store.find(place)
    said = None if entry is None else parse_document(bytes(store.read(entry)), Claim, str(store.address(place)))
    if said is None or said.token != mine.token:
        who = "somebody" if said is None else f"process {said.holder.pid} on {said.holder.host}"
        raise TakenOver(
            f"{store.address(place)} is not ours any more",
            why=f"{who} has taken the run over: nothing more is uploaded from here",
            fix="stop one of them",
        )
