"""The CPU, through gloo: the device that is always there, and the reference for all the others."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.devices.adapter import DeviceAdapter, Packed
from paddock.devices.config import CompressedFormat, ProductsSetting

if TYPE_CHECKING:
    import torch

# <malloc.h>
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_MAX = -4


INSTRUCTIONS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "fphp", "asimdhp"},
}
"""Any of these, as Linux names them, multiplies numbers of that type."""


class CpuAdapter(DeviceAdapter):
    """Every process shares the one CPU: there is no index to set and nothing to wait for."""

    def torch_device(self, local_rank: int) -> torch.device:
        import torch

        return torch.device("cpu")

    def activate(self, local_rank: int) -> torch.device:
        return self.torch_device(local_rank)

    def count(self) -> int:
        return 1

    def device_name(self, index: int | None = None) -> str:
        return cpu_model()

    def synchronize(self) -> None:
        pass

    def memory_used(self) -> int | None:
        """The peak resident memory of this process, which counts Python and torch as well as tensors."""
        try:
            # Not getrusage: on Linux its peak is inherited from the process that started this one.
            with open("/proc/self/status", encoding="ascii") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
        except (OSError, StopIteration):
            pass
        try:
            import resource
        except ImportError:  # Windows
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def has_instructions_for(self, dtype: str) -> bool | None:
        flags = cpu_flags()
        return dtype not in INSTRUCTIONS or (None if flags is None else bool(flags & INSTRUCTIONS[dtype]))

    def prepare(self) -> None:
        """Keep freed memory in the process: 8 to 13 % faster training for a somewhat larger footprint.

        glibc gives large blocks back to the kernel when they are freed, and each step pays for the page
        faults again; so do threads, whose heaps are of 64 MiB, unless more than that is to be kept in reserve.
        Other C libraries do not, or have no such dial, and are left alone.
        """
        import ctypes

        if not sys.platform.startswith("linux"):
            return
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, -1)
            libc.mallopt(M_TOP_PAD, 256 * 2**20)

    def choose_products(self, setting: ProductsSetting, num_parameters: int, kept: object = None) -> dict[str, Any]:
        from paddock.devices import products

        return products.choose(setting, cpu_model(), num_parameters, kept).model_dump()

    def using_products(self, chosen: Mapping[str, Any]) -> AbstractContextManager[None]:
        from paddock.devices import products

        return products.using(products.Products.model_validate(chosen))

    def pack(self, weight: torch.Tensor, rows: int) -> Packed | None:
        from paddock.devices import products

        return products.pack(weight, rows)

    def compress(self, weight: torch.Tensor, format: CompressedFormat) -> Packed | None:
        from paddock.devices import formats

        return formats.Int8Weight(weight) if format == "int8" else formats.DynamicInt8Weight(weight)

    def version(self) -> str | None:
        import torch

        return str(torch.__version__)


def cpu_model() -> str:
    """The processor's name, which Python's `platform` does not give on Linux."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def cpu_flags() -> set[str] | None:
    """The instruction sets of the processor, as Linux names them; None elsewhere."""
    found = _cpu_info("flags") or _cpu_info("Features")
    return None if found is None else set(found.split())


def _cpu_info(name: str) -> str | None:
    """What Linux says of the first core."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


CPU = CpuAdapter(
    name="cpu",
    package=None,
    torch_type="cpu",
    backend="gloo",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="full",
    float64=True,
    fused_optimizer=True,
    pinned_memory=False,
    install="torch",
    computes_on_host=True,
    slow_types={"float16": "about twenty times slower than float32"},
)
