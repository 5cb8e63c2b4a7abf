"""Writing while training goes on: a copy of this process's share is made, and a thread writes the copy.

The copy takes the memory of the share, which is kept for the next time. The threads of all processes agree over a
process group of their own, so that their messages never meet those of training.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.checkpoint.shards import Key, Piece

Write = Callable[[dist.ProcessGroup | None, list[Piece]], None]


class Background:
    """At most one checkpoint on its way to the disk. Made by all processes together."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._copies: dict[Key, Tensor] = {}

    def prepare(self, pieces: list[Piece]) -> None:
        """Make room for copies of such pieces, in the background: new memory is slow when it is first touched."""
        shapes = {piece.key: (piece.values.shape, piece.values.dtype) for piece in pieces}
        self._writing = self._thread.submit(self._make_room, shapes)

    def start(self, write: Write, pieces: list[Piece]) -> None:
        """Copy the pieces, and let `write` have the copies in the background."""
        assert self._writing is None, "one at a time: wait first"
        self._writing = self._thread.submit(write, self._group, [self._copy(piece) for piece in pieces])

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
