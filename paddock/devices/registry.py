"""The devices Paddock knows, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from paddock import plugins, process
from paddock.devices.adapter import DeviceAdapter
from paddock.devices.availability import Availability, probe
from paddock.devices.cpu import CPU
from paddock.devices.cuda import CUDA
from paddock.devices.mlu import MLU
from paddock.devices.npu import NPU
from paddock.devices.sdaa import SDAA
from paddock.devices.xpu import XPU
from paddock.errors import MachineError, bad_value, did_you_mean

if TYPE_CHECKING:
    import torch

# `auto` takes the first that is here. What torch brings itself comes before the plug-ins, because importing
# a plug-in makes it torch's accelerator, whether or not it has a device.
_ADAPTERS: dict[str, DeviceAdapter] = {adapter.name: adapter for adapter in (CPU, CUDA, XPU, NPU, MLU, SDAA)}


# For the device of a tensor, which a layer asks about at every call: its type says it.
_BY_TYPE: dict[str, DeviceAdapter] = {adapter.torch_type: adapter for adapter in _ADAPTERS.values()}

UNKNOWN = DeviceAdapter(
    name="unknown",
    package=None,
    torch_type="meta",
    backend="gloo",
    autocast=(),
    float16_needs_loss_scale=True,
    memory_format="contiguous",
    parallelism="data",
    float64=False,
    fused_optimizer=False,
    pinned_memory=False,
    install="nothing",
)
"""What holds of tensors on a device that nobody described, such as `meta`, which computes nothing."""


CALLED_ELSEWHERE = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "rocm": "cuda",
    "amd": "cuda",
    "hip": "cuda",
    "ascend": "npu",
    "huawei": "npu",
    "cambricon": "mlu",
    "teco": "sdaa",
    "tecorigin": "sdaa",
    "intel": "xpu",
}
"""What people call a device that has another name here."""


def register(adapter: DeviceAdapter) -> None:
    """Add a kind of device; `--device` then knows it. An installed package brings one by the entry point
    `paddock.devices` instead, and need not be imported.

    >>> register(replace(CPU, name="abacus"))
    """
    if adapter.name in (*_ADAPTERS, "auto"):
        raise ValueError(f'a device named "{adapter.name}" is registered already')
    _ADAPTERS[adapter.name] = adapter
    _BY_TYPE.setdefault(adapter.torch_type, adapter)
    plugins.remember(plugins.caller())


def device_names() -> list[str]:
    """Every kind of device that this package or another one brings, whether or not it can be used."""
    return [*_ADAPTERS, *(name for name in plugins.names("devices") if name not in _ADAPTERS)]


def all_adapters() -> tuple[DeviceAdapter, ...]:
    """The adapters of all kinds of device; an error, if a package brings one that cannot be used."""
    return tuple(adapter_named(name) for name in device_names())


def adapter_named(name: str) -> DeviceAdapter:
    """The adapter of that name, whether or not such a device is here."""
    if name not in _ADAPTERS:
        _ADAPTERS[name] = adapter = _from_a_package(name)
        _BY_TYPE.setdefault(adapter.torch_type, adapter)
    return _ADAPTERS[name]


def adapter_of(device: torch.device) -> DeviceAdapter:
    """What is known of the device that a tensor lies on. A look-up, which torch.compile traces too."""
    return _BY_TYPE.get(device.type, UNKNOWN)


@contextmanager
def treated_as(adapter: DeviceAdapter) -> Iterator[DeviceAdapter]:
    """Inside, tensors of the host are treated as those of another device: layers and optimizers take the ways that they
    take there, and the host computes."""
    own = _BY_TYPE[CPU.torch_type]
    if adapter.computes_on_host:
        yield own
        return
    alike = ("computes_on_host", "float64", "fused_optimizer", "autocast", "memory_format")
    _BY_TYPE[CPU.torch_type] = playing = replace(CPU, **{name: getattr(adapter, name) for name in alike})
    try:
        yield playing
    finally:
        _BY_TYPE[CPU.torch_type] = own


def _from_a_package(name: str) -> DeviceAdapter:
    adapter = plugins.find("devices", name)
    if adapter is None:
        meant = CALLED_ELSEWHERE.get(name.lower())
        fix = f'did you mean "{meant}"?' if meant else did_you_mean(name, ["auto", *device_names()])
        raise bad_value("device", name, "there is no such device", fix)
    if not isinstance(adapter, DeviceAdapter):
        raise plugins.unusable("devices", name, f"it is a {type(adapter).__name__}, and not a DeviceAdapter")
    if adapter.name != name:
        raise plugins.unusable("devices", name, f'the adapter calls itself "{adapter.name}"')
    return adapter


def select(name: str) -> DeviceAdapter:
    """The device to compute on: the one named, or with `auto` the accelerator that is here, else the CPU."""
    if name == "auto":
        return _select_auto()
    adapter = adapter_named(name)
    found = probe(adapter, names=False)
    if not found.available:
        raise _absent(adapter, found)
    return adapter


def _select_auto() -> DeviceAdapter:
    broken: MachineError | None = None
    for adapter in all_adapters():
        if adapter is CPU:
            continue
        found = probe(adapter, names=False)
        if found.available:
            return adapter
        if found.broken and broken is None:
            broken = _absent(adapter, found)
    # Whoever installed a vendor's package means to use the device: a slow run on the CPU is no answer.
    if broken is not None:
        raise broken
    return CPU


def prepare(adapter: DeviceAdapter) -> None:
    """Tune this process for a device that is about to compute, if it is ours: a user's own keeps its settings."""
    if process.is_ours():
        adapter.prepare()


def _absent(adapter: DeviceAdapter, found: Availability) -> MachineError:
    return MachineError(
        f'device "{adapter.name}" cannot be used on this machine',
        why=found.reason,
        fix=f"it needs {adapter.install}; `paddock doctor` shows what is here; --device cpu always works",
    )
