"""Safetensors under torch's distributed checkpoint: it decides who writes and reads which part of which tensor, and
here the parts go to files and come back. Every process writes one file.

A process that holds a box of a tensor (tensor parallelism cuts it, FSDP cuts it again) writes this box and where it
begins; a process that needs another box gets, by torch's plan, the overlaps with all stored boxes, and reads just
those bytes. So no layout is written down anywhere, and none has to be undone.

torch has such a storage itself, but it collects a file in memory before it writes, and checks nothing when it reads.
The files are the same: offsets of the parts stand in the header, where torch's own reader looks for them, too.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from paddock.checkpoint.shards.blocks import (
    BlockReader,
    BlockWriter,
    DamagedCheckpoint,
    FileRecord,
    bytes_of,
    damaged,
    instead_of,
)
from paddock.checkpoint.shards.headers import MAX_ELEMENTS, Header, Size, encode_header, read_header
from paddock.devices import adapter_of
from paddock.documents import Document, parse_document
from paddock.errors import DataError

OFFSETS_KEY = "DCP_SHARDING_INFO"
BUFFER = 1 << 20
"""Bytes on the way to a place where they cannot be read to directly."""

Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """A box of a tensor: where it begins in the whole, and the values. Those that `read` gives, one piece at a time
    while they are written, are not here before: `values` then has their shape and type only."""

    name: str
    offsets: tuple[int, ...]
    values: Tensor
    read: Callable[[], Tensor] | None = None

    @property
    def key(self) -> Key:
        return self.name, self.offsets


class PieceCollector(StorageWriter):
    """What the engine's plan gives to this process to write. It is only collected here, for `write_pieces`."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Without the empty shards that a small tensor over many processes has."""
        items = [item for item in plan.items if item.tensor_data and math.prod(item.tensor_data.chunk.sizes)]
        return dataclasses.replace(plan, items=items)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        for item in plan.items:
            assert item.tensor_data is not None
            values = planner.resolve_data(item)
            assert isinstance(values, Tensor) and values.shape == item.tensor_data.chunk.sizes
            self.pieces.append(Piece(item.index.fqn, tuple(item.tensor_data.chunk.offsets), values.detach()))
        return _done([])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def write_pieces(file: Path, pieces: Sequence[Piece]) -> FileRecord:
    """Write pieces of tensors, one of each at most, as one safetensors file."""
    ordered = sorted(pieces, key=lambda piece: -piece.values.dtype.itemsize)  # so that each begins aligned
    assert len({piece.name for piece in ordered}) == len(ordered)
    offsets = {piece.name: {"saved_offsets": piece.offsets} for piece in ordered}
    header = encode_header(
        {piece.name: (piece.values.dtype, piece.values.shape) for piece in ordered},
        {OFFSETS_KEY: json.dumps(offsets, separators=(",", ":"))},
    )
    writer = BlockWriter(file)
    try:
        writer.write(header)
        for piece in ordered:
            values = piece.values if piece.read is None else piece.read().to(piece.values.dtype)
            assert values.shape == piece.values.shape
            writer.write(bytes_of(values.cpu().contiguous()))
        return writer.finish()
    finally:
        writer.close()


@dataclass(frozen=True)
class StoredPiece:
    """A piece in a file."""

    file: str
    position: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class ShardReader(StorageReader):
    """The pieces in a checkpoint's files, read for the engine as its plan asks for them."""

    def __init__(self, path: Path, records: Mapping[str, FileRecord]) -> None:
        self._path, self._records = path, records
        self._pieces: dict[MetadataIndex, StoredPiece] = {}
        self._metadata = Metadata({})
        for file in records:
            self._read_file(file)
        self._check_whole()

    @property
    def tensors(self) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """Shapes and types of the whole tensors, by name."""
        entries = self._metadata.state_dict_metadata.items()
        return {name: (entry.size, entry.properties.dtype) for name, entry in entries}  # type: ignore[union-attr]

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """In as many threads as this process has cores, so that checksums are computed on all of them; each goes
        through its part of the files from front to back, so that it reads no block twice."""
        items = [(self._pieces[item.storage_index], item) for item in plan.items]
        items.sort(key=lambda pair: (pair[0].file, pair[0].position, pair[1].storage_offsets))
        count = torch.get_num_threads()
        with ThreadPoolExecutor(count, thread_name_prefix="read") as threads:
            for reading in [threads.submit(self._read_items, part, planner) for part in _split_by_bytes(items, count)]:
                reading.result()
        return _done(None)

    def _read_items(self, items: list[tuple[StoredPiece, ReadItem]], planner: LoadPlanner) -> None:
        buffer = torch.empty(BUFFER, dtype=torch.uint8)
        with ExitStack() as stack:
            file, reader = None, None
            for stored, item in items:
                if reader is None or stored.file != file:
                    stack.close()
                    file, reader = stored.file, BlockReader(self._path / stored.file, self._records[stored.file])
                    stack.callback(reader.close)
                target = planner.resolve_tensor(item).detach()
                _read_box(reader, stored, item, target, buffer)
                planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def _read_file(self, file: str) -> None:
        """Note the pieces in a file, from its header."""
        reader = BlockReader(self._path / file, self._records[file])

        def read(start: int, count: int) -> bytes:
            buffer = bytearray(count)
            reader.read(start, memoryview(buffer))
            return bytes(buffer)

        try:
            header = read_header(read, self._records[file].length, str(self._path / file))
            offsets = _offsets_in(header, str(self._path / file))
        except DataError as error:
            raise damaged(self._path / file, error.why) from None
        finally:
            reader.close()
        for name, entry in header.tensors.items():
            piece = StoredPiece(file, header.data + entry.begin, tuple(entry.shape), entry.torch_dtype)
            self._add(name, torch.Size(offsets[name].saved_offsets), piece)

    def _add(self, name: str, offsets: torch.Size, piece: StoredPiece) -> None:
        end = [begin + size for begin, size in zip(offsets, piece.shape, strict=True)]
        entries = self._metadata.state_dict_metadata
        entry = entries.setdefault(
            name, TensorStorageMetadata(TensorProperties(dtype=piece.dtype), torch.Size([0] * len(end)), [])
        )
        assert isinstance(entry, TensorStorageMetadata)
        if len(entry.size) != len(end) or entry.properties.dtype != piece.dtype:
            raise damaged(self._path / piece.file, f"{name} has another type or rank there than in other files")
        self._pieces[MetadataIndex(name, offsets)] = piece
        entry.chunks.append(ChunkStorageMetadata(offsets, torch.Size(piece.shape)))
        entry.size = torch.Size(map(max, entry.size, end))

    def _check_whole(self) -> None:
        """The pieces of every tensor are all of it, and each number is in one of them: what no piece has would be
        whatever lies in memory, and of what two have, either."""
        for name, entry in self._metadata.state_dict_metadata.items():
            assert isinstance(entry, TensorStorageMetadata)
            held = sum(chunk.sizes.numel() for chunk in entry.chunks)
            if held != math.prod(entry.size) or _overlap(entry.chunks):
                parts = f"{len(entry.chunks)} parts with {held} numbers"
                why = f"{name} has the shape {list(entry.size)}, and is in {parts}, which overlap or leave a gap"
                raise DamagedCheckpoint(f"the checkpoint {self._path} is damaged", why=why, fix=instead_of(self._path))


