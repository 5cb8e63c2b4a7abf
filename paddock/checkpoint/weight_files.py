"""The weights in a Hugging Face folder or in a file, by name: known at once, read and written one at a time.

Reading: safetensors and torch's own files, whole or in shards. Both are mapped into memory, so that what is not asked
for is not read. Which names and shapes a model needs is not known here.

Writing: safetensors, in as many files as a limit asks for. The library can only write tensors that all lie in memory at
once, which for translated weights would be a second copy of the model. The format is small and frozen: the header's
length (8 bytes, little-endian), the header (JSON: dtype, shape and place of every tensor), then the tensors without
gaps.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paddock.errors import DataError
from paddock.files import atomic_write

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
"""The names a whole model is kept under; a sharded one has `<name>.index.json`. The first found is taken."""

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
"""What safetensors calls torch's types."""
_FLOATING = {"F64", "F32", "F16", "BF16"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, not read yet."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """The safetensors code: F32, BF16, I8 …; torch's own name for what is read from torch's own files."""
    floating: bool
    read: Callable[[], Tensor]


NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")
"""Where training scripts keep the weights in a file with more in it: an average of them, if there is one."""


def open_weights(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor in the folder's weight files, or in one file. Every file is opened, so a broken one is an error."""
    if folder.is_file():
        return _open(folder)
    for name in SINGLE_FILES:
        if (folder / name).is_file():
            return _open(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return _open_shards(folder / f"{name}.index.json")
    raise DataError(
        f"{folder} has no weights",
        why="there is neither " + ", ".join(f"{name}, {name}.index.json" for name in SINGLE_FILES),
        fix="complete the folder, or give another",
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or str(error)) from error
    except ValueError as error:  # also what is not UTF-8
        raise DataError(f"{path} is not valid JSON", why=str(error), fix="copy or download it again") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is not a JSON object", why=f"it holds a {type(values).__name__}")
    return values


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


def _open_shards(index: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise DataError(f"{index} is not an index of weights", why="it has no weight_map from names to files")
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(weight_map.values())):
        if Path(file).name != file:
            raise DataError(f"{index} names {file}", why="a shard lies beside its index, not elsewhere")
        if not (index.parent / file).is_file():
            raise DataError(
                f"{index.parent / file} is missing",
                why=f"{index.name} names it as one of {len(set(weight_map.values()))} shards",
                fix="copy or download it again",
            )
        for name, tensor in _open(index.parent / file).items():
            if name in found:
                raise DataError(f"{tensor.file} repeats {name}", why=f"{found[name].file.name} has it already")
            found[name] = tensor
    for name, file in weight_map.items():
        if name not in found or found[name].file.name != file:
            raise DataError(
                f"{index.parent / file} has no {name}",
                why=f"{index.name} says it has; the two are not from the same model",
                fix="copy or download the folder again",
            )
    return found


def _open(file: Path) -> dict[str, StoredTensor]:
    return _open_safetensors(file) if file.suffix == ".safetensors" else _open_torch(file)


def _open_safetensors(file: Path) -> dict[str, StoredTensor]:
    try:
        handle = safe_open(file, framework="pt")
        names = handle.keys()
        slices = {name: handle.get_slice(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    return {
        name: StoredTensor(
            file,
            tuple(part.get_shape()),
            part.get_dtype(),
            part.get_dtype() in _FLOATING,
            partial(handle.get_tensor, name),
        )
        for name, part in slices.items()
    }


def read_torch(file: Path) -> Any:
    """What a file of torch's own holds; nothing in it can run code. Tensors are mapped where the file allows it."""
    try:
        # Files from before torch 1.6 are not archives and cannot be mapped: they are read as a whole.
        mapped = zipfile.is_zipfile(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # whatever a broken or foreign pickle provokes
        raise _unreadable(file, error) from error


def _open_torch(file: Path) -> dict[str, StoredTensor]:
    values = read_torch(file)
    if isinstance(values, dict):
        values = next((values[key] for key in NESTED if isinstance(values.get(key), dict)), values)
    if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
        raise DataError(f"{file} is not a file of weights", why="it does not hold tensors by name")
    return {
        name: StoredTensor(
            file,
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
            value.is_floating_point() and value.dtype.itemsize > 1,
            partial(_itself, value),
        )
        for name, value in values.items()
    }


def _itself(value: Tensor) -> Tensor:
    return value


def _unreadable(file: Path, error: Exception) -> DataError:
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return DataError(
        f"cannot read the weights in {file}",
        why=f"truncated, or not such a file: {reason}",
        fix="copy or download it again",
    )


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
