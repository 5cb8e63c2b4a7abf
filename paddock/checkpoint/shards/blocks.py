"""Files with a checksum for every block, so that whoever reads a part of one can tell whether it is what was written.

Bytes go from memory to the file and back without a copy in between, and are checked while they are in the cache.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from torch import Tensor, uint8

from paddock.documents import Document
from paddock.errors import DataError
from paddock.files import no_follow

BLOCK = 1 << 18
"""Small enough that a shard's ragged ends cost little, large enough that the work is not in the counting."""
DIGITS = 8


class FileRecord(Document):
    """What a file must be: its length, and the CRC-32 of every block, as hexadecimal digits in one string."""

    length: int = Field(alias="bytes", ge=0)
    checksums: str = Field(alias="crc32", pattern=r"^[0-9a-f]*$")
    kept_by: str | None = None
    """Where it is, HOST:FOLDER, if the machine that wrote it had no storage in common with the first one."""

    @model_validator(mode="after")
    def _every_block_has_one(self) -> Self:
        blocks = -(-self.length // BLOCK)
        if len(self.checksums) != blocks * DIGITS:
            raise ValueError(f"crc32 has {len(self.checksums)} digits, and {self.length} bytes need {blocks * DIGITS}")
        return self

    def checksum(self, block: int) -> int:
        return int(self.checksums[block * DIGITS : (block + 1) * DIGITS], 16)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))  # a single element may have any stride
    return flat.view(uint8).numpy().data


class BlockWriter:
    """Writes a file from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "wb", opener=no_follow)  # noqa: SIM115 - closed by close()
        self._length = self._checksum = 0
        self._checksums: list[str] = []

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        rest = memoryview(data)
        while rest:
            piece = rest[: BLOCK - self._length % BLOCK]
            self._stream.write(piece)
            self._checksum = zlib.crc32(piece, self._checksum)
            self._length += len(piece)
            if self._length % BLOCK == 0:
                self._end_block()
            rest = rest[len(piece) :]

    def finish(self) -> FileRecord:
        """Bring everything to the disk; returns what to check it against."""
        if self._length % BLOCK:
            self._end_block()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return FileRecord(bytes=self._length, crc32="".join(self._checksums))

    def close(self) -> None:
        """Give up, or nothing after `finish`."""
        self._stream.close()

    def _end_block(self) -> None:
        self._checksums.append(f"{self._checksum:0{DIGITS}x}")
        self._checksum = 0


class BlockReader:
    """Reads parts of a file, and checks every block that it touches. Going forward, it reads no block twice."""

    def __init__(self, path: Path, record: FileRecord) -> None:
        self._path, self._record = path, record
        try:
            if path.resolve().parent != path.parent.resolve():
                raise self._damaged("it is a link to a file outside of its folder")
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise self._damaged("it is not a file")
            self._stream = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise self._damaged("it is missing") from None
        except (OSError, RuntimeError) as error:  # the second is what a link to itself gives
            raise self._damaged(getattr(error, "strerror", None) or str(error)) from None
        length = os.fstat(self._stream.fileno()).st_size
        if length != record.length:
            self._stream.close()
            raise self._damaged(f"it has {length} bytes, and {record.length} were written")
        self._block = memoryview(bytearray(min(BLOCK, record.length)))
        self._in_block: int | None = None

    def read(self, start: int, into: memoryview) -> None:
        """Fill `into` with the bytes from `start` on."""
        position, stop = start, start + len(into)
        if stop > self._record.length:
            raise self._damaged(f"it ends at byte {self._record.length}, and is said to have something at {stop}")
        while position < stop:
            index = position // BLOCK
            first, last = index * BLOCK, min((index + 1) * BLOCK, self._record.length)
            end = min(last, stop)
            target = into[position - start : end - start]
            if len(target) == last - first and index != self._in_block:
                self._read_block(index, target)
            else:
                if index != self._in_block:
                    self._in_block = None
                    self._read_block(index, self._block[: last - first])
                    self._in_block = index
                target[:] = self._block[position - first : end - first]
            position = end

    def close(self) -> None:
        self._stream.close()

    def _read_block(self, index: int, into: memoryview) -> None:
        try:
            self._stream.seek(index * BLOCK)
            rest = into
            while rest:
                count = self._stream.readinto(rest)
                if not count:
                    raise self._damaged("it ends early")
                rest = rest[count:]
        except OSError as error:
            raise self._damaged(error.strerror or str(error)) from None
        if zlib.crc32(into) != self._record.checksum(index):
            raise self._damaged(f"the bytes from {index * BLOCK} on are not those that were written")

    def _damaged(self, why: str) -> DataError:
        return damaged(self._path, why)


class DamagedCheckpoint(DataError):
    """A checkpoint that is not what was written. The one before it may be."""


def instead_of(checkpoint: Path) -> str:
    """What to do about a checkpoint that cannot be used: there may be an earlier one of the same run."""
    here = checkpoint.absolute()
    others = sorted(path for path in here.parent.glob("step-*/checkpoint.json") if path.parent.name < here.name)
    if not others:
        return "copy it again"
    return f"copy it again, or load an earlier checkpoint of the same run: --checkpoint.load {others[-1].parent}"


def damaged(file: Path, why: str) -> DamagedCheckpoint:
    """The error of a file that is not what was written."""
    return DamagedCheckpoint(f"the checkpoint file {file} is damaged", why=why, fix=instead_of(file.parent))
