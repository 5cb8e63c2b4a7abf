"""The weights in a Hugging Face folder or in a file, by name: known at once, read and written one at a time.

Reading: safetensors and torch's own files, whole or in shards. Both are mapped into memory, so that what is not asked
for is not read. Which names and shapes a model needs is not known here.

Writing: safetensors, in as many files as a limit asks for. The library can only write tensors that all lie in memory at
once, which for translated weights would be a second copy of the model. The format is small and frozen:
`shards/headers.py`.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paddock.checkpoint.shards.headers import encode_header, num_bytes, read_header
from paddock.documents import Document, FileName, read_document
from paddock.errors import DataError
from paddock.files import atomic_write

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
"""The names a whole model is kept under; a sharded one has `<name>.index.json`. The first found is taken."""

MAX_JSON_BYTES = 1 << 25
"""Of a config or an index: many times what the largest models have."""
COPY_AGAIN = "copy or download it again"


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
    return read_document(path, dict[str, Any], fix=COPY_AGAIN, max_bytes=MAX_JSON_BYTES)


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
        total = sum(num_bytes(shape, dtype) for shape in shapes.values())
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


def write_json(file: Path, values: Mapping[str, object]) -> None:
    with atomic_write(file) as stream:
        json.dump(values, stream, indent=2)
        stream.write("\n")


class ShardIndex(Document):
    """What `model.safetensors.index.json` says: the file of every tensor, by its name."""

    weight_map: dict[str, FileName]


def _open_shards(index: Path) -> dict[str, StoredTensor]:
    weight_map = read_document(index, ShardIndex, fix=COPY_AGAIN, max_bytes=MAX_JSON_BYTES).weight_map
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(weight_map.values())):
        if not (index.parent / file).is_file():
            raise DataError(
                f"{index.parent / file} is missing",
                why=f"{index.name} names it as one of {len(set(weight_map.values()))} shards",
                fix=COPY_AGAIN,
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
        with file.open("rb") as stream:
            header = read_header(partial(_read_at, stream), os.fstat(stream.fileno()).st_size, str(file))
        handle = safe_open(file, framework="pt")
    except DataError as error:
        raise _unreadable(file, error.why) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from error
    return {
        name: StoredTensor(
            file,
            tuple(entry.shape),
            entry.dtype,
            _is_computed_with(entry.torch_dtype),
            partial(handle.get_tensor, name),
        )
        for name, entry in header.tensors.items()
    }


def _read_at(stream: BinaryIO, start: int, count: int) -> bytes:
    stream.seek(start)
    return stream.read(count)


def read_torch(file: Path) -> Any:
    """What a file of torch's own holds; nothing in it can run code. Tensors are mapped where the file allows it."""
    try:
        if zipfile.is_zipfile(file):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        # Files from before torch 1.6 are not archives: they are read as a whole. Through a map of the file, since a
        # stream would be asked for as many bytes as a text in it is said to have, and would make room for them.
        with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            return torch.load(content, map_location="cpu", weights_only=True)  # type: ignore[arg-type]
    except Exception as error:  # whatever a broken or foreign pickle provokes
        raise _unreadable(file, str(error) or type(error).__name__) from error


def _open_torch(file: Path) -> dict[str, StoredTensor]:
    values = read_torch(file)
    if isinstance(values, dict):
        values = next((values[key] for key in NESTED if isinstance(values.get(key), dict)), values)
    return {
        name: StoredTensor(
            file,
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
            _is_computed_with(value.dtype),
            partial(_itself, value),
        )
        for name, value in check_tensors(file, values).items()
    }


def check_tensors(file: Path, values: object) -> dict[str, Tensor]:
    """What a file of torch's own should hold: plain tensors by name, or a DataError that says what is not."""
    if not isinstance(values, dict) or not values:
        raise _not_weights(file, f"it holds {_kind(values)}")
    for name, value in values.items():
        if not isinstance(name, str):
            raise _not_weights(file, f"a name in it is {_kind(name)}")
        if not isinstance(value, Tensor):
            raise _not_weights(file, f"{_short(name)} in it is {_kind(value)}")
        if not _is_plain(value):
            why = "sparse, quantized, nested, without memory, or repeats a number that is there once"
            raise _not_weights(file, f"{_short(name)} in it is {why}")
    return values


def _is_plain(value: Tensor) -> bool:
    """Whether every number of a tensor is there: a small file can name as many as it likes."""
    if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_nested:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def _is_computed_with(dtype: torch.dtype) -> bool:
    """Whether numbers of this type can be a model's weights as they are: eight bits or fewer need a scale beside
    them."""
    return dtype.is_floating_point and dtype.itemsize > 1


def _kind(value: object) -> str:
    return f"an empty {type(value).__name__}" if isinstance(value, Sized) and not len(value) else type(value).__name__


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}…"


def _not_weights(file: Path, why: str) -> DataError:
    return DataError(
        f"{file} is not a file of weights",
        why=f"it should hold tensors by name, alone or under one of {', '.join(NESTED)}; {why}",
        fix="give the file that the training script saved, or one of its weights alone",
    )


def _itself(value: Tensor) -> Tensor:
    return value


def _unreadable(file: Path, why: str) -> DataError:
    reason = next(iter(why.splitlines()), "")[:300]
    return DataError(
        f"cannot read the weights in {file}",
        why=f"truncated, or not such a file: {reason}",
        fix=COPY_AGAIN,
    )


def _split(
    shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, max_bytes: int
) -> list[dict[str, tuple[int, ...]]]:
    """File by file: as many to a file as stay within the limit, and at least one."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    room = max_bytes
    for name, shape in shapes.items():
        size = num_bytes(shape, dtype)
        if size > room and shards[-1]:
            shards.append({})
            room = max_bytes
        shards[-1][name] = shape
        room -= size
    return shards
