"""Numbers on a device: its types, their way there and back, and those that it draws."""

from __future__ import annotations

import torch
from torch import Tensor

from paddock.alignment.conformance.checks import Wrong
from paddock.parallel.placement import DeviceCopies
from paddock.parallel.world import World

MARGIN = 16.0
"""How many times its rounding a product of a type may be off."""


def check_type(world: World, name: str) -> str:
    if name == "float64" and not world.adapter.float64:
        return "not claimed"
    dtype, generator = getattr(torch, name), torch.Generator().manual_seed(1)
    if dtype.is_floating_point:
        here = (torch.rand(16, 24, generator=generator) - 0.5).to(dtype)
    else:
        here = torch.randint(0, 2 if name == "bool" else 100, (16, 24), generator=generator).to(dtype)
    there = here.to(world.device)
    if there.dtype != dtype or not torch.equal(there.cpu(), here):
        raise Wrong("what comes back from the device is not what went there")
    if not dtype.is_floating_point:
        found = there.sum().item() if name != "bool" else there.logical_not().any().item()
        if found != (here.sum().item() if name != "bool" else here.logical_not().any().item()):
            raise Wrong("a sum is wrong")
        return ""
    return check_product(there @ there.T, here.double() @ here.double().T)


def check_product(found: Tensor, right: Tensor) -> str:
    """A product of not many terms is right as far as its type goes. One of few bits is summed in more, and rounded
    once, by half of eps at most: twice as much is allowed."""
    error = float((found.cpu().double() - right).norm() / right.norm())
    eps = torch.finfo(found.dtype).eps
    allowed = eps if found.dtype.itemsize < 4 else MARGIN * eps
    if not error <= allowed:
        raise Wrong(f"a product is off by {error:.1e}, {allowed:.1e} allowed")
    return f"a product is off by {error:.1e}"


def check_copies(world: World) -> str:
    copies = DeviceCopies(world.adapter, world.device)
    for first in range(3):  # other numbers each time: memory that is used again may hold those of before
        numbers = torch.arange(first, first + 10_000).view(100, 100)
        batch = {name: numbers.to(getattr(torch, name)) for name in ("int64", "float32")}
        begun = copies.start(batch)
        found = begun()
        world.adapter.synchronize()
        if any(not torch.equal(found[name].cpu(), values) for name, values in batch.items()):
            raise Wrong("numbers change on the way")
    return "from page-locked memory, on a stream of their own" if world.adapter.pinned_memory else ""


def check_random(world: World) -> str:
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.nn.functional.dropout(torch.ones(64, 64, device=world.device), 0.25).cpu()

    first, same, other = draw(1), draw(1), draw(2)
    if not torch.equal(first, same):
        raise Wrong("the same seed draws other masks")
    if torch.equal(first, other):
        raise Wrong("another seed draws the same masks")
    dropped = float((first == 0).float().mean())
    if abs(dropped - 0.25) > 0.05 or not torch.allclose(first[first != 0], torch.tensor(4 / 3)):
        raise Wrong(f"dropout of 0.25 drops {dropped:.2f}, or scales what stays by another factor than 4/3")
    return ""
