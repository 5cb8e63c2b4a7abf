"""Checkpoints have no layout: whatever saved one, everything loads it, to the last bit."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.optim import Optimizer

from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint, read_tensors, saved_tensors, write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.errors import DataError
from paddock.models.build import build_engine, initialize_engine
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.gpt2.config import GPT2Config
from paddock.models.registry import example_batch, parameter_names
from paddock.models.t5.config import T5Config
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import build_mesh
from paddock.testing.pool import ProcessPool, WorkFailed
from paddock.training.optimization.ema import ExponentialMovingAverage

CONFIG = GPT2Config(layers=4, hidden=32, heads=4, vocab=101, context=16, dropout=0.0)
"""The vocabulary lies unevenly over any number of processes."""
STACKS = T5Config(
    **{"layers": 2, "decoder_layers": 2, "hidden": 32, "heads": 4, "head_size": 8, "feed_forward": 64},
    **{"vocab": 101, "dropout": 0.0, "position_buckets": 8, "max_distance": 12},
)
"""Two stacks, of as many layers together."""
MODELS: dict[str, tuple[ModelConfig, SampleShape]] = {
    "gpt2": (CONFIG, SampleShape(16)),
    "t5": (STACKS, SampleShape(16, 12)),
}
GLOBAL = 16

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"tensor": 4, "sequence": True},
    {"tensor": 2, "shard": "parameters"},
    {"pipeline": 4},
    {"pipeline": 2, "shard": "optimizer", "stages": (0, 0, 0, 1)},
    {"pipeline": 2, "schedule": "zbv", "tensor": 2},
]
"""For four processes; what is left over is data parallelism."""
MORE_LAYOUTS: list[dict[str, Any]] = [
    {"shard": "optimizer"},
    {"shard": "parameters"},
    {"tensor": 2},
    {"tensor": 2, "shard": "optimizer", "sequence": True, "recompute": "full"},
    {"pipeline": 2, "shard": "parameters", "stages": (0, 1, 1, 1)},
    {"pipeline": 2, "schedule": "interleaved"},
    {"pipeline": 2, "tensor": 2, "sequence": True, "stages": (0, 1, 1, 1)},
    {"pipeline": 2, "schedule": "dualpipev", "shard": "optimizer"},
]

Saved = tuple[Path, dict[str, str], float]
"""A checkpoint, a digest of every tensor in it, and the loss of the next step."""


def build(
    rank: int, world: int, layout: dict[str, Any], seed: int, family: str = "gpt2"
) -> tuple[Engine, Optimizer, ExponentialMovingAverage]:
    parallel = ParallelConfig(**layout)
    split = derive_layout(parallel, world)
    accumulation = 8 // split.data if split.pipeline == 1 else 4
    config, shape = MODELS[family]
    engine = build_engine(
        config,
        parallel,
        build_mesh(split, rank, "cpu"),
        torch.device("cpu"),
        micro=GLOBAL // split.data // accumulation,
        shape=shape,
        micro_batches=accumulation,
    )
    initialize_engine(engine, seed)
    ema = ExponentialMovingAverage(engine.models, 0.5, engine.stages.values())
    return engine, torch.optim.AdamW(engine.trained, lr=1e-2, foreach=False), ema


def step(engine: Engine, optimizer: Optimizer, number: int, before_update: Callable[[], None] = lambda: None) -> float:
    """One step on the samples of that step; returns the mean loss over all processes."""
    config = engine.models[0].config
    whole_batch = example_batch(config, GLOBAL, MODELS[config.family][1], seed=number)
    mesh = engine.mesh
    pieces = 4 if mesh.layout.pipeline > 1 else 8 // mesh.layout.data
    parts = {name: values.chunk(mesh.layout.data)[mesh.data_rank].chunk(pieces) for name, values in whole_batch.items()}
    batches = [{name: part[number] for name, part in parts.items()} for number in range(pieces)]
    engine.train()
    count = whole_batch["labels"].numel()
    loss = engine.forward_backward(batches, 1 / count).double()
    if mesh.grid is not None:
        torch.distributed.all_reduce(loss)
    before_update()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss) / count


def contents(engine: Engine, optimizer: Optimizer, ema: ExponentialMovingAverage) -> dict[str, str]:
    """A digest of every tensor that is here, whole, and of each copy of what is here twice."""
    found: dict[str, str] = {}
    named = [pair for model in engine.models for pair in tensors_of([model], optimizer).items()]
    for name, tensor in [*named, *ema.named_tensors()]:
        digest = hashlib.sha256(whole(tensor).contiguous().numpy().tobytes()).hexdigest()
        assert found.setdefault(name, digest) == digest, f"two copies of {name} differ"
    return found


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train_and_save(
    rank: int, world: int, layout: dict[str, Any], path: Path, family: str = "gpt2"
) -> tuple[dict[str, str], float]:
    """A step, a checkpoint, and the loss of the next step."""
    engine, optimizer, ema = build(rank, world, layout, 1, family)
    step(engine, optimizer, 0)
    ema.update(1)
    write_checkpoint(path, tensors_of(engine.models, optimizer) | dict(ema.named_tensors()), {"step": 1})
    return contents(engine, optimizer, ema), step(engine, optimizer, 1)


def load_and_train(
    rank: int, world: int, layout: dict[str, Any], path: Path, family: str = "gpt2"
) -> tuple[dict[str, str], float]:
    engine, optimizer, ema = build(rank, world, layout, 2, family)
    assert load_models(path, engine.models, optimizer, ema.named_tensors())
    return contents(engine, optimizer, ema), step(engine, optimizer, 1)


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
def saved(pool: ProcessPool, tmp_path_factory: pytest.TempPathFactory) -> list[Saved]:
    """A checkpoint of every layout."""
    return [save_layout(pool, layout, tmp_path_factory.mktemp("saved") / "checkpoint") for layout in LAYOUTS]


def save_layout(pool: ProcessPool, layout: dict[str, Any], path: Path, family: str = "gpt2") -> Saved:
    return path, *merged(pool.run(train_and_save, 4, layout, path, family))


def check_pair(pool: ProcessPool, source: Saved, layout: dict[str, Any], family: str = "gpt2") -> None:
    path, digests, loss = source
    found, next_loss = merged(pool.run(load_and_train, pool.size, layout, path, family))
    assert found.keys() == digests.keys() and len(found) == 5 * len(parameter_names(MODELS[family][0]))
    assert {name for name in found if found[name] != digests[name]} == set()
    assert next_loss == pytest.approx(loss, rel=1e-5)


def test_every_layout_loads_what_another_saved(pool: ProcessPool, saved: list[Saved]) -> None:
    order = list(range(len(LAYOUTS)))
    random.Random(4).shuffle(order)
    for source, target in zip(order, order[1:] + order[:1], strict=True):
        check_pair(pool, saved[source], LAYOUTS[target])


def test_two_stacks_are_loaded_in_every_layout(pool: ProcessPool, tmp_path: Path) -> None:
    layouts = [LAYOUTS[2], LAYOUTS[5], MORE_LAYOUTS[4]]
    for number, (source, target) in enumerate(zip(layouts, layouts[1:] + layouts[:1], strict=True)):
        check_pair(pool, save_layout(pool, source, tmp_path / str(number), "t5"), target, "t5")


@pytest.mark.slow
def test_many_pairs_of_layouts(pool: ProcessPool, tmp_path: Path) -> None:
    chance = random.Random(7)
    for number, source in enumerate(LAYOUTS + MORE_LAYOUTS):
        made = save_layout(pool, source, tmp_path / str(number))
        for target in chance.sample(LAYOUTS + MORE_LAYOUTS, 5):
            check_pair(pool, made, target)


def test_fewer_and_fewer_processes(saved: list[Saved], tmp_path: Path) -> None:
    """Four save, two load and save, one loads."""
    (four, digests, loss), layout = saved[2], {"tensor": 2}
    with ProcessPool(2) as two:
        results = two.run(load_and_save, layout, four, tmp_path / "two")
    assert merged([(found, loss) for found in results])[0] == digests
    found, next_loss = load_and_train(0, 1, {}, tmp_path / "two")
    assert found == digests
    assert next_loss == pytest.approx(loss, rel=1e-5)


def load_and_save(rank: int, layout: dict[str, Any], source: Path, path: Path) -> dict[str, str]:
    engine, optimizer, ema = build(rank, 2, layout, seed=2)
    load_models(source, engine.models, optimizer, ema.named_tensors())
    write_checkpoint(path, tensors_of(engine.models, optimizer) | dict(ema.named_tensors()), {})
    return contents(engine, optimizer, ema)


def test_every_part_is_written_once_and_by_all(saved: list[Saved]) -> None:
    """Replicas share the writing: four files, whose sizes add up to one model and its optimizer."""
    for (path, _, _), layout in zip(saved, LAYOUTS, strict=True):
        sizes = [file.stat().st_size for file in sorted(path.glob("*.safetensors"))]
        values = sum(shape.numel() * dtype.itemsize for shape, dtype in saved_tensors(path).values())
        headers = sum(int.from_bytes(file.read_bytes()[:8], "little") + 8 for file in path.glob("*.safetensors"))
        assert len(sizes) == 4 and sum(sizes) == values + headers
        if layout.get("pipeline", 1) == 1:  # stages are as uneven as the layers are
            assert max(sizes) < 1.35 * min(sizes), layout


def test_tensors_smaller_than_the_number_of_processes(pool: ProcessPool, tmp_path: Path) -> None:
    for cut, again in ((0, 1), (1, 0)):
        assert pool.run(cut_and_cut_again, tmp_path / str(cut), cut, again) == [True] * 4


def cut_and_cut_again(rank: int, path: Path, cut: int, again: int) -> bool:
    """Some processes hold nothing of it, before or after."""
    mesh = init_device_mesh("cpu", (4,))
    values = torch.arange(15.0).view(3, 5)
    write_checkpoint(path, {"model.weight": distribute_tensor(values, mesh, [Shard(cut)])}, {})
    loaded = distribute_tensor(torch.zeros(3, 5), mesh, [Shard(again)])
    read_tensors(path, {"model.weight": loaded})
    return torch.equal(loaded.full_tensor(), values)


def test_training_goes_on_while_all_processes_write(pool: ProcessPool, tmp_path: Path) -> None:
    layout = {"tensor": 2, "shard": "parameters"}
    digests, _ = merged(pool.run(save_in_background, layout, tmp_path))
    for number in (1, 2):
        path = tmp_path / "checkpoints" / f"step-{number:08d}"
        found, _ = merged(pool.run(load_and_train, 4, {"pipeline": 2}, path))
        assert found == digests if number == 1 else found != digests
    assert (tmp_path / "checkpoints" / "latest").resolve().name == "step-00000002"


def save_in_background(rank: int, layout: dict[str, Any], run_dir: Path) -> tuple[dict[str, str], float]:
    """Steps and checkpoints by turns; returns what the first checkpoint must hold."""
    engine, optimizer, ema = build(rank, 4, layout, seed=1)
    loss = step(engine, optimizer, 0)
    ema.update(1)
    first = contents(engine, optimizer, ema)
    with CheckpointDirectory(run_dir, keep=None, is_main=rank == 0, asynchronous=True) as checkpoints:
        for number in (1, 2):
            tensors = tensors_of(engine.models, optimizer) | dict(ema.named_tensors())
            checkpoints.save(number, tensors, {}, best=False)
            loss = step(engine, optimizer, number, checkpoints.wait_for_copy)
    return first, loss


def test_one_damaged_file_stops_all_processes(pool: ProcessPool, saved: list[Saved], tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    shutil.copytree(saved[3][0], path)  # four stages: every process reads a file of its own
    file = path / "shard-00002.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(WorkFailed) as caught:
        pool.run(load_and_train, 4, LAYOUTS[3], path)
    assert len(caught.value.errors) == 4
    for error in caught.value.errors.values():
        assert isinstance(error, DataError) and f"{file} is damaged" in str(error)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_kill_while_saving_leaves_the_newest_complete_one(tmp_path: Path, asynchronous: bool) -> None:
    """A process is killed at random moments while two of them do nothing but save."""
    chance = random.Random(int(asynchronous))
    reached = 0
    with ProcessPool(2) as two:
        for _ in range(3):
            moment = chance.uniform(0.05, 0.4)
            with pytest.raises(WorkFailed):
                two.run(save_until_killed, tmp_path, reached, asynchronous, chance.randrange(2), moment)
            newest = find_checkpoint(tmp_path)
            number = describe_checkpoint(newest).step
            assert newest.name == f"step-{number:08d}" and number > reached
            stored = StoredTensors(newest, "model.")
            assert all(torch.equal(stored[name], torch.full((SIZE,), float(number))) for name in ("whole", "cut"))
            reached = number
    CheckpointDirectory(tmp_path, keep=None, is_main=True)
    assert not list((tmp_path / "checkpoints").glob(".*"))


SIZE = 500_001


def save_until_killed(rank: int, run_dir: Path, reached: int, asynchronous: bool, victim: int, moment: float) -> None:
    """Every tensor of checkpoint n is full of n."""
    mesh = init_device_mesh("cpu", (2,))
    checkpoints = CheckpointDirectory(run_dir, keep=2, is_main=rank == 0, asynchronous=asynchronous)
    for number in itertools.count(reached + 1):
        whole = torch.full((SIZE,), float(number))
        tensors = {"model.whole": whole, "model.cut": distribute_tensor(whole, mesh, [Shard(0)])}
        checkpoints.save(number, tensors, {}, best=False)
        if number == reached + 2 and rank == victim:
            threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()
