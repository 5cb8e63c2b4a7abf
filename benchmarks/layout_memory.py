"""What sharding and recomputation save, and what recomputation costs: GPT-2 124M.

Sharding: bytes of weights, gradients and optimizer state that each of two processes holds, counted tensor by tensor.
Recomputation: bytes that the forward pass keeps for the backward pass at sequence 1024, and the time of a step.
Run: python benchmarks/layout_memory.py
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from report import keep

from paddock.config.load import load_recipe
from paddock.devices import select
from paddock.models.build import build_engine, initialize_engine
from paddock.models.config import SampleShape
from paddock.parallel.config import Layout, ParallelConfig
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import build_mesh
from paddock.parallel.placement import local
from paddock.training.optimization.optimizer import build_optimizer

SEQUENCE = 1024


def build(rank: int, **changes: Any) -> Engine:
    parallel = ParallelConfig(**changes)
    data = parallel.data if isinstance(parallel.data, int) else 1
    mesh = build_mesh(Layout(data, parallel.tensor, parallel.pipeline), rank, "cpu")
    engine = build_engine(
        load_recipe("gpt2/117m").model,
        parallel,
        mesh,
        torch.device("cpu"),
        micro=1,
        shape=SampleShape(SEQUENCE),
        micro_batches=1,
    )
    initialize_engine(engine, 0)
    engine.train()
    return engine


def batch(time: int) -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(0, 50257, (1, time + 1))
    return [{"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}]


def held_bytes(rank: int, mode: str, results: Any) -> None:
    """One process of two: a step, then what it holds."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    engine = build(rank, data=2, shard=mode)
    optimizer = build_optimizer(engine.trained, load_recipe("gpt2/117m").optimizer)
    engine.forward_backward(batch(64), 1.0)
    optimizer.step()
    tensors = [*engine.trained, *(parameter.grad for parameter in engine.trained if parameter.grad is not None)]
    tensors += [value for state in optimizer.state.values() for value in state.values() if value.dim()]
    results[rank] = sum(local(tensor.data).nbytes for tensor in tensors)
    dist.destroy_process_group()


def kept_and_time(mode: str) -> tuple[int, float]:
    """Bytes kept for the backward pass (weights aside), and the fastest of three steps."""
    engine = build(0, recompute=mode)
    weights = {parameter.untyped_storage().data_ptr() for parameter in engine.trained}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        (stage,) = engine.stages.values()
        loss = stage(batch=batch(SEQUENCE)[0])
        total = sum(kept.values())
    del loss
    times = []
    for _ in range(3):
        started = time.perf_counter()
        engine.forward_backward(batch(SEQUENCE), 1.0)
        times.append(time.perf_counter() - started)
    return total, min(times)


def main() -> None:
    rows: list[tuple[str, float, str]] = []
    sizes = {}
    for mode in ("none", "optimizer", "parameters"):
        with multiprocessing.Manager() as manager:
            results = manager.dict()
            multiprocessing.spawn(held_bytes, (mode, results), nprocs=2)
            sizes[mode] = max(results.values())
        rows.append((f"shard {mode}: MB held by a process", sizes[mode] / 1e6, ""))
    rows.append(("shard parameters ÷ none", sizes["parameters"] / sizes["none"], "≤ 0.55"))
    select("cpu").prepare()
    measured = {mode: kept_and_time(mode) for mode in ("none", "selective", "full")}
    for mode, (kept, seconds) in measured.items():
        if mode != "selective":  # what it keeps lies in a store of its own, where hooks do not look
            rows.append((f"recompute {mode}: MB kept at sequence {SEQUENCE}", kept / 1e6, ""))
        rows.append((f"recompute {mode}: step, s", seconds, ""))
    rows.append(("activations, none ÷ full", measured["none"][0] / measured["full"][0], "≥ 3"))
    rows.append(("step time, full ÷ none", measured["full"][1] / measured["none"][1], "≤ 1.35"))
    keep(__file__, rows)


if __name__ == "__main__":
    main()
