"""Writes constraints.txt anew: `make pins`, which asks pip what the extras that CI installs resolve to today.

    pip install --dry-run --ignore-installed --report REPORT -e '.[dev,docs]'
    python .ci/pins.py REPORT > constraints.txt

A pin is a name and a version: where a package came from is the business of whoever installs it. The libraries that only
torch's builds for an accelerator bring are left out, and so is the part of a version that names such a build, so that
the pins of one machine hold on every other.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

OF_A_BUILD = re.compile(r"^(nvidia|cuda|triton|pytorch-triton|intel|onemkl|umf|tcmlib|dpcpp)\b")
OURS = "paddock"


def pins(report: dict[str, Any]) -> list[str]:
    """A line for each package of pip's report, in the order of the alphabet."""
    found = {}
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key != OURS and not OF_A_BUILD.match(key):
            found[key] = f"{name}=={version.partition('+')[0]}"
    return [found[key] for key in sorted(found)]


if __name__ == "__main__":
    print("\n".join(pins(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
