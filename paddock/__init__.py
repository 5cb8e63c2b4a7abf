"""Paddock: the same model, on any device, in any layout, gives the same loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.inference.loaded import load
    from paddock.trainer import Trainer

__version__ = "0.1.0"
__all__ = ["Trainer", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """What Python gets is imported when it is asked for: the command line starts faster without it."""
    if name == "Trainer":
        from paddock.trainer import Trainer

        return Trainer
    if name == "load":
        from paddock.inference.loaded import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
