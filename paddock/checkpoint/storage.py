"""One checkpoint on disk: a directory of safetensors files, one of each process, and a `checkpoint.json` that says
what they are and must be. It is complete or absent: the directory gets its name last.

torch's distributed checkpoint plans who writes and reads what: it knows how every tensor lies over the processes, on
both sides, so that any layout reads what any other wrote. Its own default files keep metadata in a pickle, which could
run code when it is read, and sum up nothing; so the files and the description are ours.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from paddock.checkpoint import apart
from paddock.checkpoint.description import OF_NO_RUN, CheckpointFiles, Description
from paddock.checkpoint.names import DESCRIPTION, PARTIAL, REPLACED, is_checkpoint, remove_checkpoint
from paddock.checkpoint.shards.blocks import DamagedCheckpoint, damaged, instead_of
from paddock.checkpoint.shards.pieces import Piece, PieceCollector, ShardReader, write_pieces
from paddock.documents import Document, parse_document, read_text, shape_json
from paddock.errors import DataError, UserError
from paddock.files import atomic_write, disk_errors, sync_directory, sync_tree
from paddock.messages import PeerFailed, error_from_json, error_to_json
from paddock.parallel.world import gather_texts
from paddock.process import unhurried

T = TypeVar("T")

FORMAT = 2
MAX_DESCRIPTION = 1 << 28
"""Bytes; with the checksums of a thousand gigabytes it has an eighth of that."""
SHARD = "shard-{:05d}.safetensors"


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write a checkpoint; called by all processes together, each with the tensors, or parts of them, that it has."""
    save_pieces(path, plan_pieces(tensors), description)


def plan_pieces(tensors: Mapping[str, Tensor]) -> list[Piece]:
    """What of all processes' tensors this one is to write: each part once, and about as much by everyone."""
    collector = PieceCollector()  # dcp.save writes nothing through it: the pieces may be written later, by a thread
    with _quiet():
        dcp.save(dict(tensors), storage_writer=collector)
    return collector.pieces


def save_pieces(
    path: Path,
    pieces: list[Piece],
    description: Mapping[str, Any],
    group: dist.ProcessGroup | None = None,
    add_files: Callable[[Path], None] | None = None,
) -> list[str]:
    """Write this process's pieces beside the others', who do the same; the first one then names the directory.

    `add_files` puts more files, such as a tokenizer's, into the directory before it gets its name. Gives the places,
    other than this directory, in which machines without a common storage keep what they wrote.
    """
    # Three rounds, because nobody may write before the folder is there, and it must not get its name before everybody
    # has brought his file to the disk. Each round carries errors too: all processes go on, or none does.
    folder = path.with_name(PARTIAL.format(path.name))
    rank = dist.get_rank() if dist.is_initialized() else 0
    try:
        with unhurried():
            run_together(partial(_begin, folder) if rank == 0 else None, group)
            records = run_together(partial(_write_file, folder, rank, pieces), group)
            files = dict(filter(None, records))
            finish = partial(_finish, folder, path, {**description, "files": files}, add_files)
            run_together(finish if rank == 0 else None, group)
            return apart.name_part(folder, path, SHARD.format(rank), files)
    except BaseException:
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _begin(folder: Path) -> None:
    with disk_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        apart.mark(folder)


def _write_file(folder: Path, rank: int, pieces: list[Piece]) -> tuple[str, dict[str, Any]] | None:
    file = SHARD.format(rank)
    if not pieces:
        return None
    kept_by = apart.place_apart(folder)
    with disk_errors(folder / file):
        record = write_pieces(folder / file, pieces).model_copy(update={"kept_by": kept_by})
    return file, record.to_json()


def _finish(folder: Path, path: Path, description: Mapping[str, Any], add_files: Callable[[Path], None] | None) -> None:
    content = {"format": FORMAT, **OF_NO_RUN, **description}
    apart.unmark(folder)
    with atomic_write(folder / DESCRIPTION) as stream:
        json.dump({**content, "crc32": _checksum(content)}, stream, indent=2)
    with disk_errors(path):
        if add_files is not None:
            add_files(folder)
            sync_tree(folder)
        replaced = path.with_name(REPLACED.format(path.name))
        if is_checkpoint(path):
            os.rename(path, replaced)
        remove_checkpoint(path)  # half of one, say a copy that was not finished
        os.rename(folder, path)
        sync_directory(path.parent)  # before the old one goes: a disk may bring deletions home before names
        remove_checkpoint(replaced)


def describe_checkpoint(path: Path) -> Description:
    """What was said about a checkpoint when it was written."""
    return _read_description(path, Description)


def check_readable(path: Path) -> None:
    """Raise DamagedCheckpoint, if a checkpoint's description or the headers of its files are not what was written."""
    describe_checkpoint(path)
    saved_tensors(path)


