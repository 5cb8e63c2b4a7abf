"""ResNet weights as everybody's files have them (torchvision, timm, the ImageNet example): our names are theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from paddock.models.resnet.config import Convolution, ResNetConfig
from paddock.models.weight_names import TensorRule, same

TIED_NAMES: Mapping[str, str] = {}
HEAD = "fc"
HEADS: Sequence[str] = (f"{HEAD}.",)

# What wrappers put before every name: DistributedDataParallel, torch.compile, and trainers that hold the model.
_WRAPPERS = re.compile(r"^((module|_orig_mod|model)\.)+")
_COUNTER = ".num_batches_tracked"


def canonical_name(name: str) -> str | None:
    """Without what wrappers add; a norm's counter of batches is not a weight."""
    name = _WRAPPERS.sub("", name)
    return None if name.endswith(_COUNTER) else name


def tensors(config: ResNetConfig) -> list[TensorRule]:
    """Every tensor of the model, in the order of its forward pass."""
    return [rule(name, name, shape) for name, shape in shapes(config)]


def shapes(config: ResNetConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of every tensor."""
    for _, convolution, conv, norm in layers(config):
        inputs = convolution.inputs // convolution.groups
        yield f"{conv}.weight", (convolution.outputs, inputs, convolution.kernel, convolution.kernel)
        statistics = () if config.norm == "group" else ("running_mean", "running_var")
        for part in ("weight", "bias", *statistics):
            yield f"{norm}.{part}", (convolution.outputs,)
    yield f"{HEAD}.weight", (config.classes, config.features)
    yield f"{HEAD}.bias", (config.classes,)


def layers(config: ResNetConfig) -> Iterator[tuple[tuple[int, int, int] | None, Convolution, str, str]]:
    """Every convolution with its own name and its norm's, and where it is: (stage, block, place), None for the stem.

    Places count from 0; the shortcut's is -1.
    """
    yield None, config.stem(), "conv1", "bn1"
    for stage, blocks in enumerate(config.stages()):
        for index, block in enumerate(blocks):
            name = f"layer{stage + 1}.{index}"
            for place, convolution in enumerate(block.convolutions):
                yield (stage, index, place), convolution, f"{name}.conv{place + 1}", f"{name}.bn{place + 1}"
            if block.shortcut is not None:
                yield (stage, index, -1), block.shortcut, f"{name}.downsample.0", f"{name}.downsample.1"


def rule(ours: str, theirs: str, shape: tuple[int, ...]) -> TensorRule:
    """A tensor that is the same under both names."""
    return same(ours, theirs, *shape, head=HEAD if ours.startswith(f"{HEAD}.") else "")
