"""Process pools that all distributed tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from paddock.testing.pool import ProcessPool


@pytest.fixture(scope="package")
def pool_of() -> Iterator[Callable[[int], ProcessPool]]:
    """The pool of a size; it starts when it is first used, and ends behind the last test of this folder."""
    pools: dict[int, ProcessPool] = {}

    def get(size: int) -> ProcessPool:
        return pools.setdefault(size, ProcessPool(size))

    yield get
    for pool in pools.values():
        pool.close()
