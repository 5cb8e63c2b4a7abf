"""Readers with faults that are meant: what the fuzzer must find, and what it must not."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path

from engine import Reader
from mutation import Files, json_mutator

from paddock.errors import DataError

TEXT = b"a text of some length, in which something is hit"


def seeds() -> list[Files]:
    return [{"file": zlib.crc32(TEXT).to_bytes(4, "big") + TEXT}]


def changed(folder: Path) -> bool:
    return (folder / "file").read_bytes() != seeds()[0]["file"]


def json_seeds() -> list[Files]:
    return [{"file.json": json.dumps({"name": "x", "sizes": [1, 2, 3], "more": {"depth": 4}}).encode()}]


def raises(folder: Path) -> object:
    """Takes for granted what a file says."""
    try:
        values = json.loads((folder / "file.json").read_bytes())
    except (ValueError, RecursionError):
        raise DataError("not JSON") from None
    if not isinstance(values, dict):
        raise DataError("not an object")
    return values["name"]


def sleeps(folder: Path) -> None:
    if changed(folder):
        time.sleep(1000)


def loops(folder: Path) -> None:
    while changed(folder):
        pass


def eats(folder: Path) -> None:
    if changed(folder):
        bytearray(2 << 30)


def eats_and_refuses(folder: Path) -> None:
    try:
        eats(folder)
    except MemoryError:
        raise DataError("too large") from None


def dies(folder: Path) -> None:
    if changed(folder):
        os.abort()


def rambles(folder: Path) -> None:
    if changed(folder):
        raise DataError("x" * 100_000)


def believes(folder: Path) -> object:
    return (folder / "file").read_bytes()[4:]


def checks(folder: Path) -> object:
    content = (folder / "file").read_bytes()
    if zlib.crc32(content[4:]).to_bytes(4, "big") != content[:4]:
        raise DataError("damaged")
    return content[4:]


READERS = [
    Reader("raises", json_seeds, raises, {".json": json_mutator()}, share=8),
    *(Reader(one.__name__, seeds, one) for one in (sleeps, loops, eats, eats_and_refuses, dies, rambles)),
    Reader("believes", seeds, believes, exact=True),
    Reader("checks", seeds, checks, exact=True, forge=lambda rng, files: files),
]
