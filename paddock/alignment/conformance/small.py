"""Models of every family that compute in a moment, and training them anywhere, from weights and samples that are the
same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paddock.alignment.trace import computing_in, in_default_type
from paddock.devices import adapter_named
from paddock.models.build import build_engine, initialize_engine
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.registry import build_model, config_class, example_batch
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import build_mesh
from paddock.parallel.placement import DeviceCopies
from paddock.parallel.world import World
from paddock.training.config import OptimizerConfig, PrecisionConfig
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.precision import LossScale, autocast_for
from paddock.training.step import StepResult, TrainingStep

SEED = 7
MICRO = 2
MICRO_BATCHES = 4
RATE = 2e-3
STEPS = 3
"""Of training, where two are compared."""

TRANSFORMER: dict[str, Any] = {"layers": 2, "hidden": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0}
STACK: dict[str, Any] = TRANSFORMER | {"vocab": 101, "context": 16, "init_std": 0.08}
T5: dict[str, Any] = TRANSFORMER | {"vocab": 101, "head_size": 8, "position_buckets": 8, "max_distance": 12}
RESNET: dict[str, Any] = {"arch": "resnet18", "width": 8, "classes": 5}
SIZES: dict[str, list[tuple[str, dict[str, Any], SampleShape]]] = {
    "gpt2": [("gpt2", STACK, SampleShape(16))],
    "bert": [
        ("bert", STACK, SampleShape(16)),
        ("bert, answers", STACK | {"head": "question_answering"}, SampleShape(16)),
        ("bert, classes", STACK | {"head": "sequence_classification"}, SampleShape(16)),
    ],
    "t5": [
        ("t5", T5 | {"activation": "relu", "gated": False, "tied": True, "scale_head": True}, SampleShape(12, 8)),
        ("mt5", T5, SampleShape(12, 8)),
    ],
    "resnet": [
        ("resnet", RESNET, SampleShape(64)),
        ("resnet, group norm", RESNET | {"norm": "group", "small_images": True}, SampleShape(16)),
    ],
}
FAMILIES = tuple(SIZES)


@dataclass(frozen=True)
class SmallModel:
    """A model of a family, and what its samples are like."""

    name: str
    config: ModelConfig
    shape: SampleShape

    @property
    def writes(self) -> bool:
        """Whether it goes on by itself, token after token."""
        with torch.device("meta"):
            return build_model(self.config).writes is not None

    def batch(self, number: int) -> dict[str, Tensor]:
        """Micro-batch `number`, with padding and several documents where the model minds them."""
        with computing_in("float32"):  # in another type, other numbers would be drawn
            found = example_batch(self.config, MICRO, self.shape, seed=SEED + number)
        takes = _inputs(self.config)
        length = self.shape.source
        if "lengths" in takes:
            found["lengths"] = torch.tensor([length, length // 2])
            if self.config.task() == "question_answering":
                found["labels"] = found["labels"].clamp(max=length // 2 - 1)
        if "segments" in takes:
            found["segments"] = (torch.arange(length) >= length // 2).long().repeat(MICRO, 1)
        return found


def small_models(families: Sequence[str] = FAMILIES) -> list[SmallModel]:
    return [
        SmallModel(name, config_class(family).model_validate({"family": family, **values}), shape)
        for family in families
        for name, values, shape in SIZES[family]
    ]


def host() -> World:
    """This process with the host as its device: the reference."""
    return World(0, 1, adapter_named("cpu"), torch.device("cpu"))


def _inputs(config: ModelConfig) -> Sequence[str]:
    with torch.device("meta"):
        return build_model(config).inputs


@dataclass
class SmallRun:
    """A small model being trained."""

    engine: Engine
    optimizer: Optimizer
    scale: LossScale
    step: TrainingStep
    batches: list[dict[str, Tensor]]
    number: int = 0

    def train(self, steps: int) -> list[StepResult]:
        """So many steps more, all on the same samples."""
        found = [self.step.run(self.number + done, self.batches, terms=100.0) for done in range(steps)]
        self.number += steps
        return found


def open_small(
    small: SmallModel,
    world: World,
    *,
    parallel: ParallelConfig | None = None,
    optimizer: Any = "adamw",
    compute: Any = "float32",
    scale: float = 2.0**16,
    seed: int = SEED,
    compile_units: Callable[[Sequence[nn.Module]], None] | None = None,
) -> SmallRun:
    """A small model on this process's part of the world. Every layout has the same samples, as micro-batches."""
    parallel = parallel or ParallelConfig()
    precision = PrecisionConfig(compute=compute, initial_scale=scale)
    mesh = build_mesh(derive_layout(parallel, world.size), world.rank, world.device.type)
    count = MICRO_BATCHES // mesh.layout.data
    engine = build_engine(
        small.config,
        parallel,
        mesh,
        world.device,
        micro=MICRO,
        shape=small.shape,
        micro_batches=count,
        compute=getattr(torch, compute),
        autocast=autocast_for(precision, world.adapter),
        compile_units=compile_units,
    )
    initialize_engine(engine, seed)
    engine.train()
    updates = build_optimizer(engine.trained, OptimizerConfig(name=optimizer, lr=RATE))
    losses = LossScale(precision, world.adapter)
    step = TrainingStep(engine, updates, losses, world, learning_rate=lambda _: RATE, clip=1.0, seed=SEED)
    mine = [small.batch(mesh.data_rank * count + number) for number in range(count)]
    copies = DeviceCopies(world.adapter, world.device)
    batches = [dict(in_default_type(copies.start(batch)())) for batch in mine]
    return SmallRun(engine, updates, losses, step, batches)
