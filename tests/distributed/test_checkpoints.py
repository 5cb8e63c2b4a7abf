"""Checkpoints have no layout: whatever saved one, everything loads it, to the last bit."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.models.assembly import assemble, fill
from paddock.models.gpt2.config import GPT2Config
from paddock.parallel.config import ParallelConfig
from paddock.parallel.engine import Engine
from paddock.parallel.layout import derive_layout
from paddock.parallel.mesh import build_mesh
from paddock.testing.pool import ProcessPool

CONFIG = GPT2Config(layers=4, hidden=32, heads=4, vocab=101, context=16, dropout=0.0)
"""The vocabulary lies unevenly over any number of processes."""
GLOBAL, TIME = 16, 16

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"shard": "optimizer"},
    {"shard": "parameters"},
    {"tensor": 4, "sequence": True},
    {"tensor": 2},
    {"tensor": 2, "shard": "parameters"},
    {"tensor": 2, "shard": "optimizer", "sequence": True, "recompute": "full"},
    {"pipeline": 4},
    {"pipeline": 2, "shard": "parameters", "stages": (0, 0, 0, 1)},
    {"pipeline": 2, "schedule": "interleaved"},
    {"pipeline": 2, "schedule": "zbv", "tensor": 2},
    {"pipeline": 2, "tensor": 2, "sequence": True, "stages": (0, 1, 1, 1)},
    {"pipeline": 2, "schedule": "dualpipev", "shard": "optimizer"},
]
"""For four processes; what is left over is data parallelism."""


def build(rank: int, world: int, layout: dict[str, Any], seed: int) -> tuple[Engine, Optimizer]:
    parallel = ParallelConfig(**layout)
    shape = derive_layout(parallel, world)
    accumulation = 8 // shape.data if shape.pipeline == 1 else 4
    engine = assemble(
        CONFIG,
        parallel,
        build_mesh(shape, rank, "cpu"),
        torch.device("cpu"),
        micro=GLOBAL // shape.data // accumulation,
        sequence_length=TIME,
        micro_batches=accumulation,
    )
    fill(engine, seed)
    return engine, torch.optim.AdamW(engine.trained, lr=1e-2, foreach=False)


def step(engine: Engine, optimizer: Optimizer, number: int) -> float:
    """One step on the samples of that step; returns the mean loss over all processes."""
    tokens = torch.randint(CONFIG.vocab, (GLOBAL, TIME + 1), generator=torch.Generator().manual_seed(number))
    mesh = engine.mesh
    here = tokens.chunk(mesh.layout.data)[mesh.data_rank]
    pieces = 4 if mesh.layout.pipeline > 1 else 8 // mesh.layout.data
    batches = [{"tokens": part[:, :-1], "labels": part[:, 1:]} for part in here.chunk(pieces)]
    engine.train()
    count = GLOBAL * TIME
    loss = torch.tensor(engine.forward_backward(batches, 1 / count, contextlib.nullcontext()), dtype=torch.float64)
    if mesh.grid is not None:
        torch.distributed.all_reduce(loss)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss) / count


def contents(engine: Engine, optimizer: Optimizer) -> dict[str, str]:
    """A digest of every tensor that is here, whole, and of each copy of what is here twice."""
    found: dict[str, str] = {}
    for model in engine.models:
        for name, tensor in tensors_of([model], optimizer).items():
            digest = hashlib.sha256(whole(tensor).contiguous().numpy().tobytes()).hexdigest()
            assert found.setdefault(name, digest) == digest, f"two copies of {name} differ"
    return found


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train_and_save(rank: int, world: int, layout: dict[str, Any], path: Path) -> tuple[dict[str, str], float]:
    """A step, a checkpoint, and the loss of the next step."""
    engine, optimizer = build(rank, world, layout, seed=1)
    step(engine, optimizer, 0)
    write_checkpoint(path, tensors_of(engine.models, optimizer), {"step": 1})
    return contents(engine, optimizer), step(engine, optimizer, 1)


def load_and_train(rank: int, world: int, layout: dict[str, Any], path: Path) -> tuple[dict[str, str], float]:
    engine, optimizer = build(rank, world, layout, seed=2)
    load_models(path, engine.models, optimizer)
    return contents(engine, optimizer), step(engine, optimizer, 1)


def merged(results: list[tuple[dict[str, str], float]]) -> tuple[dict[str, str], float]:
    """What all processes hold; what several hold is the same."""
    found: dict[str, str] = {}
    for digests, _ in results:
        for name, digest in digests.items():
            assert found.setdefault(name, digest) == digest, f"processes differ in {name}"
    assert len({loss for _, loss in results}) == 1
    return found, results[0][1]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(4) as processes:
        yield processes


@pytest.fixture(scope="module")
def saved(pool: ProcessPool, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, str], float]]:
    """A checkpoint of every layout, what is in it, and the loss of the next step."""
    folder = tmp_path_factory.mktemp("saved")
    made = []
    for number, layout in enumerate(LAYOUTS):
        path = folder / f"step-{number:08d}"
        made.append((path, *merged(pool.run(train_and_save, 4, layout, path))))
    return made


def check_pair(pool: ProcessPool, source: tuple[Path, dict[str, str], float], layout: dict[str, Any]) -> None:
    path, digests, loss = source
    found, next_loss = merged(pool.run(load_and_train, pool.size, layout, path))
    assert found.keys() == digests.keys() and len(found) == 4 * len(list(parameter_names()))
    assert {name for name in found if found[name] != digests[name]} == set()
    assert next_loss == pytest.approx(loss, rel=1e-5)


def parameter_names() -> list[str]:
    from paddock.models.registry import parameter_names

    return list(parameter_names(CONFIG))


def test_every_layout_loads_what_another_saved(
    pool: ProcessPool, saved: list[tuple[Path, dict[str, str], float]]
) -> None:
    order = list(range(len(LAYOUTS)))
    random.Random(4).shuffle(order)
    for source, target in zip(order, order[1:] + order[:1], strict=True):
        check_pair(pool, saved[source], LAYOUTS[target])


@pytest.mark.slow
def test_every_pair_of_layouts(pool: ProcessPool, saved: list[tuple[Path, dict[str, str], float]]) -> None:
    for source, layout in itertools.product(saved, LAYOUTS):
        check_pair(pool, source, layout)
