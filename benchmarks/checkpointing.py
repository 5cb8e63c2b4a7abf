"""Checkpoints of GPT-2 124M with AdamW (1.5 GB), beside torch.save and torch.load of the same tensors.

Both sides bring their bytes to the disk (fsync) before they are done; ours also checks every byte when it reads.
A save in the background is given while a forward and a backward pass run, as in training; its stall is the time in
which training does nothing else. Rounds alternate between the sides, so that a noisy machine disturbs both alike; a
figure is the median of the rounds. Run: python benchmarks/checkpointing.py [--rounds 5] [--scratch FOLDER]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from report import keep
from torch import nn
from torch.optim import Optimizer

from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.models.build import build_engine, initialize_engine
from paddock.models.config import SampleShape
from paddock.models.gpt2.config import GPT2Config
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import build_mesh
from paddock.parallel.placement import local
from paddock.testing.pool import ProcessPool

CONFIG = GPT2Config(layers=12, hidden=768, heads=12)
LENGTH = 512
"""Of the sequence that the passes beside a save in the background are of."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "data 2": {},
    "data 2, sharded": {"shard": "parameters"},
    "tensor 2": {"tensor": 2},
    "pipeline 2": {"pipeline": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=None, help="a folder with room for 8 GB")
    arguments = parser.parse_args()
    measured: dict[str, list[float]] = {}

    def note(results: dict[str, float]) -> None:
        print("  ".join(f"{name} {value:.2f}" for name, value in results.items()), file=sys.stderr, flush=True)
        for name, value in results.items():
            measured.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(dir=arguments.scratch) as name:
        folder = Path(name)
        with ProcessPool(1) as alone:
            for number in range(arguments.rounds):
                (results,) = alone.run(one_process, folder, number, patience=1800)
                note(results)
        with ProcessPool(2) as two:
            for layout in LAYOUTS:
                two.run(save_layout, layout, folder / layout, patience=1800)
            for _ in range(arguments.rounds):
                for source in LAYOUTS:
                    for target in LAYOUTS:
                        both = two.run(load_layout, target, folder / source)
                        note({f"load {target} ← {source}": max(seconds for seconds, _ in both)})
                        note({f"room {target} ← {source}": max(room for _, room in both)})
    report(measured)


def build(rank: int, world: int, layout: dict[str, Any], trained: bool) -> tuple[Engine, Optimizer]:
    parallel = ParallelConfig(**layout)
    mesh = build_mesh(derive_layout(parallel, world), rank, "cpu")
    engine = build_engine(
        CONFIG, parallel, mesh, torch.device("cpu"), micro=1, shape=SampleShape(1024), micro_batches=parallel.pipeline
    )
    initialize_engine(engine, 1)
    optimizer = torch.optim.AdamW(engine.trained)
    if trained:
        for parameter in engine.trained:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    return engine, optimizer


def one_process(rank: int, folder: Path, number: int) -> dict[str, float]:
    """Saving and loading without a layout, and what a save in the background costs the training."""
    torch.set_num_threads(os.cpu_count() or 1)
    engine, optimizer = build(0, 1, {}, trained=True)
    tensors = tensors_of(engine.models, optimizer)
    path, file = folder / "alone", folder / "alone.pt"

    def peer_saves() -> None:
        with open(file, "wb") as stream:
            torch.save(tensors, stream)
            stream.flush()
            os.fsync(stream.fileno())

    def peer_loads() -> None:
        values = torch.load(file, weights_only=True)
        models: list[nn.Module] = engine.models
        with torch.no_grad():
            for name, tensor in tensors_of(models, None).items():
                tensor.copy_(values[name])

    results = {
        "torch.save": timed(peer_saves),
        "save": timed(lambda: write_checkpoint(path, tensors, {})),
        "torch.load": timed(peer_loads),
        "load": timed(lambda: load_models(path, engine.models, optimizer)),
    }
    tokens = torch.randint(CONFIG.vocab, (1, LENGTH + 1))
    batches = [{"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}]
    engine.train()

    def passes() -> None:
        engine.forward_backward(batches, 1 / LENGTH)
        optimizer.zero_grad()

    passes()
    alone = min(timed(passes) for _ in range(5))
    with CheckpointDirectory(folder / f"run{number}", keep=1, is_main=True, asynchronous=True) as checkpoints:
        assert checkpoints._background is not None
        checkpoints.prepare(tensors)
        checkpoints._background.wait()  # training goes on
        for step in range(3):
            begun = time.perf_counter()
            stall = timed(lambda: checkpoints.save(step, tensors, {}, best=False))  # noqa: B023 (called at once)
            beside = timed(passes)
            stall += timed(checkpoints.wait_for_copy)
            checkpoints._background.wait()
            whole = time.perf_counter() - begun
            later = {"stall": stall, "background save": whole, "slower passes": beside - alone}
            results.update({"first stall": stall} if step == 0 else later)
    shutil.rmtree(folder / f"run{number}")
    return results


def save_layout(rank: int, layout: str, path: Path) -> None:
    engine, optimizer = build(rank, 2, LAYOUTS[layout], trained=True)
    write_checkpoint(path, tensors_of(engine.models, optimizer), {})


def load_layout(rank: int, layout: str, path: Path) -> tuple[float, float]:
    """Seconds, and the memory at its height beyond this process's own share, in MiB."""
    engine, optimizer = build(rank, 2, LAYOUTS[layout], trained=False)
    torch.distributed.barrier()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before is not counted as room
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the height begins anew
    seconds = timed(lambda: load_models(path, engine.models, optimizer))
    share = sum(local(value).nbytes for state in optimizer.state.values() for value in state.values())
    return seconds, (memory("VmHWM") - before - share) / 2**20


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def report(measured: dict[str, list[float]]) -> None:
    def typical(name: str) -> float:
        return median(measured[name])

    def ratio(name: str, to: str) -> float:
        """Of what was measured in the same round."""
        return median(one / other for one, other in zip(measured[name], measured[to], strict=True))

    others = {
        f"{target} ← {source}": ratio(f"load {target} ← {source}", f"load {target} ← {target}")
        for target in LAYOUTS
        for source in LAYOUTS
        if source != target
    }
    rows = [(f"{name}, s", typical(name), "") for name in ("torch.save", "save", "torch.load", "load")]
    rows += [
        ("save ÷ torch.save", ratio("save", "torch.save"), "≤ 1.2"),
        ("load ÷ torch.load", ratio("load", "torch.load"), "≤ 1.2"),
        ("stall ÷ save", ratio("stall", "save"), "≤ 0.1"),
        ("first stall ÷ save", ratio("first stall", "save"), "≤ 0.1"),
        ("background save, s", typical("background save"), ""),
        ("how much slower passes beside the copy are, s", typical("slower passes"), ""),
        *((f"load of another layout ÷ the same, {name}", value, "≤ 1.5") for name, value in others.items()),
        (
            "most memory beyond the share, MiB",
            max(max(values) for name, values in measured.items() if name.startswith("room ")),
            "≤ 148, the largest tensor",
        ),
    ]
    keep(__file__, rows)


if __name__ == "__main__":
    main()
