"""The function that a job runs, by name: `package.module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from paddock.errors import ConfigError
from paddock.plugins import is_known


def check_target(target: str) -> None:
    """Refuse what is neither ours nor of a package that registered something with us: a name that came from a file
    must not run arbitrary code."""
    module, separator, function = target.partition(":")
    names = [*module.split("."), function]
    if not separator or not is_known(module) or not all(name.isidentifier() for name in names):
        raise ConfigError(
            f'cannot launch "{target}"',
            why="a job is a function of this package, or of one that registered something with it",
            fix='name it as "paddock.module:function"',
        )


def resolve(target: str) -> Callable[[dict[str, Any]], object]:
    """Import the function that `target` names."""
    check_target(target)
    module, _, function = target.partition(":")
    found: Callable[[dict[str, Any]], object] = getattr(importlib.import_module(module), function)
    return found
