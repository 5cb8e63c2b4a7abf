"""`paddock doctor`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.cli.arguments import parse

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class DoctorOptions:
    """Print what this machine has: host, devices, collective backends, libraries."""

    json: bool = False
    """Print the report as JSON."""


def main(arguments: list[str]) -> None:
    options = parse(DoctorOptions, "doctor", arguments)
    from rich.console import Console

    from paddock.jobs.doctor import diagnose
    from paddock.phases import phase

    with phase("looking at this machine"):
        report = diagnose()
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(render(report))


def render(report: dict[str, Any]) -> Table:
    """The report as one table that reads well at 80 columns, with or without colour."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.HORIZONTALS, show_header=False, title=f"Paddock {report['paddock']}", pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, rows in _sections(report).items():
        table.add_section()
        for number, (item, detail, style) in enumerate(rows):
            # Text, not markup: a vendor's error message may hold square brackets.
            table.add_row("" if number else title, item, Text(detail, style))
    return table


def _sections(report: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    """Title → rows of (item, detail, style)."""
    from paddock.jobs.doctor import OPTIONAL

    host, compiler = report["host"], report["compiler"]
    core, optional = report["libraries"]["core"], report["libraries"]["optional"]
    collectives = ", ".join(report["collectives"])
    lacking = [f"{name} ({OPTIONAL[name]})" for name, version in optional.items() if not version]
    return {
        "host": [
            ("system", host["system"], ""),
            ("processor", f"{host['processor']}, {_plural(host['cores'], 'core')}", ""),
            ("number types", _describe_types(host["number_types"]), ""),
            ("memory", _describe_memory(host["memory"]), ""),
            ("python", host["python"], ""),
            ("torch", *_or_missing(core["torch"], "pip install torch")),
        ],
        "devices": [_describe_device(device, report["auto"]["device"]) for device in report["devices"]],
        "tools": [
            ("collectives", *_or_missing(collectives, "this torch cannot run more than one process")),
            (
                "compiler",
                *_or_missing(
                    compiler and compiler["version"],
                    (compiler and compiler["reason"]) or "torch.compile on the CPU needs g++",
                ),
            ),
        ],
        "libraries": [
            ("core", _versions(core), ""),
            *[(name, "missing: pip install paddock", "red") for name, version in core.items() if not version],
            ("optional", _versions(optional) or "none", ""),
            *([("not here", ", ".join(lacking), "dim")] if lacking else []),
        ],
    }


def _describe_device(device: dict[str, Any], auto: str | None) -> tuple[str, str, str]:
    if not device["available"]:
        state, style = ("broken", "red") if device["broken"] else ("no", "dim")
        return device["name"], f"{state}: {device['reason']}", style
    kinds = dict.fromkeys(device["names"])
    many = f"{device['count']} × " if device["count"] > 1 else ""
    chosen = ", taken by --device auto" if device["name"] == auto else ""
    return device["name"], f"yes: {many}{', '.join(kinds)}, {device['backend']}{chosen}", "green"


def _describe_types(types: dict[str, bool | None]) -> str:
    words = {True: "in hardware", False: "emulated, slower than float32", None: "unknown"}
    return ", ".join(f"{name} {words[found]}" for name, found in types.items())


def _describe_memory(memory: dict[str, int | None]) -> str:
    sizes = {name: size / 2**30 for name, size in memory.items() if size is not None}
    return ", ".join(f"{size:.1f} GiB {name}" for name, size in sizes.items()) or "unknown"


def _versions(libraries: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items() if version)


def _or_missing(found: str | None, otherwise: str) -> tuple[str, str]:
    return (found, "") if found else (f"missing: {otherwise}", "red")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
