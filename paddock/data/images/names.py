"""A million file names as two arrays, which can be mapped into memory; a list of strings would take seconds to load."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.data.array_cache import Arrays


class Names(Sequence[str]):
    """Strings by their number."""

    def __init__(self, letters: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.letters, self._ends = letters, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        begin = self._ends.item(index - 1) if index else 0
        return os.fsdecode(self.letters[begin : self._ends.item(index)].tobytes())

    @staticmethod
    def pack(name: str, strings: Iterable[str]) -> Arrays:
        """The arrays of some strings, for a file in which they are called `name`."""
        encoded = [os.fsencode(string) for string in strings]
        return {
            f"{name}.letters": np.frombuffer(b"".join(encoded), np.uint8),
            f"{name}.ends": np.cumsum([len(letters) for letters in encoded], dtype=np.int64),
        }

    @staticmethod
    def unpack(name: str, arrays: Arrays) -> Names:
        return Names(arrays[f"{name}.letters"], arrays[f"{name}.ends"])
