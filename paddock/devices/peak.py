"""A yardstick for devices without a published peak: the best rate of a plain matrix product, measured."""

from __future__ import annotations

import time
from functools import cache

from paddock.devices.adapter import DeviceAdapter

SMALLEST, LARGEST = 512, 8192
ENOUGH_SECONDS = 0.03
"""A product that takes this long hides the cost of starting it: larger ones would be no faster."""
REPEATS = 8


@cache
def measure_gemm_flops(adapter: DeviceAdapter, dtype: str = "float32") -> float:
    """Best FLOP/s over square products of growing size; about a second, once a process.

    Measures with the threads and the current device that the process has at the first call.
    """
    best = 0.0
    size = SMALLEST
    while size <= LARGEST:
        seconds = _fastest_product(adapter, dtype, size)
        best = max(best, 2 * size**3 / seconds)
        if seconds >= ENOUGH_SECONDS:
            break
        size *= 2
    return best


def _fastest_product(adapter: DeviceAdapter, dtype: str, size: int) -> float:
    import torch

    device = adapter.torch_type  # without an index: the current device
    left, right = (torch.rand(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(left)
    times = []
    for _ in range(REPEATS + 1):  # the fastest counts, so the first one warms up
        adapter.synchronize()
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        adapter.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
