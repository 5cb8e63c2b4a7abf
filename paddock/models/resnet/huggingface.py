"""ResNet as Hugging Face has it: config fields and names, both ways. It knows no groups, and only the large stem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import ConfigError
from paddock.models.resnet.config import ARCHITECTURES, EXPANSION, ResNetConfig
from paddock.models.resnet.weights import HEAD, layers, rule, shapes
from paddock.models.weight_names import TensorRule, numbered_labels, refuse

TIED_NAMES: Mapping[str, str] = {}
HEADS: Sequence[str] = ("classifier.",)

_PREFIX = "resnet."
_CLASSIFIER = "classifier.1"
_STAGES = 4


def to_huggingface_config(
    config: ResNetConfig,
    *,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
) -> dict[str, Any]:
    """The contents of a `config.json` that `ResNetForImageClassification.from_pretrained` reads."""
    depths = config.depths
    plain = depths.groups == 1 and depths.group_width == 64
    if not plain or config.small_images or config.norm == "group":
        raise ConfigError(
            f"transformers has no such ResNet: {config.arch}, small_images {config.small_images}, norm {config.norm}",
            why="it has neither groups nor other widths, stems and norms",
            fix="write a file with the public names: a destination that ends in .safetensors",
        )
    widen = EXPANSION if depths.bottleneck else 1
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "num_channels": 3,
        "embedding_size": config.width,
        "hidden_sizes": [(config.width << stage) * widen for stage in range(_STAGES)],
        "depths": list(depths.blocks),
        "layer_type": "bottleneck" if depths.bottleneck else "basic",
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": config.stride == "v1",
        "torch_dtype": dtype,
        **numbered_labels(config.classes),
    }


def from_huggingface_config(values: Mapping[str, Any]) -> ResNetConfig:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model."""
    fixed = {"model_type": "resnet", "num_channels": 3, "hidden_act": "relu", "downsample_in_first_stage": False}
    for field, accepted in fixed.items():
        if values.get(field, accepted) != accepted:
            raise refuse(field, values[field], f"our ResNet has {accepted}")
    bottleneck = values.get("layer_type", "bottleneck") == "bottleneck"
    blocks = tuple(values.get("depths", (3, 4, 6, 3)))
    width = values.get("embedding_size", 64)
    sizes = [(width << stage) * (EXPANSION if bottleneck else 1) for stage in range(_STAGES)]
    if list(values.get("hidden_sizes", (256, 512, 1024, 2048))) != sizes:
        raise refuse("hidden_sizes", values.get("hidden_sizes"), f"with this embedding_size ours are {sizes}")
    for name, depths in ARCHITECTURES.items():
        if depths.blocks == blocks and depths.bottleneck == bottleneck and depths.groups == 1:
            return ResNetConfig(
                arch=name,
                width=width,
                classes=len(values["id2label"]) if values.get("id2label") else values.get("num_labels", 2),
                stride="v1" if values.get("downsample_in_bottleneck", False) else "v1.5",
            )
    raise refuse("depths", list(blocks), "no ResNet with a name has these")


def canonical_name(name: str) -> str | None:
    """Files of the bare model lack the prefix; a norm's counter of batches is not a weight."""
    if name.endswith(".num_batches_tracked"):
        return None
    return name if name.startswith((_PREFIX, *HEADS)) else _PREFIX + name


def tensors(config: ResNetConfig) -> list[TensorRule]:
    """Every tensor of the model, in the order of its forward pass."""
    owners = {HEAD: _CLASSIFIER}
    for place, _, conv, norm in layers(config):
        owners[conv], owners[norm] = f"{_layer(place)}.convolution", f"{_layer(place)}.normalization"
    rules = []
    for name, shape in shapes(config):
        owner, _, part = name.rpartition(".")
        rules.append(rule(name, f"{owners[owner]}.{part}", shape))
    return rules


def _layer(place: tuple[int, int, int] | None) -> str:
    if place is None:
        return "resnet.embedder.embedder"
    stage, block, index = place
    return f"resnet.encoder.stages.{stage}.layers.{block}." + ("shortcut" if index == -1 else f"layer.{index}")
