"""The operators of the device: for each that the host has, a kernel that runs the host's on the same memory.

They are registered one by one, as a vendor registers its own. So an operator that the device is said to lack is truly
not there: torch's dispatcher says so, or calls whatever stands in for it (`paddock/devices/fallback.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paddock.alignment.host_reads import READING_OPERATORS
from paddock.testing.simulated.memory import borrowed, on_host, to_device

if TYPE_CHECKING:
    from paddock.testing.simulated.device import SimulatedDevice

KEY = "PrivateUse1"
DESCRIBING = (
    *("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex"),
    *("set_", "set_.source_Tensor", "set_.source_Storage", "set_.source_Storage_storage_offset"),
)
"""Operators that compute nothing: they make another description of the same memory."""
NORMS = ("aten::native_layer_norm", "aten::native_group_norm")
OWN = ("_copy_from", "_copy_from_and_resize", "resize_", "record_stream")
"""Operators between host and device, or of the device alone."""
TAKES_PLACES = ("index", "index_put", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")
"""Operators that may be told by a tensor of the host which elements they mean."""
DRAWING = ("native_dropout",)
"""Operators that draw from a device's own generator without being given one."""
SUMS = (
    *("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "convolution", "convolution_backward", "sum", "mean"),
    *("embedding_dense_backward", "index_add", "index_add_", "scatter_add", "scatter_add_"),
)
"""Operators whose additions may come in any order."""


class Kernels:
    """All of them, registered with torch until `remove`."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self._library = torch.library.Library("aten", "IMPL")
        lacks = set(device.settings.lacks)
        for name in host_operators():
            if name not in OWN and printed_name(name) not in lacks:
                self._register(name, borrowed(name) if name in DESCRIBING else self._kernel(name))
        if "aten.convolution" not in lacks:
            # What torch calls on a plug-in's device for what it calls by a plainer name elsewhere.
            self._register("convolution_overrideable", self._kernel("convolution"))
        if "aten.convolution_backward" not in lacks:
            backward = self._kernel("convolution_backward")
            self._register("convolution_backward_overrideable", _with_bias_sizes(backward))
        own: list[Callable[..., Any]] = [self._copy_from, self._copy_and_resize, self._resize, _record]
        for name, kernel in zip(OWN, own, strict=True):
            self._register(name, kernel)

    def remove(self) -> None:
        self._library._destroy()

    def _register(self, name: str, kernel: Callable[..., Any]) -> None:
        self._library.impl(name, kernel, KEY)

    def _kernel(self, name: str) -> Callable[..., Any]:
        """The host's operator of that name and overload, for tensors of the device."""
        device, operator = self._device, overload(name)
        packet, printed = name.partition(".")[0], printed_name(name)
        arguments = {argument.name for argument in operator._schema.arguments}
        makes, draws = "device" in arguments, "generator" in arguments
        tensors = [place for place, one in enumerate(operator._schema.arguments) if str(one.type) == "Tensor"]
        written = [_written_argument(operator, returned) for returned in operator._schema.returns]
        anywhere, reads, alone = packet in TAKES_PLACES, packet in READING_OPERATORS, packet in DRAWING
        disturbed = device.settings.nondeterministic > 0 and packet in SUMS

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if reads:
                device.host_reads[packet] += 1
            if makes:
                kwargs |= {"device": torch.device("cpu"), "pin_memory": False}
            if draws:
                kwargs["generator"] = device.generator_for(kwargs.get("generator"))
            device.check_place(printed, (*args, *kwargs.values()), anywhere)
            run = operator
            if any(isinstance(args[place], int | float) for place in tensors if place < len(args)):
                run = operator.overloadpacket  # a number in place of a tensor: torch finds the overload for it
            with _drawing_from(device.generator_for(None)) if alone else nullcontext():
                found = run(*map(_host, args), **{key: _host(value) for key, value in kwargs.items()})
            results = found if isinstance(found, tuple) else (found,)
            if device.injections is not None:
                device.injections.apply(printed, results)
            if disturbed:
                device.disturb(results)
            placed = [
                device.place(result) if argument is None else _settled(_find(argument, args, kwargs), result)
                for result, argument in zip(results, written, strict=False)
            ]
            return None if not placed else placed[0] if len(placed) == 1 else tuple(placed)

        return kernel

    def _copy_from(self, source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
        device = self._device
        if device.owns(source) and not device.owns(destination):
            device.host_reads["copy"] += 1
        there = on_host(destination) if device.owns(destination) else destination
        there.copy_(on_host(source) if device.owns(source) else source)
        return destination

    def _copy_and_resize(self, source: Tensor, destination: Tensor) -> Tensor:
        return self._copy_from(source, destination.resize_(source.shape))

    def _resize(self, tensor: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
        host = on_host(tensor).clone()
        return _settled(tensor, host.resize_(size, memory_format=memory_format or torch.contiguous_format))


def host_operators() -> Iterator[str]:
    """The operators, with their overloads, that the host has kernels for and torch does not make of others for every
    device; but norms, which it does, and vendors have kernels for."""
    has, finds = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C._dispatch_has_computed_kernel_for_dispatch_key
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and has(name, "CPU") and (not finds(name, KEY) or name in NORMS):
            yield name.removeprefix("aten::")


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")


def printed_name(name: str) -> str:
    """An operator without its overload, as torch prints it."""
    return f"aten.{name.partition('.')[0]}"


@contextmanager
def _drawing_from(generator: torch.Generator) -> Iterator[None]:
    """What the host draws inside comes from this generator, and its own is left as it was."""
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)


def _host(value: Any) -> Any:
    """An argument as the host's operator takes it."""
    if isinstance(value, Tensor):
        return value if value.device.type == "cpu" else on_host(value)
    if isinstance(value, list | tuple):
        return [_host(one) for one in value]
    return value


def _written_argument(operator: Any, returned: Any) -> tuple[int, str] | None:
    """Place and name of the argument that an operator writes to and gives back; None where it makes something new."""
    if returned.alias_info is None or not returned.alias_info.is_write:
        return None
    for place, argument in enumerate(operator._schema.arguments):
        alias = argument.alias_info
        if alias is not None and alias.before_set == returned.alias_info.before_set:
            return place, argument.name
    raise AssertionError(f"{operator} gives back what it was not given")


def _find(argument: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    place, name = argument
    return kwargs[name] if name in kwargs else args[place]


def _settled(tensor: Tensor, host: Tensor) -> Tensor:
    """A tensor of the device that was written to; if the host gave it another shape, it gets other memory."""
    if isinstance(tensor, Tensor) and tensor.shape != host.shape:
        borrowed("set_.source_Tensor")(tensor, to_device(host.clone()))
    return tensor


def _record(tensor: Tensor, stream: Any) -> None:
    """Memory that another queue uses, too: here there is one."""


def _with_bias_sizes(backward: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
        return backward(gradient, x, weight, [gradient.shape[1]], *rest)

    return kernel