def saved_tensors(path: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Names, shapes and types of what a checkpoint holds, from its files' headers."""
    return _open(path).tensors


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint whose names begin with `prefix`, each read whole when it is asked for."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._prefix, self._reader = prefix, _open(path)
        self._saved = {name: entry for name, entry in self._reader.tensors.items() if name.startswith(prefix)}

    def __getitem__(self, name: str) -> Tensor:
        shape, dtype = self._saved[self._prefix + name]
        tensor = torch.empty(shape, dtype=dtype)
        with _quiet(), _own_errors():
            dcp.load({self._prefix + name: tensor}, storage_reader=self._reader, no_dist=True)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._saved)

    def __len__(self) -> int:
        return len(self._saved)


def read_tensors(path: Path, tensors: dict[str, Tensor], elsewhere: Collection[str] = ()) -> None:
    """Fill `tensors` in place from a checkpoint, whatever layout wrote it; called by all processes together.

    `elsewhere` are names that other processes fill.
    """
    # A name that nobody knows is an error: half of a checkpoint would be left out silently. What other stages hold is
    # known, and not wanted here. Errors are compared first, so that no process waits in dcp.load for one that raised.
    reader = _open(path)
    saved = {name: entry for name, entry in reader.tensors.items() if name in tensors or name not in elsewhere}
    run_together(partial(check_names, path, tensors, saved))
    with _quiet(), _own_errors():
        dcp.load(tensors, storage_reader=reader)


def check_names(path: Path, wanted: Mapping[str, Tensor], saved: Mapping[str, tuple[torch.Size, torch.dtype]]) -> None:
    """Every wanted tensor is there, with the same shape, or an error that lists those that are not."""
    missing = [name for name in wanted if name not in saved]
    other_types = [
        f"{name} {saved[name][1]}, wanted {tensor.dtype}"
        for name, tensor in wanted.items()
        if name in saved and saved[name][1].is_floating_point != tensor.dtype.is_floating_point
    ]
    misshapen = [
        f"{name} {list(saved[name][0])}, wanted {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in saved and saved[name][0] != tensor.shape
    ]
    kinds = {name.split(".")[0] for name in wanted}
    extra = [name for name in saved if name not in wanted and name.split(".")[0] in kinds]
    problems = [
        f"{label}: {', '.join(names[:10])}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        for label, names in (
            ("missing", missing),
            ("of another shape", misshapen),
            ("of another type", other_types),
            ("unexpected", extra),
        )
        if names
    ]
    if problems:
        raise DataError(
            f"the checkpoint {path} does not fit this model",
            why="; ".join(problems),
            fix="load it with the recipe it was trained with (config.yaml in its run directory)",
        )


def _open(path: Path) -> ShardReader:
    records = _read_description(path, CheckpointFiles).files
    apart.check_parts(path, records)
    return ShardReader(path, records)


def _read_description(path: Path, part: type[T]) -> T:
    """What `checkpoint.json` says, of the form `part`."""
    file, fix = path / DESCRIPTION, instead_of(path)
    try:
        text = read_text(file, fix=fix, max_bytes=MAX_DESCRIPTION)
        content = parse_document(text, dict[str, Any], str(file), fix=fix, unique=True)
        seal = shape_json(content, _Seal, str(file), fix=fix)
    except DataError as error:
        raise DamagedCheckpoint(error.what, why=error.why, fix=error.fix) from None
    if seal.format != FORMAT:
        why = f"this version of Paddock reads format {FORMAT}"
        raise DataError(f"{path} has checkpoint format {seal.format}", why=why)
    if seal.crc32 != _checksum({name: value for name, value in content.items() if name != "crc32"}):
        raise damaged(file, "its content is not what was written")
    return shape_json(content, part, str(file), fix=fix)


class _Seal(Document):
    """What tells whether the rest can be believed."""

    format: int
    crc32: int | None = None


def _checksum(description: Mapping[str, Any]) -> int:
    """Of what a description says, however it is spaced."""
    return zlib.crc32(json.dumps(description, sort_keys=True).encode())


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
def _own_errors() -> Iterator[None]:
    """The engine wraps errors of any process in its own; what our reader says is inside."""
    try:
        yield
    except dcp.CheckpointException as error:
        raise _first_error([failure for failure, _ in error.failures.values()]) from None


def run_together(action: Callable[[], Any] | None, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Do `action`, if this process has one; returns everyone's results, or raises, in all of them, what one met.

    A process that raised alone would leave the others waiting for it in their next message. Results are JSON.
    """
    result, failed = None, None
    try:
        result = action() if action is not None else None
    except Exception as error:
        failed = error
    user = error_to_json(failed) if isinstance(failed, UserError) else None
    mine: dict[str, Any] = {
        "result": result,
        "user": user,
        "bug": repr(failed) if failed is not None and user is None else None,
    }
    told = [json.loads(text) for text in gather_texts(json.dumps(mine), group)] if dist.is_initialized() else [mine]
    users = [said["user"] for said in told if said["user"] is not None]
    if failed is not None and (user is not None or not users):  # with its own stack trace
        raise failed
    if users:
        raise error_from_json(users[0])
    for rank, said in enumerate(told):
        if said["bug"] is not None:
            raise PeerFailed(f"rank {rank} met {said['bug']}")
    return [said["result"] for said in told]


def _first_error(errors: Sequence[BaseException]) -> BaseException:
    """The one to show: what a user can act on rather than what followed from it."""
    return min(errors, key=lambda error: not isinstance(error, UserError))
