"""The memory of a device that does not exist: tensors that torch takes for a device's own, with their numbers in memory
of the host.

torch has two doors for a device that is written in Python. A tensor subclass that wraps another tensor is one; but it
is a subclass, which FSDP and DTensor then have to put up with, and no vendor's device asks that of them. So ours are
plain tensors, made through DLPack: a tensor of the host is exported, its description is changed to say that it lies on
a device of torch's extension type, and it is taken in again. What knows where the numbers really are is the storage,
in an attribute; only the kernels of this package look there.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils.dlpack import from_dlpack, to_dlpack

EXTENSION_DEVICE = 12
"""DLPack's `kDLExtDev`, which torch reads as the device type that plug-ins register."""


class _Exported(ctypes.Structure):
    """The beginning of DLPack's description of a tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Memory:
    """How much of it is taken, and was at most: what a vendor's module says of its allocator."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0

    def change(self, num_bytes: int) -> None:
        self.allocated += num_bytes
        self.peak = max(self.peak, self.allocated)


class _Block:
    """What one storage holds of the memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._held = memory, 0

    def hold(self, num_bytes: int) -> None:
        self._memory.change(num_bytes - self._held)
        self._held = num_bytes


MEMORY = Memory()

_as_strided: Any = None


def to_device(host: Tensor) -> Tensor:
    """The numbers of a tensor of the host as a tensor of the device, which takes over its memory."""
    host = host.detach()
    if host.storage_offset() != 0:
        host = host.clone()
    capsule = to_dlpack(host)
    _Exported.from_address(_pointer(capsule, b"dltensor")).device_type = EXTENSION_DEVICE
    tensor = from_dlpack(capsule)
    storage = tensor.untyped_storage()
    storage.host = host.untyped_storage()  # type: ignore[attr-defined]
    storage.block = block = _Block(MEMORY)  # type: ignore[attr-defined]
    block.hold(storage.host.nbytes())  # type: ignore[attr-defined]
    weakref.finalize(storage, block.hold, 0).atexit = False
    if tensor.stride() != host.stride():  # DLPack has one stride for every dimension of size 1
        tensor = borrowed("as_strided")(tensor, host.shape, host.stride(), 0)
    return tensor


def on_host(tensor: Tensor) -> Tensor:
    """The same memory as a tensor of the host."""
    host: UntypedStorage = tensor.untyped_storage().host  # type: ignore[attr-defined]
    if host.nbytes() == 0 and tensor.numel() > 0:
        raise RuntimeError("this tensor's memory on the device was given back")
    with torch.no_grad():
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(host, tensor.storage_offset(), tensor.shape, tensor.stride())


def borrowed(name: str) -> Any:
    """The host's kernel for an operator that only changes how a tensor describes its memory, for any device's."""
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
    return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)


def let_storages_resize() -> None:
    """torch asks a plug-in in C++ to give a storage other memory, and cannot ask one in Python: FSDP does so for every
    weight that it gathers. So the methods of storages are changed, for those of the device alone."""

    def resize(storage: Any, size: int) -> Any:
        if not hasattr(storage, "host"):
            return own_resize(storage, size)
        storage.host.resize_(size)
        storage.block.hold(size)
        return storage

    def num_bytes(storage: Any) -> int:
        return own_num_bytes(storage.host if hasattr(storage, "host") else storage)

    own_resize, own_num_bytes = UntypedStorage.resize_, UntypedStorage.nbytes
    UntypedStorage.resize_, UntypedStorage.nbytes, UntypedStorage.size = resize, num_bytes, num_bytes  # type: ignore[method-assign, assignment]
