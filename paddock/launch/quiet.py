"""The launcher of a job on several machines keeps the warnings of torch's C++ to itself.

When a machine goes, or a connection breaks, torch prints stack traces. It raises an error as well, which is told in our
own words. Workers are left as they are.
"""

from __future__ import annotations

import os
import sys

from paddock.launch.environment import added_to_environment
from paddock.process import is_ours

LEVEL = "TORCH_CPP_LOG_LEVEL"


def import_torch_quietly() -> None:
    """Import torch so that its C++ prints what ends the process and nothing else, unless the user has said what it is
    to print. It reads that from the environment once, when it is imported: what this process starts never sees it."""
    if not is_ours() or LEVEL in os.environ or "torch" in sys.modules:
        return
    with added_to_environment({LEVEL: "FATAL"}):
        import torch  # noqa: F401
