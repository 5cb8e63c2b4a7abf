"""The families that exist. Adding one is a folder beside this file and a line here.

Configs are imported here; model code, which needs torch, only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from paddock.errors import ConfigError, did_you_mean
from paddock.models.config import ModelConfig
from paddock.models.gpt2.config import GPT2Config

if TYPE_CHECKING:
    from torch import nn

CONFIGS: dict[str, type[ModelConfig]] = {"gpt2": GPT2Config}
_MODULES = {"gpt2": "paddock.models.gpt2"}


def config_class(family: object) -> type[ModelConfig]:
    """The config class of a family, or an error that lists the families."""
    if family not in CONFIGS:
        raise ConfigError(
            f"model.family = {family}",
            why="there is no such family",
            fix=did_you_mean(str(family), sorted(CONFIGS)),
        )
    return CONFIGS[str(family)]


def build_model(config: ModelConfig) -> nn.Module:
    """The model that a config describes, on torch's current default device."""
    module = import_module(f"{_MODULES[config.family]}.model")
    model: nn.Module = module.build(config)
    return model


def parameter_names(config: ModelConfig) -> list[str]:
    """What the parameters of the whole model are called, in its order, found without giving them memory."""
    import torch

    with torch.device("meta"):
        return [name for name, _ in build_model(config).named_parameters()]


def huggingface_of(family: str) -> Any:
    """The module that translates this family's names and shapes to and from Hugging Face's."""
    return import_module(f"{_MODULES[family]}.huggingface")


def parallel_of(family: str) -> Any:
    """The module that says how this family is cut over processes."""
    return import_module(f"{_MODULES[family]}.parallel")
