"""Bringing the simulated device to a process: in Python for a while, or as a package that child processes find too."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from paddock.devices import DeviceAdapter, adapter_named, device_names, register
from paddock.testing.simulated import autocast, collectives, module
from paddock.testing.simulated.device import Settings, SimulatedDevice
from paddock.testing.simulated.injection import Injection, watching_modules
from paddock.testing.simulated.kernels import Kernels
from paddock.testing.simulated.memory import let_storages_resize
from paddock.testing.simulated.pinned import let_host_memory_be_pinned

NAME = "simulated"
"""Of a device that plays no vendor's."""
ADAPTER = DeviceAdapter(
    name=NAME,
    package=f"torch_{NAME}",
    torch_type=NAME,
    backend="simccl",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="contiguous",
    parallelism="full",
    float64=False,
    fused_optimizer=False,
    pinned_memory=True,
    install="a package that `python -m paddock.testing.simulated FOLDER` makes, on PYTHONPATH",
)
PACKAGE = '''"""A device that does not exist, written in Python (paddock.testing.simulated)."""

from paddock.testing.simulated.install import install_from

__version__ = "0 (simulated)"
install_from({name!r}, {settings!r})
'''


class _Installation:
    """The simulated device of this process. torch takes one for good, under one name; what it is like may change."""

    def __init__(self, adapter: DeviceAdapter) -> None:
        self.device = SimulatedDevice(adapter.torch_type, Settings(count=0))
        module.register(self.device)
        let_storages_resize()
        self._kept = [autocast.register(self.device), let_host_memory_be_pinned()]
        collectives.register(self.device, adapter.backend)
        self._kernels: Kernels | None = None
        self._watch = ExitStack()

    def change(self, settings: Settings) -> None:
        self.device.change(settings)
        if self._kernels is not None:
            self._kernels.remove()
        self._kernels = Kernels(self.device)
        self._watch.close()
        if settings.injections:
            self._watch.enter_context(watching_modules())


_installation: _Installation | None = None


def install(name: str, settings: Settings) -> SimulatedDevice:
    """The device for the rest of this process, or until it is installed with other settings."""
    global _installation
    adapter = adapter_for(name)
    if _installation is None:
        _installation = _Installation(adapter)
    device = _installation.device
    if device.name != adapter.torch_type:
        raise RuntimeError(f"this process has a simulated {device.name} already, and torch takes no other")
    _installation.change(settings)
    if settings.count:
        _check_gradients(device)
    return device


def _check_gradients(device: SimulatedDevice) -> None:
    """An error, if torch has no thread for the device's backward passes: it starts one for every device that it knows
    when anything goes backward for the first time."""
    import torch

    number = torch.ones(1, device=device.name, requires_grad=True)
    try:
        number.sum().backward()
    except RuntimeError as error:
        raise RuntimeError(
            f"bring the simulated {device.name} to this process before its first backward pass"
        ) from error


def adapter_for(name: str) -> DeviceAdapter:
    """The adapter of the vendor's device that is played, or our own, which is known from then on."""
    if name == NAME and name not in device_names():
        register(ADAPTER)
    return adapter_named(name)


def _played(name: str) -> DeviceAdapter:
    return ADAPTER if name == NAME else adapter_named(name)


def settings_for(name: str, **changes: Any) -> Settings:
    """What the adapter says of the device, and what else is told."""
    adapter = _played(name)
    told = {key: value for key, value in changes.items() if value is not None}
    return Settings(**{"float64": adapter.float64, "autocast": adapter.autocast, **told})


@contextmanager
def simulated_device(
    name: str = NAME,
    *,
    lacks: Sequence[str] = (),
    injections: Sequence[Injection] = (),
    float64: bool | None = None,
    broken_collectives: Sequence[str] = (),
    nondeterministic: float = 0.0,
    count: int = 8,
) -> Iterator[SimulatedDevice]:
    """Inside, this process has a device of that kind, and `--device NAME` means it. None of what is not told differs
    from what the kind's adapter says."""
    settings = settings_for(
        name,
        lacks=tuple(lacks),
        injections=tuple(injections),
        float64=float64,
        broken_collectives=tuple(broken_collectives),
        nondeterministic=nondeterministic,
        count=count,
    )
    adapter = _played(name)
    assert adapter.package is not None, f"{name} is no plug-in's device"
    package = ModuleType(adapter.package)
    package.__spec__ = ModuleSpec(adapter.package, None)
    package.__version__ = "0 (simulated)"  # type: ignore[attr-defined]
    before = sys.modules.get(adapter.package)
    sys.modules[adapter.package] = package
    try:
        yield install(name, settings)
    finally:
        install(name, Settings(count=0))
        if before is None:
            del sys.modules[adapter.package]
        else:
            sys.modules[adapter.package] = before


def install_from(name: str, settings: str) -> None:
    """Called by a package that `write_package` made, when it is imported."""
    told: dict[str, Any] = {}
    for key, value in json.loads(settings).items():
        made = [Injection(**one) for one in value] if key == "injections" else value
        told[key] = tuple(made) if isinstance(made, list) else made
    install(name, Settings(**told))


def write_package(folder: Path, name: str = NAME, **changes: Any) -> None:
    """Make the package of a vendor's plug-in in a folder. With that folder on PYTHONPATH, every process of a job has
    the simulated device; `changes` are fields of `Settings`."""
    adapter = _played(name)
    assert adapter.package is not None, f"{name} is no plug-in's device"
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.dumps(dataclasses.asdict(settings_for(name, **changes)))
    (folder / f"{adapter.package}.py").write_text(PACKAGE.format(name=name, settings=settings), encoding="utf-8")
    if name == NAME:
        metadata = folder / f"{adapter.package}-0.dist-info"
        metadata.mkdir(exist_ok=True)
        about = f"Metadata-Version: 2.1\nName: {adapter.package}\nVersion: 0\n"
        (metadata / "METADATA").write_text(about, encoding="utf-8")
        entry = f"[paddock.devices]\n{NAME} = paddock.testing.simulated.install:ADAPTER\n"
        (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")
