"""The families that exist. Adding one is a folder beside this file and a line here.

Everything is imported when it is asked for: a config costs time, model code needs torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from paddock.errors import ConfigError, did_you_mean
from paddock.models.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

CONFIGS = {"bert": "BertConfig", "gpt2": "GPT2Config", "resnet": "ResNetConfig"}
"""The class in each family's config.py."""
_MODULES = {family: f"paddock.models.{family}" for family in CONFIGS}


def config_class(family: object) -> type[ModelConfig]:
    """The config class of a family, or an error that lists the families."""
    if family not in CONFIGS:
        raise ConfigError(
            f"model.family = {family}",
            why="there is no such family",
            fix=did_you_mean(str(family), sorted(CONFIGS)),
        )
    name = str(family)
    found: type[ModelConfig] = getattr(import_module(f"{_MODULES[name]}.config"), CONFIGS[name])
    return found


def build_model(config: ModelConfig) -> nn.Module:
    """The model that a config describes, on torch's current default device."""
    module = import_module(f"{_MODULES[config.family]}.model")
    model: nn.Module = module.build(config)
    return model


def example_batch(config: ModelConfig, samples: int, size: int, seed: int) -> dict[str, Tensor]:
    """Random samples of so many positions, or of images of so many pixels a side, with labels: for measuring."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    module = import_module(f"{_MODULES[config.family]}.model")
    batch: dict[str, Tensor] = module.example(config, samples, size, generator)
    return batch


def parameter_names(config: ModelConfig) -> list[str]:
    """What the parameters of the whole model are called, in its order, found without giving them memory."""
    import torch

    with torch.device("meta"):
        return [name for name, _ in build_model(config).named_parameters()]


def huggingface_of(family: str) -> Any:
    """The module that translates this family's names and shapes to and from Hugging Face's."""
    return import_module(f"{_MODULES[family]}.huggingface")


def public_weights_of(family: str) -> Any:
    """The module that translates the names that weights of this family have in everybody's files."""
    if find_spec(f"{_MODULES[family]}.weights") is None:
        raise ConfigError(
            f"weights of {family} come in a folder, not in a file",
            why="a file alone does not say what they are",
            fix="give the Hugging Face folder, the run directory or the checkpoint that they are in",
        )
    return import_module(f"{_MODULES[family]}.weights")


def parallel_of(family: str) -> Any:
    """The module that says how this family is cut over processes."""
    return import_module(f"{_MODULES[family]}.parallel")
