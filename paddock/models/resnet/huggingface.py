"""ResNet as Hugging Face has it: config fields and names, both ways. It knows no groups, and only the large stem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from paddock.documents import Document
from paddock.errors import ConfigError
from paddock.models.huggingface_settings import (
    COMMON_FIXED,
    COMMON_WITHOUT_EFFECT,
    ONE_CLASS_EACH,
    Fixed,
    Settings,
    count_labels,
    numbered_labels,
    own_config,
    read_fields,
    refuse,
)
from paddock.models.resnet.config import ARCHITECTURES, EXPANSION, ResNetConfig
from paddock.models.resnet.weights import HEAD, layers, rule, shapes
from paddock.models.weight_names import Shapes, TensorRule

TIED_NAMES: Mapping[str, str] = {}
HEADS: Sequence[str] = ("classifier.",)

_PREFIX = "resnet."
_CLASSIFIER = "classifier.1"
_STAGES = 4


class ResNetFields(Document):
    """What a `config.json` says of the model."""

    embedding_size: int = Field(64, gt=0, le=1_000_000)
    hidden_sizes: list[int] = Field([256, 512, 1024, 2048], max_length=100)
    depths: list[int] = Field([3, 4, 6, 3], max_length=100)
    layer_type: Literal["bottleneck", "basic"] = "bottleneck"
    downsample_in_bottleneck: bool = False
    id2label: dict[str | int, str | int] | None = None
    num_labels: int | None = Field(None, ge=0)


SETTINGS = Settings(
    model_type="resnet",
    name="ResNet",
    represented=ResNetFields,
    fixed={
        **COMMON_FIXED,
        "num_channels": Fixed((3,), "our ResNet takes three colours"),
        "hidden_act": Fixed(("relu",), "our ResNet has relu"),
        "downsample_in_first_stage": Fixed((False,), "our first stage keeps the size"),
        "problem_type": Fixed(ONE_CLASS_EACH, "our classifier gives one class to each image"),
    },
    without_effect={
        **COMMON_WITHOUT_EFFECT,
        **dict.fromkeys(("out_features", "out_indices", "stage_names"), "what is returned beside the result"),
        **dict.fromkeys(("is_decoder", "add_cross_attention", "tie_word_embeddings"), "of language models alone"),
    },
)


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


def from_huggingface_config(values: Mapping[str, Any], shapes: Shapes = dict) -> ResNetConfig:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model."""
    SETTINGS.check(values)
    found = read_fields(values, ResNetFields)
    bottleneck = found.layer_type == "bottleneck"
    sizes = [(found.embedding_size << stage) * (EXPANSION if bottleneck else 1) for stage in range(_STAGES)]
    if found.hidden_sizes != sizes:
        raise refuse("hidden_sizes", found.hidden_sizes, f"with this embedding_size ours are {sizes}")
    names = [
        name
        for name, depths in ARCHITECTURES.items()
        if list(depths.blocks) == found.depths and depths.bottleneck == bottleneck and depths.groups == 1
    ]
    if not names:
        raise refuse("depths", found.depths, "no ResNet with a name has these")
    classes = count_labels(found.id2label, found.num_labels)
    if classes == 1:
        raise refuse("num_labels", classes, "one label is a number to be predicted, not a class")
    stride = "v1" if found.downsample_in_bottleneck else "v1.5"
    return own_config(ResNetConfig, arch=names[0], width=found.embedding_size, classes=classes, stride=stride)


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
