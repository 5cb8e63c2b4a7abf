"""One checkpoint on disk: a directory of safetensors shards, written by all processes through torch's distributed
checkpoint, and a `checkpoint.json` beside them. It is complete or absent: the directory gets its name last.

Safetensors rather than the default files, because those keep their metadata in a pickle.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from paddock.errors import DataError, MachineError
from paddock.files import atomic_write, disk_errors, sync_directory

DESCRIPTION = "checkpoint.json"
FORMAT = 1


def is_checkpoint(path: Path) -> bool:
    """Whether a directory is a complete checkpoint of ours."""
    return (path / DESCRIPTION).is_file()


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write a checkpoint; called by all processes together, each with its own share of the tensors."""
    partial = path.with_name(f".{path.name}.partial")
    leads = not dist.is_initialized() or dist.get_rank() == 0

    def begin() -> None:
        with disk_errors(path):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)

    def finish() -> None:
        with atomic_write(partial / DESCRIPTION) as stream:
            json.dump({"format": FORMAT, **description}, stream, indent=2)
        with disk_errors(path):
            if path.exists():
                shutil.rmtree(path)
            os.rename(partial, path)
            sync_directory(path.parent)

    try:
        _together(begin if leads else None)
        with _quiet(), _disk_errors_inside(path):
            dcp.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(partial), save_distributed=True))
        _together(finish if leads else None)
    except BaseException:
        if leads:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def describe_checkpoint(path: Path) -> dict[str, Any]:
    """The `checkpoint.json` of a checkpoint."""
    try:
        description: dict[str, Any] = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a checkpoint", why=f"{DESCRIPTION}: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        found = description.get("format") if isinstance(description, dict) else None
        raise DataError(f"{path} has checkpoint format {found}", why=f"this version of Paddock reads format {FORMAT}")
    return description


def saved_tensors(path: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Names, shapes and types of what a checkpoint holds, from its files' headers."""
    with _quiet(), _readable(path):
        metadata = HuggingFaceStorageReader(str(path)).read_metadata()
        return {
            name: (entry.size, entry.properties.dtype)  # type: ignore[union-attr]
            for name, entry in metadata.state_dict_metadata.items()
        }


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint whose names begin with `prefix`, each read whole when it is asked for."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path, self._prefix = path, prefix
        self._saved = {name: entry for name, entry in saved_tensors(path).items() if name.startswith(prefix)}
        self._reader = _ReaderOnce(str(path))

    def __getitem__(self, name: str) -> Tensor:
        shape, dtype = self._saved[self._prefix + name]
        tensor = torch.empty(shape, dtype=dtype)
        with _quiet(), _readable(self._path):
            dcp.load({self._prefix + name: tensor}, storage_reader=self._reader, no_dist=True)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._saved)

    def __len__(self) -> int:
        return len(self._saved)


class _ReaderOnce(HuggingFaceStorageReader):
    """Reads the headers once, however many tensors are asked for."""

    @cache  # noqa: B019 (lives as long as the reader, which is short)
    def read_metadata(self) -> Any:
        return super().read_metadata()


def read_tensors(path: Path, tensors: dict[str, Tensor], elsewhere: Collection[str] = ()) -> None:
    """Fill `tensors` in place from a checkpoint, whatever layout wrote it.

    `elsewhere` are names that other processes fill.
    """
    saved = {name: entry for name, entry in saved_tensors(path).items() if name in tensors or name not in elsewhere}
    check_names(path, tensors, saved)
    with _quiet(), _readable(path):
        dcp.load(tensors, storage_reader=HuggingFaceStorageReader(str(path)))


def check_names(path: Path, wanted: Mapping[str, Tensor], saved: Mapping[str, tuple[torch.Size, torch.dtype]]) -> None:
    """Every wanted tensor is there, with the same shape, or an error that lists those that are not."""
    missing = [name for name in wanted if name not in saved]
    misshapen = [
        f"{name} {list(saved[name][0])}, wanted {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in saved and saved[name][0] != tensor.shape
    ]
    extra = [name for name in saved if name not in wanted and name.split(".")[0] in {n.split(".")[0] for n in wanted}]
    problems = [
        f"{label}: {', '.join(names[:10])}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        for label, names in (("missing", missing), ("of another shape", misshapen), ("unexpected", extra))
        if names
    ]
    if problems:
        raise DataError(
            f"the checkpoint {path} does not fit this model",
            why="; ".join(problems),
            fix="load it with the recipe it was trained with (config.yaml in its run directory)",
        )


def _together(action: Callable[[], None] | None) -> None:
    """Let one process act while the others wait; if it fails, all of them hear of it."""
    error: Exception | None = None
    if action is not None:
        try:
            action()
        except Exception as problem:
            error = problem
    if dist.is_initialized():
        verdict: list[Exception | None] = [error]
        dist.broadcast_object_list(verdict, src=0)
        error = verdict[0]
    if error is not None:
        raise error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the engine's remarks on single-process use, which is a normal case here."""
    logger = logging.getLogger("torch.distributed.checkpoint")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _disk_errors_inside(path: Path) -> Iterator[None]:
    """The engine wraps a rank's error in its own; find the disk's refusal inside."""
    try:
        yield
    except dcp.CheckpointException as error:
        for wrapped, _ in error.failures.values():
            if isinstance(wrapped, OSError):
                with disk_errors(path):
                    raise wrapped from error
            text = str(wrapped)
            if "No space left" in text:
                raise MachineError(
                    f"cannot write {path}", why="No space left on device", fix="free some space"
                ) from error
        raise


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A damaged file is the data's fault: say which, and what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise _damaged(path, error) from None
    except dcp.CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise _damaged(path, cause) from None


def _damaged(path: Path, cause: BaseException) -> DataError:
    return DataError(
        f"the checkpoint {path} is damaged",
        why=str(cause),
        fix="load an earlier one of the same run: --checkpoint.load RUN/checkpoints/step-…",
    )
