"""The costs that a family states, held against its model on the meta device: unit by unit, nothing stated twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paddock.models.bert.config import BertConfig
from paddock.models.config import BEGIN, FINISH, ModelConfig, SampleShape, UnitCost
from paddock.models.gpt2.config import GPT2Config
from paddock.models.model import Model
from paddock.models.registry import build_model, example_batch
from paddock.models.resnet.config import ResNetConfig
from paddock.models.t5.config import T5Config
from paddock.parallel.pipeline.stage import Blueprint

SIZES: dict[str, Any] = {"layers": 3, "hidden": 64, "heads": 4, "vocab": 211, "context": 40, "dropout": 0.0}
TWO_STACKS: dict[str, Any] = {
    "layers": 3,
    "hidden": 64,
    "heads": 4,
    "head_size": 24,
    "feed_forward": 80,
    "vocab": 211,
    "dropout": 0.0,
}
CASES: dict[str, tuple[ModelConfig, SampleShape]] = {
    "gpt2": (GPT2Config(**SIZES), SampleShape(40)),
    "gpt2, narrow": (GPT2Config(**{**SIZES, "feed_forward": 80}), SampleShape(24)),
    "bert, masked": (BertConfig(**SIZES), SampleShape(40)),
    "bert, questions": (BertConfig(**SIZES, head="question_answering"), SampleShape(32)),
    "bert, classes": (BertConfig(**SIZES, head="sequence_classification", classes=5), SampleShape(32)),
    "t5": (T5Config(**TWO_STACKS), SampleShape(40, 24)),
    "t5 v1.0": (
        T5Config(**TWO_STACKS, activation="relu", gated=False, tied=True, scale_head=True, decoder_layers=2),
        SampleShape(24, 40),
    ),
    "resnet": (ResNetConfig(arch="resnet50", width=16, classes=7), SampleShape(65)),
    "resnet, small": (ResNetConfig(arch="resnet18", width=16, classes=7, small_images=True), SampleShape(32)),
    "resnet, groups": (ResNetConfig(arch="resnext50_32x4d", width=64, classes=7), SampleShape(64)),
}
MICRO = 2
each = pytest.mark.parametrize(("config", "shape"), CASES.values(), ids=list(CASES))


def on_meta(config: ModelConfig) -> Model:
    with torch.device("meta"):
        return build_model(config)


def meta_batch(config: ModelConfig, shape: SampleShape) -> dict[str, Tensor]:
    return {name: tensor.to("meta") for name, tensor in example_batch(config, MICRO, shape, seed=0).items()}


def parts(model: Model, batch: dict[str, Tensor], watch: Any) -> dict[str, Any]:
    """What `watch(run)` says of the beginning, each unit and the end, each run by itself."""
    found = {}
    carry: dict[str, Tensor] = {}

    def begin() -> dict[str, Tensor]:
        return model.begin(batch)

    found[BEGIN], carry = watch(begin)
    for unit in model.units():
        found[unit], carry = watch(lambda unit=unit, carry=carry: model.run(unit, carry, batch))
    found[FINISH], _ = watch(lambda: model.finish(carry, batch))
    return found


def stated(config: ModelConfig, shape: SampleShape) -> dict[str, UnitCost]:
    return {cost.name: cost for cost in config.units(shape)}


@each
def test_names_are_those_of_the_model(config: ModelConfig, shape: SampleShape) -> None:
    assert list(stated(config, shape)) == [BEGIN, *on_meta(config).units(), FINISH]


@each
def test_parameters(config: ModelConfig, shape: SampleShape) -> None:
    model = on_meta(config)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    used = Blueprint(model).parameters(example_batch(config, MICRO, shape, seed=0))
    known: set[str] = set()
    for name, cost in stated(config, shape).items():
        assert cost.parameters == sum(sizes[one] for one in used[name] - known), name
        assert cost.shared == {one: sizes[one] for one in used[name] & known}, name
        known |= used[name]
    assert known == set(sizes), "a parameter that nothing uses"
    assert config.num_parameters() == sum(sizes.values())


@each
def test_flops(config: ModelConfig, shape: SampleShape) -> None:
    """Against torch's own count, which knows no fused attention."""

    def watch(run: Any) -> tuple[float, Any]:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            carry = run()
        return counter.get_total_flops() / MICRO, carry

    found = parts(on_meta(config).eval(), meta_batch(config, shape), watch)
    for name, cost in stated(config, shape).items():
        assert cost.flops == pytest.approx(found[name], rel=1e-6), name


@each
def test_outputs(config: ModelConfig, shape: SampleShape) -> None:
    carries = Blueprint(on_meta(config)).carries(meta_batch(config, shape))
    for name, cost in stated(config, shape).items():
        if name != FINISH:
            assert cost.output * MICRO == sum(torch.Size(spec.shape).numel() for spec in carries[name].values()), name


@each
def test_what_is_kept_for_the_backward_pass(config: ModelConfig, shape: SampleShape) -> None:
    """In numbers, of activations alone: what autograd saves besides parameters, each storage once."""
    model = on_meta(config).train()
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    weights |= {buffer.untyped_storage()._cdata for buffer in model.buffers()}

    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in weights and tensor.is_floating_point():
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    def watch(run: Any) -> tuple[int, Any]:
        before = set(kept)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            carry = run()
        new = [tensor for key, tensor in kept.items() if key not in before]
        return sum(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in new) // MICRO, carry

    found = parts(model, meta_batch(config, shape), watch)
    units = [name for name in found if name not in (BEGIN, FINISH)]
    costs = stated(config, shape)
    assert sum(costs[name].saved for name in units) == pytest.approx(sum(found[name] for name in units), rel=0.15)
