"""A corpus in both forms, as bytes written out by hand from the format's description rather than by our writer."""

from __future__ import annotations

import struct
from pathlib import Path

# Two documents, [[1, 2, 3]] and [[4], []], of u16 tokens.
TOKENS = struct.pack("<4H", 1, 2, 3, 4)
INDEX = (
    b"MMIDIDX\x00\x00"
    + struct.pack("<Q", 1)  # version
    + struct.pack("<B", 8)  # u16
    + struct.pack("<Q", 3)  # sequences
    + struct.pack("<Q", 3)  # document borders
    + struct.pack("<3i", 3, 1, 0)  # sizes
    + struct.pack("<3q", 0, 6, 8)  # byte pointers
    + struct.pack("<3q", 0, 1, 3)  # borders
)
LEGACY = (
    b"TNTIDX\x00\x00"
    + struct.pack("<Q", 1)  # version
    + struct.pack("<Q", 8)  # u16
    + struct.pack("<Q", 2)  # bytes of a token
    + struct.pack("<Q", 3)  # items
    + struct.pack("<Q", 3)  # sizes
    + struct.pack("<Q", 3)  # document borders
    + struct.pack("<4q", 0, 1, 2, 3)  # dimension offsets
    + struct.pack("<4q", 0, 3, 4, 4)  # data offsets, in tokens
    + struct.pack("<3q", 3, 1, 0)  # sizes
    + struct.pack("<3q", 0, 1, 3)  # borders
)


def put(folder: Path, index: bytes = INDEX, tokens: bytes = TOKENS, name: str = "corpus") -> Path:
    """Write a corpus of these bytes and give its prefix."""
    for suffix, content in ((".idx", index), (".bin", tokens)):
        path = folder / f"{name}{suffix}"
        path.unlink(missing_ok=True)  # some file systems flush a file that is written over, which is slow
        path.write_bytes(content)
    return folder / name


def patched(content: bytes, position: int, layout: str, value: int) -> bytes:
    """The bytes with a number of another value at some position."""
    packed = struct.pack(layout, value)
    return content[:position] + packed + content[position + len(packed) :]