class _Offsets(Document):
    """Where a piece begins in its tensor."""

    saved_offsets: list[Size]


def _offsets_in(header: Header, source: str) -> dict[str, _Offsets]:
    """Where each piece in a file begins in its tensor, which has room for it."""
    text = header.metadata.get(OFFSETS_KEY)
    if text is None:
        raise DataError(source, why=f"its header has no {OFFSETS_KEY}")
    offsets = parse_document(text, dict[str, _Offsets], f"{OFFSETS_KEY} of {source}", unique=True)
    if offsets.keys() != header.tensors.keys():
        names = sorted(offsets.keys() ^ header.tensors.keys())
        raise DataError(source, why=f"its header has either no place or no tensor for {names[0]}")
    for name, entry in header.tensors.items():
        begin = offsets[name].saved_offsets
        if len(begin) != len(entry.shape) or 0 in entry.shape:
            raise DataError(source, why=f"{name} has the shape {entry.shape}, and begins at {begin}")
        if math.prod(first + size for first, size in zip(begin, entry.shape, strict=True)) > MAX_ELEMENTS:
            raise DataError(source, why=f"{name} begins at {begin}, beyond what anything can hold")
    return offsets


def _overlap(chunks: Sequence[ChunkStorageMetadata]) -> bool:
    """Whether two boxes have a place in common. Those that begin later are compared with those that have not ended."""
    if len(chunks) == 1:
        return False
    open_boxes: list[ChunkStorageMetadata] = []
    for chunk in sorted(chunks, key=lambda chunk: tuple(chunk.offsets)):
        if not chunk.offsets:  # two copies of a single number
            return True
        open_boxes = [box for box in open_boxes if box.offsets[0] + box.sizes[0] > chunk.offsets[0]]
        if any(_meet(box, chunk) for box in open_boxes):
            return True
        open_boxes.append(chunk)
    return False


def _meet(one: ChunkStorageMetadata, other: ChunkStorageMetadata) -> bool:
    sides = zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    return all(first < second + size and second < first + length for first, length, second, size in sides)


def _split_by_bytes(items: list[tuple[StoredPiece, ReadItem]], count: int) -> list[list[tuple[StoredPiece, ReadItem]]]:
    """The items in order, in at most `count` runs of about as many bytes."""
    ends = list(accumulate(item.lengths.numel() * stored.dtype.itemsize for stored, item in items))
    shares: dict[int, list[tuple[StoredPiece, ReadItem]]] = {}
    for pair, end in zip(items, ends, strict=True):
        shares.setdefault((end - 1) * count // ends[-1], []).append(pair)
    return list(shares.values())


def _read_box(reader: BlockReader, stored: StoredPiece, item: ReadItem, target: Tensor, buffer: Tensor) -> None:
    """Read a box of a stored piece into a tensor: straight into its memory where both lie in one run."""
    shape, begin, lengths = stored.shape, item.storage_offsets, item.lengths
    if not shape:  # a single number is a row of one
        shape, begin, lengths, target = (1,), torch.Size([0]), torch.Size([1]), target.reshape(1)
    row = math.prod(shape[1:]) * stored.dtype.itemsize
    position = stored.position + begin[0] * row
    whole_rows = tuple(lengths[1:]) == tuple(shape[1:])
    if (
        whole_rows
        and target.is_contiguous()
        and adapter_of(target.device).computes_on_host
        and target.dtype == stored.dtype
    ):
        reader.read(position, bytes_of(target))
        return
    box = tuple(slice(first, first + size) for first, size in zip(begin[1:], lengths[1:], strict=True))
    buffer = buffer if row <= len(buffer) else torch.empty(row, dtype=torch.uint8)
    for first, count in _batches(lengths[0], len(buffer) // row):
        part = buffer[: count * row]
        reader.read(position + first * row, bytes_of(part))
        rows = part.view(stored.dtype).view(count, *shape[1:])
        target[first : first + count].copy_(rows[(slice(None), *box)])


def _batches(total: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, total, size):
        yield first, min(size, total - first)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
