"""The families that exist, by name: our own folders, those that registered themselves, and entry points.

Everything is imported when it is asked for: a config costs time, model code needs torch.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from paddock import models, plugins
from paddock.errors import ConfigError, did_you_mean
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.models.model import Model

GROUP = "families"
NOT_FAMILIES = ("layers", "transformer")
_registered: dict[str, Family] = {}


def register_family(family: type[Family]) -> type[Family]:
    """Make a family known to this process and to those that it starts: a decorator.

    >>> @register_family
    ... class Mixer(Family):
    ...     name = "mixer"
    """
    _registered[family.name] = family()
    plugins.remember(family.__module__)
    return family


def family_named(name: object) -> Family:
    """The family, or an error that lists those that there are."""
    if name in _registered:
        return _registered[str(name)]
    if name in _own():
        found: Family = import_module(f"paddock.models.{name}").FAMILY
        return found
    entry = plugins.find(GROUP, str(name))
    if entry is None:
        raise ConfigError(
            f"model.family = {name}", why="there is no such family", fix=did_you_mean(str(name), family_names())
        )
    return entry() if isinstance(entry, type) else entry


def family_of_type(model_type: object) -> Family | None:
    """The family that Hugging Face calls so, if there is one."""
    found = (family_named(name) for name in family_names())
    return next((family for family in found if model_type in (family.model_types or (family.name,))), None)


def family_names() -> list[str]:
    """All of them."""
    return sorted({*_own(), *_registered, *plugins.names(GROUP)})


def _own() -> list[str]:
    """The folders beside this file."""
    return [found.name for found in iter_modules(models.__path__) if found.ispkg and found.name not in NOT_FAMILIES]


def config_class(family: object) -> type[ModelConfig]:
    """The config class of a family, or an error that lists the families."""
    return family_named(family).config_class()


def build_model(config: ModelConfig) -> Model:
    """The model that a config describes, on torch's current default device."""
    return family_named(config.family).build(config)


def example_batch(config: ModelConfig, samples: int, shape: SampleShape, seed: int) -> dict[str, Tensor]:
    """Random samples of that shape, with labels: for measuring."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return dict(family_named(config.family).example(config, samples, shape, generator))


def parameter_names(config: ModelConfig) -> list[str]:
    """What the parameters of the whole model are called, in its order, found without giving them memory."""
    import torch

    with torch.device("meta"):
        return [name for name, _ in build_model(config).named_parameters()]
