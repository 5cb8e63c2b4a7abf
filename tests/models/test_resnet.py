"""ResNet against Hugging Face's, against numbers that are published, and against itself by other ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.errors import ConfigError
from paddock.models.build import optimize_for_inference
from paddock.models.config import SampleShape
from paddock.models.layers.batch_norm import BatchNorm
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model, example_batch
from paddock.models.resnet import huggingface, weights
from paddock.models.resnet.config import ARCHITECTURES, ResNetConfig
from paddock.models.resnet.model import ResNet
from paddock.parallel.pipeline.stage import Stage

SMALL = {"classes": 10, "width": 16}


def build(**fields: Any) -> ResNet:
    """A model whose norms are not all alike, as after some training."""
    model = build_model(ResNetConfig(**{**SMALL, **fields}))
    assert isinstance(model, ResNet)
    initialize(model, 7)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.dim() == 1:
                tensor += torch.rand(tensor.shape, generator=generator) * (0.1 if "mean" in name else 0.5)
    return model.eval()


def images(size: int = 64, count: int = 3) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(size))


# torchvision's documentation: parameters, and GFLOPS (which counts a multiply-add as one) at 224 pixels.
PUBLISHED = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "wide_resnet50_2": (68_883_240, 11.40),
    "wide_resnet101_2": (126_886_696, 22.75),
    "resnext50_32x4d": (25_028_904, 4.23),
    "resnext101_32x8d": (88_791_336, 16.41),
    "resnext101_64x4d": (83_455_272, 15.46),
}


@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_sizes_are_the_published_ones(arch: str) -> None:
    config = ResNetConfig(arch=arch)  # type: ignore[arg-type]
    with torch.device("meta"):
        model = build_model(config)
        output = model(torch.empty(2, 3, 224, 224))
    parameters, gmacs = PUBLISHED[arch]
    assert sum(parameter.numel() for parameter in model.parameters()) == config.num_parameters() == parameters
    assert config.forward_flops(SampleShape(224)) / 2e9 == pytest.approx(gmacs, abs=0.006)
    assert output.shape == (2, 1000)
    assert {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} == dict(weights.shapes(config))


def test_v1_strides_in_the_first_convolution() -> None:
    assert ResNetConfig(stride="v1").forward_flops(SampleShape(224)) / 2e9 == pytest.approx(3.86, abs=0.005)
    first, later = (build(arch="resnet50", stride=stride).get_submodule("layer2.0") for stride in ("v1", "v1.5"))
    assert (first.conv1.stride, first.conv2.stride) == ((2, 2), (1, 1))
    assert (later.conv1.stride, later.conv2.stride) == ((1, 1), (2, 2))


@pytest.mark.parametrize("size", [32, 33, 75, 224])
@pytest.mark.parametrize("fields", [{"arch": "resnet18"}, {"arch": "resnext50_32x4d"}, {"small_images": True}])
def test_operations_are_counted_as_torch_counts_them(size: int, fields: dict[str, Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = ResNetConfig(**{**SMALL, **fields})
    with torch.device("meta"):
        model = build_model(config).eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(2, 3, size, size))
    assert counter.get_total_flops() == 2 * config.forward_flops(SampleShape(size))


@pytest.mark.parametrize(
    "fields", [{"arch": "resnet18"}, {"arch": "resnet50"}, {"arch": "resnet50", "stride": "v1"}, {"arch": "resnet34"}]
)
def test_the_same_outputs_as_hugging_face(fields: dict[str, Any]) -> None:
    from transformers import ResNetConfig as TheirConfig
    from transformers import ResNetForImageClassification

    model = build(**fields)
    settings = huggingface.to_huggingface_config(model.config)
    assert huggingface.from_huggingface_config(settings) == model.config
    names = ("architectures", "model_type", "torch_dtype")
    theirs = ResNetForImageClassification(TheirConfig(**{k: v for k, v in settings.items() if k not in names})).eval()
    state = model.state_dict()
    loaded = theirs.load_state_dict(
        {rule.names[0]: rule.to_theirs(state[rule.ours]) for rule in huggingface.tensors(model.config)}, strict=False
    )
    assert not loaded.unexpected_keys and all(name.endswith("tracked") for name in loaded.missing_keys)
    model.double(), theirs.double()  # so that only a mistake can make a difference
    x, labels = images().double(), torch.tensor([1, 2, 3])
    with torch.no_grad():
        torch.testing.assert_close(model(x), theirs(x).logits, rtol=1e-9, atol=1e-9)
        model.train(), theirs.train()
        torch.testing.assert_close(model(x), theirs(x).logits, rtol=1e-9, atol=1e-9)
        loss = theirs(x, labels=labels).loss
        torch.testing.assert_close(model(x, labels).double() / 3, loss, rtol=1e-6, atol=1e-6)


def test_what_hugging_face_has_no_room_for() -> None:
    for fields in ({"arch": "resnext50_32x4d"}, {"arch": "wide_resnet50_2"}, {"small_images": True}, {"norm": "group"}):
        with pytest.raises(ConfigError, match="transformers has no such ResNet"):
            huggingface.to_huggingface_config(ResNetConfig(**{**SMALL, **fields}))


@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_formats_compute_the_same(channels_last: bool) -> None:
    model, other = build(), build(channels_last=channels_last).to(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(other(images()), model(images()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "fields", [{"arch": "resnet18"}, {"arch": "resnext50_32x4d"}, {"small_images": True, "norm": "synchronised"}]
)
def test_norms_folded_into_convolutions_compute_the_same(fields: dict[str, Any]) -> None:
    model = build(**fields)
    with torch.no_grad():
        expected = [model(images(size, count)) for size, count in ((64, 3), (48, 3), (64, 1))]
        optimize_for_inference([model])
        assert not any(isinstance(module, BatchNorm) for module in model.modules())
        for (size, count), value in zip(((64, 3), (48, 3), (64, 1)), expected, strict=True):
            torch.testing.assert_close(model(images(size, count)), value, rtol=0, atol=1e-5 * float(value.abs().max()))
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(images(64, 3)).float(), expected[0], rtol=0.1, atol=0.1)


def test_a_group_norm_is_not_folded() -> None:
    model = build(norm="group")
    before = model(images(64, 1))
    optimize_for_inference([model])
    assert torch.equal(model(images(64, 1)), before)
    alone, together = model(images(64, 1)), model(images(64, 1).repeat(2, 1, 1, 1))
    torch.testing.assert_close(together[:1], alone)  # and no image sees another
    assert not any(True for _ in model.buffers())


def test_labels_and_smoothing() -> None:
    model = build(label_smoothing=0.2)
    logits = model(images())
    labels = torch.tensor([3, -100, 0])
    kept = labels != -100
    plain = F.cross_entropy(logits[kept], labels[kept], reduction="sum")
    torch.testing.assert_close(model(images(), labels), plain)  # evaluation does not smooth
    shares = torch.tensor([[0.25, 0.75] + [0.0] * 8] * 3)
    by_hand = -(shares * logits.log_softmax(-1)).sum()
    torch.testing.assert_close(model(images(), shares), by_hand)
    model.train()
    logits = model(images())
    spread = 0.8 * shares + 0.2 / 10
    torch.testing.assert_close(model(images(), shares), -(spread * logits.log_softmax(-1)).sum())


def test_initial_weights() -> None:
    model = build_model(ResNetConfig(arch="resnet18", zero_init_residual=True))
    initialize(model, 3)
    state = model.state_dict()
    weight = state["layer3.0.conv2.weight"]
    assert float(weight.std()) == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert bool((state["layer3.0.bn2.weight"] == 0).all() and (state["layer3.0.bn1.weight"] == 1).all())
    assert bool((state["bn1.running_var"] == 1).all() and (state["bn1.running_mean"] == 0).all())
    assert float(state["fc.weight"].std()) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_recomputing_changes_neither_gradients_nor_statistics(mode: Any) -> None:
    models = [build(arch="resnet18", norm="batch").train() for _ in range(2)]
    for model, recompute in zip(models, ("none", mode), strict=True):
        stage = Stage(model, model.units(), None, None, recompute=recompute)
        stage(batch={"images": images(), "labels": torch.tensor([1, 2, 3])}).backward()
    for (name, expected), tensor in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        torch.testing.assert_close(tensor, expected, msg=name)
    for expected, parameter in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)
    plain = nn.BatchNorm2d(16)
    plain(models[0].conv1(images()))  # one batch, from the beginning
    moved = models[0].get_submodule("bn1").running_mean - build(arch="resnet18").bn1.running_mean * 0.9  # type: ignore
    torch.testing.assert_close(moved, plain.running_mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"arch": "resnext50_32x4d", "width": 20}, "multiples of 16"),
        ({"arch": "resnet18", "norm": "group", "width": 72}, "norm groups"),
        ({"arch": "resnet18", "width": 4}, "multiples of 8"),
        ({"arch": "resnet20"}, "resnet18"),
    ],
)
def test_bad_shapes_are_errors(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ResNetConfig(**fields)


def test_example_batches() -> None:
    config = ResNetConfig(**SMALL)
    batch = example_batch(config, 3, SampleShape(40), 5)
    assert batch["images"].shape == (3, 3, 40, 40) and int(batch["labels"].max()) < 10
    assert torch.equal(batch["images"], example_batch(config, 3, SampleShape(40), 5)["images"])
