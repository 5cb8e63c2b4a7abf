"""`paddock doctor`: what this machine has and lacks, for people who install Paddock or ask for help.

`diagnose` looks and gives plain data, `render` shows it. Neither raises because something is missing.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock import __version__
from paddock.devices import Availability, adapter_named, device_names, probe, select
from paddock.devices.cpu import cpu_model
from paddock.errors import MachineError

if TYPE_CHECKING:
    from rich.table import Table

CORE = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "pyyaml", "tyro", "rich")
OPTIONAL = {
    "sentencepiece": "T5 and mT5 tokenizers",
    "pillow": "image files",
    "simplejpeg": "JPEG files, faster",
    "tensorboard": "TensorBoard logs",
    "transformers": "reference models in the tests",
}


def diagnose() -> dict[str, Any]:
    """All that the report shows, ready for JSON. Sizes are in bytes; what was not found is null."""
    devices = [_device(name) for name in device_names()]
    return {
        "paddock": __version__,
        "host": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processor": cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory": _memory(),
            "python": platform.python_version(),
        },
        "devices": devices,
        "auto": _auto(),
        "collectives": _collectives(),  # after the devices: a plug-in brings its own when it is imported
        "compiler": _compiler(),
        "libraries": {
            "core": {name: _installed(name) for name in CORE},
            "optional": {name: _installed(name) for name in OPTIONAL},
        },
    }


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
    host, compiler = report["host"], report["compiler"]
    core, optional = report["libraries"]["core"], report["libraries"]["optional"]
    collectives = ", ".join(report["collectives"])
    lacking = [f"{name} ({OPTIONAL[name]})" for name, version in optional.items() if not version]
    return {
        "host": [
            ("system", host["system"], ""),
            ("processor", f"{host['processor']}, {_plural(host['cores'], 'core')}", ""),
            ("memory", _describe_memory(host["memory"]), ""),
            ("python", host["python"], ""),
            ("torch", *_or_missing(core["torch"], "pip install torch")),
        ],
        "devices": [_describe_device(device, report["auto"]["device"]) for device in report["devices"]],
        "tools": [
            ("collectives", *_or_missing(collectives, "this torch cannot run more than one process")),
            (
                "compiler",
                *_or_missing(compiler and compiler["version"], "torch.compile on the CPU needs g++"),
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


def _describe_memory(memory: dict[str, int | None]) -> str:
    sizes = {name: size / 2**30 for name, size in memory.items() if size is not None}
    return ", ".join(f"{size:.1f} GiB {name}" for name, size in sizes.items()) or "unknown"


def _versions(libraries: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in libraries.items() if version)


def _or_missing(found: str | None, otherwise: str) -> tuple[str, str]:
    return (found, "") if found else (f"missing: {otherwise}", "red")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _device(name: str) -> dict[str, Any]:
    try:
        adapter = adapter_named(name)
        found, backend, parallelism = probe(adapter), adapter.backend, adapter.parallelism
    except MachineError as error:  # another package's, and broken
        found, backend, parallelism = Availability(False, reason=error.why, broken=True), None, None
    return {
        "name": name,
        "available": found.available,
        "count": found.count,
        "version": found.version,
        "reason": found.reason,
        "broken": found.broken,
        "names": list(found.names),
        "backend": backend,
        "parallelism": parallelism,
    }


def _auto() -> dict[str, str | None]:
    """What `--device auto` does here: the device it takes, or why it stops."""
    try:
        return {"device": select("auto").name, "reason": None}
    except MachineError as error:
        return {"device": None, "reason": error.why}


def _collectives() -> list[str]:
    """The collective libraries that this torch can use; `fake` moves no data, so it does not count."""
    try:
        import torch.distributed as distributed
    except ImportError:
        return []
    if not distributed.is_available():
        return []
    names = dict.fromkeys(distributed.Backend.backend_list)
    return [n for n in names if n not in ("undefined", "fake") and distributed.is_backend_available(n)]


def _compiler() -> dict[str, str | None] | None:
    """The C++ compiler that torch.compile would call on the CPU: CXX, else the platform's own."""
    command = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        return None
    try:
        run = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return {"command": command, "version": next(iter(run.stdout.splitlines()), command)}


def _memory() -> dict[str, int | None]:
    """Total and free memory, and the limit of the container if it has one."""
    kibibytes = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            kibibytes[name] = int(value.split()[0])
    except OSError:  # not Linux
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    sizes = {"total": kibibytes.get("MemTotal"), "available": kibibytes.get("MemAvailable")}
    report = {name: size * 1024 if size is not None else None for name, size in sizes.items()}
    return report | {"limit": int(limit) if limit.isdigit() else None}


def _installed(name: str) -> str | None:
    """The installed version, without importing the library."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
