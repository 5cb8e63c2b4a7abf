"""Corpora and samples whose every token can be told from all others, and samples that fail on order.

They can be pickled and imported anywhere, so loader workers can read them too.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.errors import ConfigError


class NumberedCorpus:
    """Documents given as the sizes of their sentences; the tokens are first, first + 1, first + 2, …"""

    def __init__(self, documents: list[list[int]], first: int = 0) -> None:
        self.sizes = np.asarray([size for document in documents for size in document], dtype=np.int32)
        self.documents = np.concatenate([[0], np.cumsum([len(document) for document in documents], dtype=np.int64)])
        self._begins = np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)]) + first

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        assert 0 <= start <= stop <= self.sizes[sequence]
        begin = int(self._begins[sequence])
        return np.arange(begin + start, begin + stop)


@dataclass(frozen=True)
class NumberedSamples:
    """Sample i is i; sample `fails_at` fails as `how` says: "bug", "user error" or a signal's name."""

    fails_at: int = -1
    how: str = "bug"

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == self.fails_at:
            if self.how == "bug":
                raise KeyError("the shelf is empty")
            if self.how == "user error":
                raise ConfigError("the gate is shut", why="nobody opened it", fix="open it")
            os.kill(os.getpid(), getattr(signal, self.how))
        return {"index": index, "process": os.getpid(), "threads": torch.get_num_threads()}


def stack(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The samples as one batch."""
    return {name: torch.as_tensor(np.stack([sample[name] for sample in samples])) for name in samples[0]}
