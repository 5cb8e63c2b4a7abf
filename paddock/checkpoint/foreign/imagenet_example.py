"""What the ImageNet example keeps beside the weights in its `checkpoint.pth.tar`: how far it came, and its momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, ConfigDict, Field
from torch import Tensor, nn
from torch.optim import Optimizer

from paddock.checkpoint.foreign.weight_files import check_tensors, read_torch
from paddock.checkpoint.tensors import OPTIMIZER, load_optimizer_state
from paddock.documents import Document, shape_json
from paddock.errors import DataError
from paddock.models.config import ModelConfig
from paddock.models.registry import family_named, parameter_names
from paddock.parallel.placement import local, part_like

KEYS = ("epoch", "state_dict", "best_acc1", "optimizer")
MOMENTUM = "momentum_buffer"


def _plain(value: object) -> object:
    """A number that may be kept as a tensor of one."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta else value


Number = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False)]


class _Entry(Document):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    momentum_buffer: Tensor | None = None


class _Group(Document):
    params: list[int]
    lr: Number
    momentum: Number | None = None
    weight_decay: Number | None = None


class _Optimizer(Document):
    param_groups: list[_Group] = Field(min_length=1, max_length=1)
    state: dict[int, _Entry]


class _Saved(Document):
    """What the example saves. Torch's unpickler made these values, not JSON's; the same holds for them."""

    epoch: Annotated[int, BeforeValidator(_plain), Field(ge=0, le=10**9)]
    state_dict: dict[Any, Any]
    best_acc1: Number
    optimizer: _Optimizer


@dataclass(frozen=True)
class ImageNetExampleState:
    """A training run of the example, between two epochs."""

    epochs: int
    """That are done."""
    best: float
    """The best top-1 accuracy so far, in percent."""
    momentum: dict[str, Tensor]
    """By our names of the parameters; empty before the first step, or without momentum."""
    settings: dict[str, float]
    """Of SGD: lr (of the next epoch), momentum, weight_decay."""


def read_imagenet_example(path: Path, config: ModelConfig) -> ImageNetExampleState:
    """The state in a file whose weights fit `config`, or a DataError why there is none to go on from."""
    content = read_torch(path) if path.is_file() and path.suffix != ".safetensors" else None
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise _no_state(path, f"it has no {', '.join(missing)}")
    try:
        saved = shape_json(content, _Saved, str(path))
    except DataError as error:
        raise _no_state(path, f"it is not one SGD over all parameters, between two epochs: {error.why}") from None
    weights = check_tensors(path, saved.state_dict)
    (group,) = saved.optimizer.param_groups
    names = _parameters_in_order(weights, config)
    buffers = {number: entry.momentum_buffer for number, entry in saved.optimizer.state.items()}
    held = {number: buffer for number, buffer in buffers.items() if buffer is not None}
    numbers = group.params
    if len(set(numbers)) != len(names) or len(numbers) != len(names) or (held and set(held) != set(numbers)):
        raise _no_state(
            path, f"its optimizer has {len(numbers)} parameters, {len(held)} with momentum; the model has {len(names)}"
        )
    momentum = {name: held[number] for name, number in zip(names, numbers, strict=True)} if held else {}
    for name, buffer in check_tensors(path, momentum).items() if momentum else ():
        if buffer.shape != weights[names[name]].shape:
            raise _no_state(path, f"the momentum of {name} has the shape {list(buffer.shape)}")
    settings = group.model_dump(exclude={"params"}, exclude_none=True)
    return ImageNetExampleState(saved.epoch, saved.best_acc1, momentum, settings)


def load_momentum(state: ImageNetExampleState, models: Sequence[nn.Module], optimizer: Optimizer) -> None:
    """Let an optimizer go on with it; each process takes the part that it holds."""
    if not state.momentum:
        return
    tensors = {}
    for model in models:
        for name, parameter in model.named_parameters():
            buffer = torch.empty_like(parameter.data)
            local(buffer).copy_(part_like(state.momentum[name], parameter.data))
            tensors[f"{OPTIMIZER}{MOMENTUM}.{name}"] = buffer
    load_optimizer_state(tensors, models, optimizer)


def _parameters_in_order(state_dict: Mapping[str, Any], config: ModelConfig) -> dict[str, str]:
    """Our names of the parameters, in the order in which the file's model had them, each with the file's own name."""
    canonical = family_named(config.family).public_files().canonical_name
    ours = set(parameter_names(config))
    return {name: found for found in state_dict if (name := canonical(found)) in ours}


def _no_state(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} holds no training run that can go on",
        why=f"{why}; a checkpoint.pth.tar of the ImageNet example has {', '.join(KEYS)}",
        fix="begin with its weights alone: --pretrained instead of --resume, or without --checkpoint.resume",
    )
