"""Prints what Paddock depends on, but for torch: an accelerator's base image brings its own, with the plug-in."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
for dependency in project["dependencies"]:
    if re.match(r"[A-Za-z0-9_.-]+", dependency).group() != "torch":
        print(dependency)
