"""Copies of objects on this machine: made once, however many processes ask for them, and kept for next time.

A copy lies in a folder whose name is a digest of the address and of everything that the store says of the objects: what
changes there is another folder here. It gets its name when it is complete and what it should be. What a killed process
had of it goes on where it broke off: ranges are asked for by the ETag, so that two versions are never mixed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from glob import escape
from pathlib import Path
from threading import Event
from time import sleep

from paddock.errors import DataError, MachineError
from paddock.files import disk_errors, sync_tree, user_cache, user_path
from paddock.objects.address import COPIES, Address, is_address
from paddock.objects.store import PART, Changed, Entry, Missing, Store, Unreachable
from paddock.process import announced, progress
from paddock.telemetry.screen.terminal import byte_progress_bar

AT_ONCE = 4
"""Objects that are fetched at the same time."""
ATTEMPTS = 5
"""At each range, on top of those that the library makes by itself."""
SECONDS_BETWEEN = 1.0
"""After the first; each time twice as many."""
UNFINISHED = ".unfinished"


def local_path(text: str | Path) -> Path:
    """A path as somebody wrote it; of an address, that of its copy here, which is made if there is none.

    An address names an object, or all that lies below it, or the files that begin with it and a dot (PREFIX.bin and
    PREFIX.idx). A process that has asked once goes on with the same version.
    """
    return _copy_of(text) if isinstance(text, str) and is_address(text) else user_path(text)


@cache
def _copy_of(text: str) -> Path:
    address = Address.parse(text)
    if address.scheme == "file":
        return Path("/" + address.key)
    store = Store(address)
    if (entry := store.find(address.key) if address.key else None) is not None:
        return copied(store, address, [entry], _parent(address.key)) / address.name
    if entries := store.below(address.key):
        return copied(store, address, entries, address.key)
    entries = [entry for entry in store.beside(address.key) if ".paddock/" not in entry.key] if address.key else []
    if not entries:
        raise DataError(
            f"there is nothing at {address}",
            why="no object is called so, and no name begins so",
            fix="check the address and the bucket",
        )
    return copied(store, address, entries, _parent(address.key)) / address.name


def copied(store: Store, address: Address, entries: Sequence[Entry], below: str) -> Path:
    """The folder in which these objects lie, under their names without `below`."""
    folder = user_cache() / COPIES / f"{address.name}-{_digest(str(address), entries)}"
    if not folder.is_dir():
        fetch(store, entries, below, folder, str(address))
    return folder


def fetch(
    store: Store,
    entries: Sequence[Entry],
    below: str,
    folder: Path,
    title: str,
    complete: Callable[[Path], None] = lambda folder: None,
) -> bool:
    """Fill a folder that is not there yet. Of several processes that want it at once, one does, and the others wait.
    `complete` may add to it before it gets its name. Whether it was this one."""
    unfinished = folder.with_name(f".{folder.name}-{_digest(title, entries)}{UNFINISHED}")
    places = {_inside(unfinished, entry.key, below): entry for entry in entries}
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f".{folder.name}.lock"), title):
        if folder.is_dir():
            return False
        for other in folder.parent.glob(f".{escape(folder.name)}-*{UNFINISHED}"):
            if other != unfinished:  # of what has changed there since
                shutil.rmtree(other, ignore_errors=True)
        missing = sum(entry.size - _had(place, entry) for place, entry in places.items())
        _check_room(folder.parent, missing, title)
        with byte_progress_bar(f"fetching {title}", missing) as advance, ThreadPoolExecutor(AT_ONCE) as threads:
            stop = Event()
            tell = partial(_go_on, stop, advance)
            jobs = [threads.submit(_fetch_one, store, place, entry, tell) for place, entry in places.items()]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                stop.set()
                threads.shutdown(cancel_futures=True)
                raise
        with disk_errors(folder):
            complete(unfinished)
            sync_tree(unfinished)
            os.rename(unfinished, folder)
        return True


def _digest(title: str, entries: Sequence[Entry]) -> str:
    """Of an address, and everything that the store says of its objects."""
    versions = repr((title, [(entry.key, entry.size, entry.etag) for entry in entries]))
    return hashlib.sha256(versions.encode()).hexdigest()[:16]


def _go_on(stop: Event, advance: Callable[[int], None], count: int) -> None:
    """After each range: tell of it, and end here, if another object has failed or somebody pressed Ctrl-C."""
    advance(count)
    progress()
    if stop.is_set():
        raise Unreachable("fetching was stopped")


def _fetch_one(store: Store, place: Path, entry: Entry, tell: Callable[[int], None]) -> None:
    """Fetch what is not there of an object; once more from its beginning, where that does not give the right sum."""
    with disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        for is_last in (False, True):
            had = _had(place, entry)
            with open(place, "r+b" if had else "wb") as stream:
                for start in range(had, entry.size, PART):
                    end = min(start + PART, entry.size)
                    stream.seek(start)
                    stream.write(_range(store, entry, start, end))
                    stream.flush()
                    tell(end - start)
            if store.holds(entry, place):
                break
            place.unlink()
            if is_last:
                raise DataError(
                    f"{store.address(entry.key)} arrives damaged",
                    why="twice, its sum is not the one that the store states",
                    fix="write the object anew",
                )
        stamp = entry.modified.timestamp()
        os.utime(place, (stamp, stamp))


def _range(store: Store, entry: Entry, start: int, end: int) -> memoryview:
    for attempt in range(ATTEMPTS):
        try:
            return store.read(entry, start, end)
        except Missing:
            raise Changed(f"{store.address(entry.key)} was removed while it was read", fix="start again") from None
        except Unreachable:
            if attempt == ATTEMPTS - 1:
                raise
            sleep(SECONDS_BETWEEN * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _had(place: Path, entry: Entry) -> int:
    """Bytes of an object that are there already: as many as were written in a row."""
    try:
        size = os.path.getsize(place)
    except FileNotFoundError:
        return 0
    return size if size <= entry.size else 0


def _check_room(folder: Path, size: int, title: str) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise MachineError(
            f"{title} does not fit into {folder}",
            why=f"it takes {size / 1e9:.1f} GB more, and {free / 1e9:.1f} GB are free",
            fix="free some space, or choose another place: XDG_CACHE_HOME",
        )


def _inside(folder: Path, key: str, below: str) -> Path:
    """Where an object lies in a folder; never outside of it, whatever a store says it is called."""
    name = key.removeprefix(below).strip("/")
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise DataError(f"an object is called {key!r}", why="that is no name that a file can have", fix="rename it")
    return folder / name


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


@contextmanager
def _alone(lock: Path, title: str) -> Iterator[None]:
    """Be the only process of this machine inside."""
    with disk_errors(lock):
        stream = open(lock, "ab")  # noqa: SIM115 (closed below)
    with stream:
        with announced(f"waiting for another process, which fetches {title}"):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
        lock.unlink(missing_ok=True)
