"""Writing safetensors one tensor at a time, in as many files as a limit asks for.

The library can only write tensors that all lie in memory at once, which for translated weights would be a
second copy of the model. The format is small and frozen: the header's length (8 bytes, little-endian), the
header (JSON: dtype, shape and place of every tensor), then the tensors without gaps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from paddock.files import atomic_write

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


def write_shards(
    folder: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: torch.dtype,
    tensor: Callable[[str], Tensor],
    max_bytes: int,
) -> None:
    """`model.safetensors`, or several files and their index where that would pass `max_bytes`."""
    shards = _split(shapes, dtype, max_bytes)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        part = f"-{number:05}-of-{len(shards):05}" if len(shards) > 1 else ""
        file = f"model{part}.safetensors"
        write_safetensors(folder / file, shard, dtype, tensor)
        weight_map.update(dict.fromkeys(shard, file))
    if len(shards) > 1:
        total = sum(_num_bytes(shape, dtype) for shape in shapes.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index)


def write_safetensors(
    file: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, tensor: Callable[[str], Tensor]
) -> None:
    """Write and fsync `file`; `tensor(name)` is asked for each tensor when its turn comes."""
    header = encode_header({name: (dtype, shape) for name, shape in shapes.items()})
    with open(file, "wb") as stream:
        stream.write(header)
        for name, shape in shapes.items():
            value = tensor(name)
            assert value.shape == shape and value.dtype == dtype, f"{name}: {value.shape}, {value.dtype}"
            stream.write(value.contiguous().view(-1).view(torch.uint8).numpy().data)
        stream.flush()
        os.fsync(stream.fileno())


def encode_header(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """What a file begins with, if these tensors follow in this order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        start, position = position, position + _num_bytes(shape, dtype)
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, position]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors begin aligned
    return len(text).to_bytes(8, "little") + text


def write_json(file: Path, values: Mapping[str, object]) -> None:
    with atomic_write(file) as stream:
        json.dump(values, stream, indent=2)
        stream.write("\n")


def _split(
    shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, max_bytes: int
) -> list[dict[str, tuple[int, ...]]]:
    """File by file: as many to a file as stay within the limit, and at least one."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    room = max_bytes
    for name, shape in shapes.items():
        size = _num_bytes(shape, dtype)
        if size > room and shards[-1]:
            shards.append({})
            room = max_bytes
        shards[-1][name] = shape
        room -= size
    return shards


def _num_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize
