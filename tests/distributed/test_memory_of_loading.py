"""Loading takes a process its own share of the checkpoint and one tensor, converting one tensor: never the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.checkpoint.foreign.huggingface import read_config, save_folder
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import saved_tensors, write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.inference.trained import open_trained
from paddock.jobs.convert import convert
from paddock.models.build import build_engine, build_part, initialize_engine
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.gpt2.config import GPT2Config
from paddock.models.model import Model
from paddock.models.registry import build_model
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.parallel.mesh import build_mesh
from paddock.parallel.placement import local
from paddock.testing.pool import ProcessPool
from paddock.testing.processes import STATUS, PeakMemory

pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")

CONFIG = GPT2Config(layers=4, hidden=512, heads=8, vocab=4000, context=64, dropout=0.0)
WHOLE = 4 * CONFIG.num_parameters()
LARGEST = 4 * CONFIG.vocab * CONFIG.hidden
"""Bytes: of all weights, and of the largest of them."""
SLACK = 6 << 20


def build(rank: int, world: int, layout: dict[str, Any]) -> tuple[Any, torch.optim.Optimizer]:
    parallel = ParallelConfig(**layout)
    mesh = build_mesh(derive_layout(parallel, world), rank, "cpu")
    engine = build_engine(
        CONFIG, parallel, mesh, torch.device("cpu"), micro=1, shape=SampleShape(64), micro_batches=parallel.pipeline
    )
    initialize_engine(engine, 1)
    return engine, torch.optim.AdamW(engine.trained, lr=1e-2, foreach=False)


def save(rank: int, world: int, layout: dict[str, Any], path: Path) -> None:
    engine, optimizer = build(rank, world, layout)
    for parameter in engine.trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    write_checkpoint(path, tensors_of(engine.models, optimizer), {"step": 1})


def load(rank: int, world: int, layout: dict[str, Any], path: Path) -> tuple[int, int]:
    """By how much memory grew, and what of it is the optimizer's state, which is made while loading."""
    engine, optimizer = build(rank, world, layout)
    with PeakMemory() as memory:
        load_models(path, engine.models, optimizer)
    return memory.growth, 2 * sum(local(parameter.data).nbytes for parameter in engine.trained)


@pytest.mark.parametrize(
    "layout", [{}, {"tensor": 2}, {"pipeline": 2}, {"shard": "parameters"}], ids=["dp2", "tp2", "pp2", "shard"]
)
def test_a_process_takes_its_share_and_one_tensor(
    pool_of: Callable[[int], ProcessPool], tmp_path: Path, layout: dict[str, Any]
) -> None:
    pool = pool_of(2)
    pool.run(save, 2, {"tensor": 2, "sequence": True}, tmp_path / "saved")
    found = pool.run(load, 2, layout, tmp_path / "saved")
    assert all(growth <= share + LARGEST + SLACK for growth, share in found), (found, LARGEST)
    assert 2 * LARGEST + SLACK < WHOLE, "the test could not tell"


def open_part(rank: int, layout: dict[str, Any], source: Path) -> tuple[int, int]:
    """By how much memory grew when a part of a model that writes was opened, and the size of its weights."""
    parallel = ParallelConfig(**layout)
    mesh = build_mesh(derive_layout(parallel, 2), rank, "cpu", reversed_stages=True)

    def build(config: ModelConfig) -> Model:
        part = build_part(config, parallel, mesh).model
        assert isinstance(part, Model)
        return part

    with PeakMemory() as memory:
        opened = open_trained(str(source), torch.device("cpu"), build)
    return memory.growth, sum(local(parameter.data).nbytes for parameter in opened.model.parameters())


@pytest.mark.parametrize("source", ["folder", "checkpoint"])
def test_a_process_that_writes_takes_its_share(
    pool_of: Callable[[int], ProcessPool], tmp_path: Path, source: str
) -> None:
    with torch.device("meta"):
        model = build_model(CONFIG)
    save_folder({name: torch.rand(one.shape) for name, one in model.named_parameters()}, CONFIG, tmp_path / "folder")
    if source == "checkpoint":
        convert(str(tmp_path / "folder"), tmp_path / "checkpoint", "paddock", "float32")
    for layout in ({"tensor": 2}, {"pipeline": 2}):
        found = pool_of(2).run(open_part, layout, tmp_path / source)
        assert all(growth <= share + LARGEST + SLACK for growth, share in found), (layout, found, LARGEST)
        assert all(share + LARGEST + SLACK < WHOLE for _, share in found), "the test could not tell"
        assert sum(share for _, share in found) >= WHOLE, "between them they have all of it"


def test_converting_takes_one_tensor(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = build_model(CONFIG)
    state = {name: torch.zeros(tensor.shape) for name, tensor in model.named_parameters()}
    save_folder(state, CONFIG, tmp_path / "theirs")
    del state
    with PeakMemory() as memory:
        convert(str(tmp_path / "theirs"), tmp_path / "ours", "paddock", "float32")
    assert memory.growth < 2 * LARGEST + SLACK
    assert len(saved_tensors(tmp_path / "ours")) == len(list(model.named_parameters()))
    with PeakMemory() as memory:
        convert(str(tmp_path / "ours"), tmp_path / "back", "huggingface", "float32")
    assert memory.growth < 2 * LARGEST + SLACK
    assert read_config(tmp_path / "back") == CONFIG
