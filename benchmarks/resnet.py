"""ResNet-50 in float32 on a CPU beside transformers' ResNet (or timm's, where it is installed): training with a batch
of 16 and inference with a batch of 32, at 224 pixels.

Each side runs in a process of its own. The peer runs in its default memory format, in channels-last with its weights
converted, and so and compiled; ours runs as `paddock train` and `paddock evaluate` run it. Rounds
alternate between the sides, so that a noisy machine disturbs all alike; the figure is the fastest iteration.
Run: python benchmarks/resnet.py [--rounds 3] [--iterations 4] [--peer transformers|timm] [--threads N]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from report import Row, keep
from torch import Tensor, nn

SIZE, CLASSES = 224, 1000
BATCHES = {"training": 16, "inference": 32}
SIDES = ("paddock", "peer default", "peer channels-last", "peer channels-last compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=4, help="in every round, after one to warm up")
    parser.add_argument("--peer", choices=("transformers", "timm"), default="transformers")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch", type=int, default=None, help="instead of 16 and 32")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for work, usual in BATCHES.items():
        batch = arguments.batch or usual
        seconds = measure(work, batch, arguments)
        named = {side: side.replace("peer", arguments.peer) for side in SIDES}
        rows += [(f"{work} of {batch}, {named[side]}, images/s", batch / value, "") for side, value in seconds.items()]
        for side in SIDES[1:]:
            goal = "≥ 1.15" if side == "peer default" else "≥ 1"
            rows.append((f"{work} of {batch}, ratio to {named[side]}", seconds[side] / seconds["paddock"], goal))
    keep(__file__, rows)


def measure(work: str, batch: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of the fastest iteration, by side."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    for side in SIDES:
        pipes[side], theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, side, work, batch, arguments), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
    fastest: dict[str, float] = {}
    for _ in range(arguments.rounds):
        for side, pipe in pipes.items():
            pipe.send("go")
            value = pipe.recv()
            fastest[side] = min(value, fastest.get(side, value))
            print(f"  {work} {side}: {value:.3f} s", file=sys.stderr, flush=True)
    for pipe in pipes.values():
        pipe.close()
    for process in processes:
        process.join()
    return fastest


def serve(pipe: Connection, side: str, work: str, batch: int, arguments: argparse.Namespace) -> None:
    """A side's process: one round for every word that comes, until none comes."""
    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, SIZE, SIZE, generator=generator)
    labels = torch.randint(CLASSES, (batch,), generator=generator)
    if side == "paddock":
        step = ours(work, images, labels)
    else:
        step = theirs(work, images, labels, arguments.peer, "channels-last" in side, "compiled" in side)
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        step()
        seconds = []
        for _ in range(arguments.iterations):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        pipe.send(min(seconds))


def ours(work: str, images: Tensor, labels: Tensor) -> Callable[[], object]:
    """What a run does: the engine of one process, its training step, and evaluation with folded norms."""
    from paddock.config.load import load_recipe
    from paddock.config.rules import check_layout
    from paddock.devices import select
    from paddock.models.build import optimize_for_inference
    from paddock.parallel.world import World
    from paddock.training.optimizer import build_optimizer
    from paddock.training.precision import LossScale
    from paddock.training.run import engine_for, rate_for
    from paddock.training.step import TrainingStep

    images = images.contiguous(memory_format=torch.channels_last)  # as our data comes
    recipe, adapter = load_recipe("resnet/50"), select("cpu")
    adapter.prepare()
    world = World(0, 1, adapter, torch.device("cpu"))
    engine = engine_for(recipe, check_layout(recipe, 1), world)
    if work == "inference":
        engine.train(False)
        optimize_for_inference(engine.models)
        return lambda: engine.outputs([{"images": images}])
    engine.train()
    step = TrainingStep(
        engine,
        build_optimizer(engine.trained, recipe.optimizer),
        LossScale(recipe.precision, adapter),
        world,
        learning_rate=rate_for(recipe, 1000, 1000),
        clip=recipe.optimizer.clip,
        seed=0,
    )
    return lambda: step.run(0, [{"images": images, "labels": labels}], len(labels))


def theirs(
    work: str, images: Tensor, labels: Tensor, peer: str, channels_last: bool, compiled: bool
) -> Callable[[], object]:
    model = peer_model(peer)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = images.contiguous(memory_format=torch.channels_last)

    if compiled:
        model.compile()

    def logits() -> Tensor:
        found: Any = model(images)
        return found.logits if peer == "transformers" else found

    if work == "inference":
        model.eval()

        def infer() -> None:
            with torch.inference_mode():
                logits()

        return infer
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    model.train()

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(logits(), labels).backward()
        optimizer.step()

    return train


def peer_model(peer: str) -> nn.Module:
    if peer == "timm":
        import timm

        model: nn.Module = timm.create_model("resnet50")
        return model
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=CLASSES))


if __name__ == "__main__":
    main()
