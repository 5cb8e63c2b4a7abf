"""What a run was made with."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

from paddock import __version__


def versions() -> dict[str, Any]:
    """Of Paddock, Python, the platform and the libraries that decide what is computed."""
    names = ("torch", "numpy", "tokenizers", "safetensors", "pydantic")
    return {
        "paddock": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        **{name: metadata.version(name) for name in names},
    }
