"""What a safetensors file begins with: the header's length (8 bytes, little-endian), then the header, JSON with the
type, the shape and the place of every tensor. The tensors follow without gaps.

Written here, since the library writes only what lies in memory at once; and read here, whoever wrote it: nothing of a
file is used before its header is known to describe just the bytes that are there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from paddock.documents import Document, parse_document, shape_json
from paddock.errors import DataError

CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the types that we write."""
DTYPES = {code: dtype for dtype, code in CODES.items()} | {
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
}
"""The types that a file may name."""

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000
"""The library's own limit."""
MAX_DIMENSIONS = 64
MAX_ELEMENTS = 1 << 48
METADATA = "__metadata__"

Size = Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]


class TensorEntry(Document):
    """What a header says of a tensor."""

    dtype: str = Field(max_length=20)
    shape: list[Size] = Field(max_length=MAX_DIMENSIONS)
    data_offsets: list[Annotated[int, Field(ge=0)]] = Field(min_length=2, max_length=2)

    @property
    def begin(self) -> int:
        return self.data_offsets[0]

    @property
    def end(self) -> int:
        return self.data_offsets[1]

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]


@dataclass(frozen=True)
class Header:
    """A header that fits its file."""

    metadata: dict[str, str]
    tensors: dict[str, TensorEntry]
    data: int
    """Where the first tensor begins in the file; their offsets count from there."""


def encode_header(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """What a file begins with, if these tensors follow in this order."""
    header: dict[str, object] = {METADATA: {"format": "pt", **(metadata or {})}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        start, position = position, position + num_bytes(shape, dtype)
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, position]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors begin aligned
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def read_header(read: Callable[[int, int], bytes], file_bytes: int, source: str) -> Header:
    """The header of a file of that length, whose bytes `read(start, count)` gives; a DataError that says why not."""
    room = min(file_bytes - LENGTH_BYTES, MAX_HEADER)
    if room < 0:
        raise _unfit(source, f"it has {file_bytes} bytes, and begins with {LENGTH_BYTES}")
    length = int.from_bytes(read(0, LENGTH_BYTES), "little")
    if length > room:
        raise _unfit(source, f"its header is said to have {length} bytes, where there is room for {room}")
    values = parse_document(read(LENGTH_BYTES, length), dict[str, object], f"the header of {source}", unique=True)
    metadata = shape_json(values.pop(METADATA, {}), dict[str, str], f"{METADATA} of {source}")
    tensors = shape_json(values, dict[str, TensorEntry], f"the header of {source}")
    data = LENGTH_BYTES + length
    _check_places(tensors, file_bytes - data, source)
    return Header(metadata, tensors, data)


def _check_places(tensors: Mapping[str, TensorEntry], data_bytes: int, source: str) -> None:
    """Every tensor has just the bytes that its shape and type need, one follows the other, and no byte is left."""
    position = 0
    for name, entry in sorted(tensors.items(), key=lambda pair: pair[1].data_offsets):
        if entry.dtype not in DTYPES:
            raise _unfit(source, f"{name} is of the type {entry.dtype}, which is none of {', '.join(DTYPES)}")
        if math.prod(max(size, 1) for size in entry.shape) > MAX_ELEMENTS:
            raise _unfit(source, f"{name} has the shape {entry.shape}, which nothing can hold")
        if entry.begin != position:
            what = "overlap" if entry.begin < position else "leave a gap"
            raise _unfit(source, f"its tensors {what} at byte {min(entry.begin, position)}, where {name} is")
        needed = num_bytes(tuple(entry.shape), entry.torch_dtype)
        if entry.end - entry.begin != needed:
            raise _unfit(source, f"{name} has {entry.end - entry.begin} bytes, and {entry.shape} needs {needed}")
        position = entry.end
    if position != data_bytes:
        raise _unfit(source, f"its tensors have {position} bytes, and {data_bytes} are there")


def num_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Of a tensor."""
    return math.prod(shape) * dtype.itemsize


def _unfit(source: str, why: str) -> DataError:
    return DataError(f"{source} is no safetensors file that can be used", why=why)
