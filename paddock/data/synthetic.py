"""A corpus of random tokens, for trying a model without data. Costs next to no memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SyntheticCorpus:
    """`count` documents of `length` tokens each; every token is a hash of its position and the seed."""

    def __init__(self, vocab: int, length: int, seed: int, count: int = 10_000) -> None:
        self._vocab, self._seed = vocab, seed
        self.sizes: NDArray[np.integer] = np.broadcast_to(np.int32(length), count)
        self.documents: NDArray[np.integer] = np.arange(count + 1)

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        generator = np.random.default_rng([self._seed, sequence])
        return generator.integers(0, self._vocab, size=stop)[start:]
