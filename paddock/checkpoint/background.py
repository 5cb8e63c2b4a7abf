"""Writing while training goes on: a thread copies this process's share, and then writes the copy.

Forward and backward passes leave weights and optimizer state alone, so the copy is taken while the next ones run, and
only the update after them waits for it. The copy takes the memory of the share, which is kept for the next time. The
threads of all processes agree over a process group of their own, so that their messages never meet those of training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.checkpoint.shards.pieces import Key, Piece

Write = Callable[[dist.ProcessGroup | None, list[Piece]], None]


class BackgroundWriter:
    """At most one checkpoint on its way to the disk. Made by all processes together."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copying: Future[list[Piece]] | None = None
        self._writing: Future[None] | None = None
        self._copies: dict[Key, Tensor] = {}

    def prepare(self, pieces: list[Piece]) -> None:
        """Make room for copies of such pieces, in the background: new memory is slow when it is first touched."""
        shapes = {piece.key: (piece.values.shape, piece.values.dtype) for piece in pieces}
        self._writing = self._thread.submit(self._make_room, shapes)

    def start(self, write: Write, pieces: list[Piece], copy_now: Collection[str] = ()) -> None:
        """Copy the pieces, and let `write` have the copies; both in the background.

        Until `wait_for_copy`, only tensors with the names in `copy_now` may change.
        """
        assert self._writing is None, "one at a time: wait first"
        at_once = {piece.key: self._copy(piece) for piece in pieces if piece.name in copy_now}
        copying = self._thread.submit(lambda: [at_once.get(piece.key) or self._copy(piece) for piece in pieces])
        self._copying = copying
        self._writing = self._thread.submit(lambda: write(self._group, copying.result()))

    def wait_for_copy(self) -> None:
        """Until the copy is taken, and the originals may change."""
        if self._copying is not None:
            copying, self._copying = self._copying, None
            futures.wait([copying])  # what went wrong with it, `wait` tells

    def wait(self) -> None:
        """Until nothing is being written; raises what went wrong, in all processes."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def close(self, raises: bool) -> None:
        """Wait for the last time. Without `raises`, for an end that has another reason already."""
        try:
            self.wait()
        except Exception:
            if raises:
                raise
        finally:
            self._thread.shutdown()

    def _copy(self, piece: Piece) -> Piece:
        if piece.key not in self._copies:
            self._copies[piece.key] = torch.empty_like(piece.values, device="cpu")
        return replace(piece, values=self._copies[piece.key].copy_(piece.values))

    def _make_room(self, shapes: dict[Key, tuple[torch.Size, torch.dtype]]) -> None:
        for key, (shape, dtype) in shapes.items():
            self._copies[key] = torch.empty(shape, dtype=dtype, device="cpu").zero_()
