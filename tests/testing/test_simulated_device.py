"""The simulated device behaves as one: its memory is its own, what it lacks is missing, what is wrong is wrong there.

Each test runs in a process that has the device; torch takes one for the life of a process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from paddock.devices import adapter_named, probe, select
from paddock.errors import MachineError
from paddock.parallel import placement
from paddock.testing.pool import ProcessPool
from paddock.testing.simulated import Injection, name_modules, simulated_device

NAME = "npu"


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(1) as pool:
        yield pool


def raises(kind: type[Exception], work: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        work()


def is_a_device(rank: int) -> None:
    with simulated_device(NAME) as device:
        adapter = select(NAME)
        assert adapter is adapter_named(NAME) and probe(adapter).names[0] == f"simulated {NAME}"
        assert adapter.activate(3) == torch.device(NAME, 0)
        there = torch.arange(6.0).view(2, 3).to(NAME)
        assert type(there) is Tensor and str(there.device) == f"{NAME}:0" and not there.is_cpu
        assert device.host_reads.total() == 0
        raises(TypeError, there.numpy, "host memory first")
        raises(RuntimeError, lambda: there + torch.ones(2, 3), "same device")
        raises(RuntimeError, lambda: there.index_add(0, torch.tensor([0]), there[:1]), "same device")
        raises(RuntimeError, there.double, "has no torch.float64")
        raises(RuntimeError, lambda: torch.ones(2, device=NAME, dtype=torch.float64), "has no torch.float64")
        assert (there.t() @ there).cpu().tolist() == [[9, 12, 15], [12, 17, 22], [15, 22, 29]]
        assert (there * torch.tensor(2.0))[there > 3].tolist() == [8.0, 10.0]  # a single number may lie anywhere
        assert (there.long() % 4).tolist() == [[0, 1, 2], [3, 0, 1]]
    assert not probe(adapter_named(NAME)).available


def has_its_own_memory(rank: int) -> None:
    with simulated_device(NAME) as device:
        gc.collect()
        adapter, before = select(NAME), device.memory.allocated
        there = torch.zeros(1000, device=NAME)
        view = there[10:20]
        assert device.memory.allocated - before == 4000 == there.untyped_storage().nbytes()
        del there
        view += 1
        assert view.sum().item() == 10 and device.memory.allocated - before == 4000
        peak = adapter.memory_used()
        del view
        gc.collect()
        assert device.memory.allocated == before and adapter.memory_used() == peak
        gathered = torch.ones(8, device=NAME)  # as FSDP gives memory back, and takes it again
        gathered.untyped_storage().resize_(0)
        assert device.memory.allocated == before and gathered.untyped_storage().size() == 0
        raises(RuntimeError, lambda: gathered + 1, "given back")
        gathered.untyped_storage().resize_(32)
        assert gathered.fill_(2).sum().item() == 16
        grown = torch.arange(3, device=NAME).resize_(2, 3)
        assert grown.shape == (2, 3) and grown[0].tolist() == [0, 1, 2]
        out = torch.empty(0, device=NAME)
        assert torch.mul(gathered, 2, out=out).shape == (8,) and out.sum().item() == 32


def draws_its_own_numbers(rank: int) -> None:
    with simulated_device(NAME):
        torch.manual_seed(5)
        first, host = torch.rand(4, device=NAME), torch.rand(4)
        torch.manual_seed(5)
        torch.rand(4)  # the host's numbers are others, and not in its way
        assert torch.equal(first, torch.rand(4, device=NAME)) and host.sum() > 0
        with torch.random.fork_rng([torch.device(NAME, 0)], device_type=NAME):
            inside = F.dropout(torch.ones(64, device=NAME), 0.5)
        assert torch.equal(inside, F.dropout(torch.ones(64, device=NAME), 0.5))
        raises(RuntimeError, lambda: torch.rand(4, device=NAME, generator=torch.Generator()), "generator")
        pinned = torch.ones(3).pin_memory()
        assert pinned.is_pinned() and not torch.ones(3).is_pinned()
        stream = torch.Stream(torch.device(NAME, 0))
        with stream:
            copy = pinned.to(NAME, non_blocking=True)
            done = stream.record_event()
        torch.accelerator.current_stream().wait_event(done)
        copy.record_stream(torch.accelerator.current_stream())
        assert copy.tolist() == [1.0, 1.0, 1.0]


def copies_batches_ahead(rank: int) -> None:
    """From page-locked memory, before anybody asks for the copy."""
    copied: list[bool] = []
    copy = placement.to_device

    def watched(batch: Any, device: torch.device) -> dict[str, Tensor]:
        copied.append(all(tensor.is_pinned() for tensor in batch.values()))
        return copy(batch, device)

    with simulated_device(NAME):
        adapter, device = select(NAME), torch.device(NAME, 0)
        placement.to_device = watched
        try:
            ready = placement.DeviceCopies(adapter, device).start({"tokens": torch.arange(3)})
            assert copied == [True]
        finally:
            placement.to_device = copy
        assert ready()["tokens"].tolist() == [0, 1, 2]


def counts_reads(rank: int) -> None:
    with simulated_device(NAME) as device:
        x = torch.arange(4.0).to(NAME)
        for read in (
            lambda: x.sum().item(),
            lambda: x.tolist(),
            lambda: bool(x[0] > 0),
            lambda: x.cpu(),
            lambda: x[x > 1],
            lambda: x.nonzero(),
            lambda: torch.equal(x, x),
        ):
            device.host_reads.clear()
            read()
            assert device.host_reads.total() == 1, device.host_reads
        device.host_reads.clear()
        x[torch.tensor([1, 2])] = x[torch.tensor([0, 1])] * 2  # places may be told by the host
        assert device.host_reads.total() == 0 and device.waits == 0
        select(NAME).synchronize()
        assert device.waits == 1


def casts_as_accelerators_do(rank: int) -> None:
    first, norm, last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)
    x = torch.rand(3, 6)

    def product(x: Tensor, layer: nn.Linear, dtype: torch.dtype) -> Tensor:
        return F.linear(x.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))

    with simulated_device(NAME):
        there = nn.Sequential(first, nn.GELU(), norm, last)
        for dtype in (torch.bfloat16, torch.float16):
            there.to("cpu")
            expected = product(norm(F.gelu(product(x, first, dtype)).float()), last, dtype)
            there.to(NAME)
            with torch.autocast(NAME, dtype):
                found = there(x.to(NAME))
                likely = found.softmax(-1)
            assert found.dtype == dtype and torch.equal(found.cpu(), expected)
            assert likely.dtype == torch.float32 and torch.equal(likely.cpu(), expected.float().softmax(-1))


@pytest.mark.parametrize(
    "work",
    [
        is_a_device,
        has_its_own_memory,
        draws_its_own_numbers,
        copies_batches_ahead,
        counts_reads,
        casts_as_accelerators_do,
    ],
)
def test_it_behaves_as_a_device(pool: ProcessPool, work: Any) -> None:
    pool.run(work)


LACKING = ("aten.gelu", "aten.gelu_backward", "aten._softmax", "aten.cat", "aten.embedding_dense_backward")


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))


def squares(model: nn.Module, device: str) -> tuple[float, list[Tensor]]:
    """A loss of a model, and its gradients, on the host."""
    model.to(device).zero_grad()
    tokens = torch.tensor([[1, 2, 3]], device=device)
    both = torch.cat([model(tokens), model(tokens)])
    loss = both.softmax(-1).square().sum()
    loss.backward()
    return loss.item(), [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]


def falls_back(rank: int) -> None:
    adapter = adapter_named(NAME)
    with simulated_device(NAME, lacks=LACKING) as device:
        loss, gradients = squares(small_model(), "cpu")
        with adapter.falling_back("cpu") as ledger:
            found, found_gradients = squares(small_model(), NAME)
            with pytest.raises(MachineError, match=r"aten::gelu"), adapter.falling_back("error"):
                squares(small_model(), NAME)
        assert found == pytest.approx(loss, rel=1e-6)
        assert all(torch.allclose(*pair, atol=1e-7) for pair in zip(found_gradients, gradients, strict=True))
        calls = {operator: entry["calls"] for operator, entry in ledger.to_dict().items()}
        assert calls == dict(zip(LACKING, (2, 2, 1, 1, 2), strict=True))
        assert all(entry.seconds > 0 for entry in ledger.entries.values())
        assert ledger.table().splitlines()[0].split() == ["operator", "calls", "seconds"]
        with pytest.raises(MachineError, match=r"aten::gelu\.out") as error, adapter.falling_back("error"):
            squares(small_model(), NAME)
        assert "--device.fallback cpu" in str(error.value)
        raises(NotImplementedError, lambda: squares(small_model(), NAME), "gelu.out")  # nothing stays behind
        assert device.host_reads["copy"] > 0


def vendors_own_stand_in(rank: int) -> None:
    adapter = adapter_named(NAME)
    with simulated_device(NAME, lacks=LACKING):
        library = torch.library.Library("_", "IMPL")
        library.fallback(lambda operator, *args, **kwargs: None, "PrivateUse1")
        with adapter.falling_back("cpu") as ledger:
            assert ledger.by_vendor and not ledger.entries
        with pytest.raises(Exception, match="by itself"), adapter.falling_back("error"):
            pass
        library._destroy()


@pytest.mark.parametrize("work", [falls_back, vendors_own_stand_in])
def test_missing_operators(pool: ProcessPool, work: Any) -> None:
    pool.run(work)


class Twice(nn.Module):
    """A model of two like layers, of which only one is wrong; its second may run again in the backward pass."""

    def __init__(self, recomputes: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh()) for _ in range(2))
        self.recomputes = recomputes

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.layers
        return checkpoint(second, first(x), use_reentrant=False) if self.recomputes else second(first(x))


def outcome(device: str, recomputes: bool, alone: bool = False) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(0)
    model = Twice(recomputes).to(device)
    x = torch.rand(5, 4).to(device)
    if alone:  # a layer that is called by itself is known by the name that it was given
        name_modules(model)
        found = model.layers[1](x)
    else:
        found = model(x)
    found.square().sum().backward()
    return found.detach().cpu(), [one.grad.cpu() for one in model.parameters() if one.grad is not None]


def off(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


def injects(rank: int, direction: Any, recomputes: bool) -> None:
    injection = Injection("aten.mm", "layers.1", size=1e-2, direction=direction)
    with simulated_device(NAME, injections=[injection]) as device:
        right, gradients = outcome("cpu", recomputes)
        found, found_gradients = outcome(NAME, recomputes)
        again, _ = outcome(NAME, recomputes)
        assert torch.equal(found, again)
        assert device.injections is not None and device.injections.applied > 0
        errors = [off(*pair) for pair in zip(found_gradients, gradients, strict=True)]
        if direction == "forward":
            assert 1e-3 < off(found, right) < 2e-2
        else:  # the second layer's gradient is wrong by just so much, and what comes of it before
            assert off(found, right) < 1e-6 and errors[1] == pytest.approx(1e-2, rel=1e-3) and errors[0] > 1e-3
    for other in (Injection("aten.mm", "layers.2", 1e-2, direction), Injection("aten.bmm", None, 1e-2, direction)):
        with simulated_device(NAME, injections=[other]):
            found, found_gradients = outcome(NAME, recomputes)
            assert off(found, right) < 1e-6
            assert max(off(*pair) for pair in zip(found_gradients, gradients, strict=True)) < 1e-6
    with simulated_device(NAME, injections=[injection]) as device:
        right, _ = outcome("cpu", recomputes, alone=True)
        assert (off(outcome(NAME, recomputes, alone=True)[0], right) > 1e-3) == (direction == "forward")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("recomputes", [False, True])
def test_errors_are_where_they_were_put(pool: ProcessPool, direction: str, recomputes: bool) -> None:
    pool.run(injects, direction, recomputes)


def refuses_another_name(rank: int) -> None:
    with simulated_device(NAME):
        pass
    raises(RuntimeError, partial(simulated_device("mlu").__enter__), "torch takes no other")


def comes_too_late(rank: int) -> None:
    torch.ones(1, requires_grad=True).sum().backward()
    raises(RuntimeError, partial(simulated_device(NAME).__enter__), "before its first backward pass")


def test_one_device_a_process(pool: ProcessPool) -> None:
    pool.run(refuses_another_name)
    with ProcessPool(1) as fresh:
        fresh.run(comes_too_late)
