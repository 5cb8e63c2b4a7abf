"""A store of objects, through obstore: what lies below an address, ranges of it, new objects, and errors that say what
a person can do.

What was transferred is held against the sum that the store keeps of it: an ETag is the MD5 of an object, or of the MD5s
of its parts, in most stores. In the others (where a bucket is encrypted with keys of its owner) it is no sum of the
content; then what was written is read once more.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from paddock.errors import DataError, MachineError, UserError, shown
from paddock.objects.address import Address
from paddock.objects.settings import HOW, s3_settings
from paddock.versions import redacted

MIB = 1 << 20
PART = 8 * MIB
"""Bytes that an object is sent in, each with a sum of its own."""
MOST_PARTS = 9_000
OF_OTHERS = (5 * MIB, 8 * MIB, 15 * MIB, 16 * MIB, 50 * MIB, 64 * MIB, 100 * MIB, 128 * MIB)
"""The parts in which other programs send objects."""
RETRIES, SECONDS_OF_RETRIES, SECONDS_OF_SILENCE = 4, 20, 60
"""What the library does by itself about a failing request, before it is an error here."""
_SUM = re.compile(r"([0-9a-f]{32})(?:-(\d+))?")
_ADDRESS_OF_THE_MACHINE = "169.254."
"""Where the library asks a cloud's machine for its credentials, if nobody has given any."""


class Unreachable(MachineError):
    """A request that failed, and may succeed at another time."""


class Refused(MachineError):
    """A request that the store will not grant to these credentials."""


class Missing(DataError):
    """There is no such object, or no such bucket."""


class Changed(DataError):
    """An object is another one than it was."""


@dataclass(frozen=True)
class Entry:
    """An object, as a store lists it."""

    key: str
    size: int
    etag: str
    modified: datetime


class Store:
    """The bucket of an address; of a `file://`, the file system."""

    def __init__(self, address: Address) -> None:
        self._root = Address(address.scheme, address.bucket, "")
        self._store: Any = _opened(address)
        self._etags_are_sums = address.scheme != "file"

    def find(self, key: str) -> Entry | None:
        """The object of this name, if there is one."""
        import obstore

        try:
            with self._told(key):
                return _entry(obstore.head(self._store, key))
        except Missing:
            return None

    def below(self, key: str) -> list[Entry]:
        """All objects whose names begin with this one and a slash, by their names."""
        import obstore

        with self._told(key):
            found = [_entry(meta) for page in obstore.list(self._store, prefix=key or None) for meta in page]
        return sorted((one for one in found if one.key != key), key=lambda entry: entry.key)

    def beside(self, key: str) -> list[Entry]:
        """All objects whose names begin with this one and a dot, as the files of a corpus do."""
        import obstore

        parent, _, name = key.rpartition("/")
        with self._told(key):
            level = obstore.list_with_delimiter(self._store, prefix=parent or None)
        files = [_entry(meta) for meta in level["objects"]]
        folders = [folder for folder in level["common_prefixes"] if _last(folder).startswith(f"{name}.")]
        found = [one for one in files if _last(one.key).startswith(f"{name}.")]
        return found + [one for folder in folders for one in self.below(folder)]

    def read(self, entry: Entry, start: int = 0, end: int | None = None) -> memoryview:
        """A range of an object, if it is still the one that was listed."""
        import obstore

        end = entry.size if end is None else end
        if start == end:
            return memoryview(b"")
        with self._told(entry.key):
            options: Any = {"range": (start, end)} | ({"if_match": entry.etag} if entry.etag else {})
            content = memoryview(obstore.get(self._store, entry.key, options=options).bytes())
        if len(content) != end - start:
            raise Unreachable(
                f"{self.address(entry.key)} broke off",
                why=f"{len(content)} of {end - start} bytes came",
                fix="try again",
            )
        return content

    def write(self, key: str, path: Path) -> None:
        """Copy a file into the store, whole or not at all, and make sure that what lies there is what was sent."""
        import obstore

        size = os.path.getsize(path)
        part = part_size(size)
        with self._told(key):
            obstore.put(self._store, key, path, chunk_size=part, max_concurrency=4)
            entry = _entry(obstore.head(self._store, key))
        if entry.size != size or not self.holds(entry, path):
            raise Unreachable(f"{self.address(key)} is not what was sent there", why="its size or its sum differs")

    def write_bytes(self, key: str, content: bytes) -> None:
        """Write a small object."""
        import obstore

        with self._told(key):
            obstore.put(self._store, key, content)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, in this order; what is not there is none the worse."""
        import obstore

        for key in keys:
            try:
                with self._told(key):
                    obstore.delete(self._store, key)
            except Missing:
                pass

    def holds(self, entry: Entry, path: Path) -> bool:
        """Whether a file has the content of an object of the same size, as far as the store can tell."""
        sums = _SUM.fullmatch(entry.etag.strip('"').lower()) if self._etags_are_sums else None
        if sums is None or self.has_sum_of(entry, path):
            return True
        number = int(sums.group(2) or 0)
        if number and -(-entry.size // part_size(entry.size)) != number:
            return True  # sent by another program, in parts of an unknown size
        pieces = (self.read(entry, start, min(start + PART, entry.size)) for start in range(0, entry.size, PART))
        stored = hashlib.md5(usedforsecurity=False)
        for piece in pieces:
            stored.update(piece)
        if stored.hexdigest() != _sum_in_parts(path, 0):
            return False
        self._etags_are_sums = False
        return True

    def has_sum_of(self, entry: Entry, path: Path) -> bool:
        """Whether the sum that the store has of an object is that of a file."""
        sums = _SUM.fullmatch(entry.etag.strip('"').lower())
        if not self._etags_are_sums or sums is None or entry.size != os.path.getsize(path):
            return False
        number = int(sums.group(2) or 0)
        parts = [part_size(entry.size), *OF_OTHERS] if number else [0]
        fitting = [part for part in parts if not number or -(-entry.size // part) == number]
        return any(_sum_in_parts(path, part) == sums.group() for part in fitting)

    def address(self, key: str) -> Address:
        """Of an object, for people."""
        return self._root / key

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn what the library says into errors that name the address and the remedy."""
        from obstore import exceptions

        address = self.address(key)
        try:
            yield
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise Refused(f"{address}: the store refuses", why=_words(error), fix=HOW) from None
        except FileNotFoundError as error:
            raise _missing(address, error) from None
        except exceptions.PreconditionError:
            raise Changed(
                f"{address} was replaced while it was read", fix="start again when nobody writes there"
            ) from None
        except exceptions.BaseError as error:
            raise _failure(address, error) from None


