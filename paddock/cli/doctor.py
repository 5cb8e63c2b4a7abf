"""`paddock doctor`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paddock.cli.arguments import parse


@dataclass(frozen=True)
class DoctorOptions:
    """Print what this machine has: host, devices, collective backends, libraries."""

    json: bool = False
    """Print the report as JSON."""


def main(arguments: list[str]) -> None:
    options = parse(DoctorOptions, "doctor", arguments)
    from rich.console import Console

    from paddock.jobs.doctor import diagnose, render

    report = diagnose()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(render(report))
