"""An encoder and a decoder in one pipeline: what the seams promise to families that are not a single stack.

The carry is one tensor in the encoder and two of different shapes in the decoder, one of which only passes through; one
embedding is used by the encoder, the decoder and the head, and every decoder layer adds the same bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models import registry
from paddock.models.build import build_engine, initialize_engine
from paddock.models.config import BEGIN, FINISH, ModelConfig, SampleShape, UnitCost
from paddock.models.family import Family
from paddock.models.layers.basic import Embedding, Linear
from paddock.models.layers.initialization import Initial, initialize
from paddock.models.model import Batch, Carry, Model
from paddock.models.registry import build_model, example_batch
from paddock.parallel.config import Layout, ParallelConfig, ScheduleName
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import build_mesh
from paddock.parallel.pipeline.schedules import ENGINE_NAMES
from paddock.parallel.pipeline.stage import Blueprint
from paddock.testing.layouts import this_world
from paddock.testing.pool import ProcessPool

PoolOf = Callable[[int], ProcessPool]
HIDDEN, VOCAB, MICRO, MICRO_BATCHES = 8, 13, 2, 8
SHAPE = SampleShape(6, 4)


class TwoStacksConfig(ModelConfig):
    family: Literal["two_stacks"] = "two_stacks"

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        encoder = [UnitCost(f"encoder.{index}", HIDDEN**2 + HIDDEN, float(shape.source)) for index in range(4)]
        decoder = [UnitCost(f"decoder.{index}", 2 * HIDDEN**2, 3.0 * shape.target) for index in range(4)]
        return [UnitCost(BEGIN, VOCAB * HIDDEN, 0.0), *encoder, *decoder, UnitCost(FINISH, 0, 1.0)]


class EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.key = Linear(HIDDEN, HIDDEN, bias=False), Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, y: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        seen = torch.softmax(y @ self.key(memory).transpose(1, 2), -1) @ memory
        return y + torch.tanh(self.linear(y) + bias) + seen


class TwoStacks(Model):
    inputs: ClassVar = ("source", "target", "labels")
    config: TwoStacksConfig

    def __init__(self, config: TwoStacksConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(VOCAB, HIDDEN)
        self.bias = nn.ModuleDict({"decoder": Linear(1, HIDDEN, bias=False)})
        self.encoder = nn.ModuleDict({str(index): EncoderLayer() for index in range(4)})
        self.decoder = nn.ModuleDict({str(index): DecoderLayer() for index in range(4)})

    def begin(self, batch: Batch, cache: Any = None) -> Carry:
        return {"x": self.embedding(batch["source"])}

    def units(self) -> list[str]:
        return [f"{stack}.{name}" for stack in ("encoder", "decoder") for name in self.get_submodule(stack)._modules]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: Any = None) -> Carry:
        layer = self.get_submodule(unit)
        if unit.startswith("encoder"):
            return {"x": layer(carry["x"])}
        if unit == "decoder.0":
            carry = {"y": self.embedding(batch["target"]), "memory": carry["x"]}
        bias = self.get_parameter("bias.decoder.weight")[:, 0]
        return {"y": layer(carry["y"], carry["memory"], bias), "memory": carry["memory"]}

    def finish(self, carry: Carry, batch: Batch, cache: Any = None) -> Tensor:
        logits = carry["y"] @ self.embedding.weight.T
        labels = batch.get("labels")
        return logits if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    def initial(self, name: str) -> Initial:
        return Initial(std=0.3)


class TwoStacksFamily(Family):
    name: ClassVar = "two_stacks"

    def config_class(self) -> type[ModelConfig]:
        return TwoStacksConfig

    def build(self, config: Any) -> Model:
        return TwoStacks(config)

    def example(
        self, config: Any, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        sizes = {"source": shape.source, "target": shape.target, "labels": shape.target}
        return {name: torch.randint(VOCAB, (samples, size), generator=generator) for name, size in sizes.items()}


# Not by `register_family`, which would let every process that a later test starts import this file.
registry._registered["two_stacks"] = TwoStacksFamily()


def batches() -> list[dict[str, Tensor]]:
    return [example_batch(TwoStacksConfig(), MICRO, SHAPE, seed) for seed in range(MICRO_BATCHES)]


def built(pipeline: int, schedule: ScheduleName, stages: tuple[int, ...] | str = "auto") -> Engine:
    world = this_world()
    parallel = ParallelConfig(pipeline=pipeline, schedule=schedule, stages=stages)  # type: ignore[arg-type]
    engine = build_engine(
        TwoStacksConfig(),
        parallel,
        build_mesh(Layout(world.size // pipeline, 1, pipeline), world.rank, "cpu"),
        torch.device("cpu"),
        micro=MICRO,
        shape=SHAPE,
        micro_batches=MICRO_BATCHES,
    )
    initialize_engine(engine, seed=3)
    engine.train()
    return engine


def gradients(rank: int, schedule: ScheduleName, stages: tuple[int, ...] | str) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    try:
        engine = built(2, schedule, stages)
        for _ in range(2):
            for parameter in engine.trained:
                parameter.grad = None
            loss = engine.forward_backward(batches(), 0.5)
        outputs = engine.outputs(batches()[:1])
        return {
            "loss": float(loss),
            "outputs": [float(output) for output in outputs],
            "gradients": [
                {name: parameter.grad for name, parameter in model.named_parameters()} for model in engine.models
            ],
            "squares": float(engine.squared_norm()),
        }
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Loss, gradients and outputs of the whole model on one device, by its own forward alone."""
    torch.set_default_dtype(torch.float64)
    try:
        model = build_model(TwoStacksConfig())
        initialize(model, seed=3)
        losses = [model(**batch) for batch in batches()]
        (0.5 * torch.stack(losses).sum()).backward()
        return {
            "losses": [loss.item() for loss in losses],
            "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        }
    finally:
        torch.set_default_dtype(torch.float32)


UNEVEN = {2: (0, 0, 0, 0, 0, 1, 1, 1), 4: (0, 0, 0, 1, 1, 2, 3, 3)}


@pytest.mark.parametrize("schedule", list(ENGINE_NAMES))
@pytest.mark.parametrize("cut", ["auto", "uneven"])
def test_every_schedule_gives_the_gradients_of_one_device(
    pool_of: PoolOf, alone: dict[str, Any], schedule: ScheduleName, cut: str
) -> None:
    count = 2 if schedule in ("gpipe", "1f1b") else 4
    ranks = pool_of(2).run(gradients, schedule, "auto" if cut == "auto" else UNEVEN[count])
    assert sum(rank["loss"] for rank in ranks) == pytest.approx(sum(alone["losses"]), rel=1e-12)
    assert [value for rank in ranks for value in rank["outputs"]] == [pytest.approx(alone["losses"][0], rel=1e-12)]
    held = [part for rank in ranks for part in rank["gradients"]]
    for name, wanted in alone["gradients"].items():
        copies = [part[name] for part in held if name in part]
        assert copies, f"no stage holds {name}"
        for copy in copies:
            torch.testing.assert_close(copy, wanted, rtol=1e-10, atol=1e-12)
    squares = sum(float(gradient.square().sum()) for gradient in alone["gradients"].values())
    assert sum(rank["squares"] for rank in ranks) == pytest.approx(squares, rel=1e-10)
    holders = [part for part in held if "embedding.weight" in part]
    assert len(holders) >= 2, "nothing was shared: the test says nothing"
    if cut == "uneven" and count == 4:
        assert len(holders) == 3  # encoder, beginning of the decoder, head
        assert len([part for part in held if "bias.decoder.weight" in part]) == 3


def test_a_stage_holds_what_it_uses_and_nothing_else(pool_of: PoolOf) -> None:
    ranks = pool_of(2).run(gradients, "1f1b", UNEVEN[2])
    names = [set(part) for rank in ranks for part in rank["gradients"]]
    assert names[0] == {
        "embedding.weight",
        "bias.decoder.weight",
        "decoder.0.linear.weight",
        "decoder.0.key.weight",
        *(f"encoder.{index}.linear.{part}" for index in range(4) for part in ("weight", "bias")),
    }
    assert names[1] == {
        "embedding.weight",
        "bias.decoder.weight",
        *(f"decoder.{index}.{part}.weight" for index in (1, 2, 3) for part in ("linear", "key")),
    }


def test_boundaries_are_found_on_the_meta_device() -> None:
    with torch.device("meta"):
        blueprint = Blueprint(build_model(TwoStacksConfig()))
    carries = blueprint.carries(example_batch(TwoStacksConfig(), 3, SampleShape(5, 7), seed=0))
    shapes = {unit: {name: spec.shape for name, spec in carry.items()} for unit, carry in carries.items()}
    assert shapes[BEGIN] == shapes["encoder.3"] == {"x": (3, 5, HIDDEN)}
    assert shapes["decoder.0"] == shapes["decoder.3"] == {"y": (3, 7, HIDDEN), "memory": (3, 5, HIDDEN)}