def part_size(size: int) -> int:
    """Bytes of each part in which an object of this size is sent."""
    return max(PART, -(-size // (MOST_PARTS * MIB)) * MIB)


def _opened(address: Address) -> Any:
    try:
        from obstore.store import LocalStore, S3Store
    except ImportError:
        raise MachineError(
            f"{address} cannot be reached",
            why="the library for it is not installed",
            fix="pip install 'paddock[objects]'",
        ) from None
    if address.scheme == "file":
        return LocalStore("/")
    settings = s3_settings()
    client = {"timeout": timedelta(hours=1), "read_timeout": timedelta(seconds=SECONDS_OF_SILENCE)}
    retries = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=SECONDS_OF_RETRIES)}
    plain = settings.get("endpoint", "").startswith("http://")
    options: Any = {**client, "allow_http": plain}
    return S3Store(address.bucket, config=settings, client_options=options, retry_config=retries)  # type: ignore[arg-type]


def _entry(meta: Any) -> Entry:
    return Entry(meta["path"], meta["size"], meta["e_tag"] or "", meta["last_modified"])


def _last(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _missing(address: Address, error: Exception) -> UserError:
    if "NoSuchBucket" in str(error):
        return Missing(
            f"there is no bucket {address.bucket}", why=f"for {address}", fix="make it, or check the address"
        )
    return Missing(f"there is no {address}", fix="check the address")


def _failure(address: Address, error: Exception) -> UserError:
    words = _words(error)
    if _ADDRESS_OF_THE_MACHINE in words:
        return Refused(f"{address}: there are no credentials", why="neither in the environment nor in a file", fix=HOW)
    if "403 Forbidden" in str(error) or "401 Unauthorized" in str(error):  # of a list: of an object it has a class
        return Refused(f"{address}: the store refuses", why=words, fix=HOW)
    if "NoSuchBucket" in str(error):
        return _missing(address, error)
    if os.path.lexists("/" + address.key) and address.scheme == "file":
        return MachineError(f"{address} cannot be used", why=words, fix="check the path and who may write there")
    where = s3_settings().get("endpoint", "Amazon") if address.scheme != "file" else "the file system"
    return Unreachable(
        f"{address} cannot be reached at {where}", why=words, fix="check AWS_ENDPOINT_URL and the network"
    )


def _words(error: Exception) -> str:
    """What the library says, without the structures that it prints behind it."""
    text = str(error).partition("\n\nDebug source")[0]
    return shown(redacted([" ".join(text.split())])[0])


def _sum_in_parts(path: Path, part: int) -> str:
    """What a store says of a file that was sent to it in such parts; 0: in one piece."""
    with open(path, "rb") as stream:
        if not part:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        sums = []
        while piece := stream.read(part):
            sums.append(hashlib.md5(piece, usedforsecurity=False).digest())
    return f"{hashlib.md5(b''.join(sums), usedforsecurity=False).hexdigest()}-{len(sums)}"
