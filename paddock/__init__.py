"""Paddock: the same model, on any device, in any layout, gives the same loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.inference.loaded import load
    from paddock.telemetry.stop import Stop
    from paddock.trainer import Trainer
    from paddock.training.callbacks import Callback

__version__ = "0.1.0"
__all__ = ["Callback", "Stop", "Trainer", "__version__", "load"]
_FOUND_IN = {
    "Callback": "paddock.training.callbacks",
    "Stop": "paddock.telemetry.stop",
    "Trainer": "paddock.trainer",
    "load": "paddock.inference.loaded",
}


def __getattr__(name: str) -> Any:
    """What Python gets is imported when it is asked for: the command line starts faster without it."""
    if name in _FOUND_IN:
        from importlib import import_module

        return getattr(import_module(_FOUND_IN[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
