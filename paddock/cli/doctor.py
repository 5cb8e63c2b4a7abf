"""`paddock doctor`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from paddock.cli.arguments import parse, place
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions, node_range
from paddock.phases import phase, starting
from paddock.telemetry import format as show

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class DoctorOptions:
    """Print what this machine has: host, devices, collective backends, libraries.

    With --nnodes or --nproc-per-node, look at a job instead, before it begins (preflight): whether its machines reach
    each other, have the same versions, devices, recipe and data; whether every device multiplies as it should, and how
    fast they exchange data. Run it on each machine, as the job would be; exit code 3 names the one that is not
    ready."""

    device: str | None = None
    """Of the job: auto, or a name that this report lists. Default: the recipe's."""
    recipe: str | None = None
    """Of the job: all machines must have the same one, and see the same data."""
    run_dir: Path | None = None
    """Of the job: all machines must be able to write there."""
    patience: float = 60.0
    """Seconds to wait for the other machines."""
    json: bool = False
    """Print the report as JSON."""
    launch: Annotated[LaunchOptions, tyro.conf.arg(name="", help="")] = field(default_factory=LaunchOptions)

    def check(self) -> None:
        """Raise ConfigError for options that would be ignored."""
        about_job = {"--device": self.device, "--recipe": self.recipe, "--run-dir": self.run_dir}
        given = [flag for flag, value in about_job.items() if value is not None]
        if given and self.launch.world_size == 1:
            raise ConfigError(
                f"{given[0]} is about a job of several processes, and would be ignored",
                fix="say how many: --nproc-per-node N, or --nnodes M with --node-rank and --master-addr",
            )
        if self.launch.elastic:
            raise ConfigError(
                f"--nnodes {self.launch.min_nodes}:{self.launch.nnodes} leaves open which machines are meant",
                why="they are looked at together",
                fix="say how many there are now: --nnodes N with --node-rank",
            )
        if self.launch.nnodes > 1 and self.launch.preflight == "off":
            raise ConfigError("--preflight off leaves nothing to do", why="this is the preflight", fix="leave it out")


def main(arguments: list[str]) -> None:
    options = parse(DoctorOptions, "doctor", node_range(arguments))
    options = replace(options, launch=place(options.launch, arguments, ["doctor", *arguments]))
    options.check()
    from rich.console import Console

    if options.launch.world_size > 1:
        with starting(options.launch.node_rank):
            report = _diagnose_job(options)
        table = render_job
    else:
        with phase("looking at this machine", at_once=True):
            from paddock.jobs.doctor import diagnose

            report, table = diagnose(), render
    if report.get("machine"):
        print(f"machine {report['machine']} is ready; machine 0 has the report", file=sys.stderr)
    elif options.json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(table(report))


def _diagnose_job(options: DoctorOptions) -> dict[str, Any]:
    from paddock.config.load import load_recipe
    from paddock.jobs.doctor import diagnose_job

    recipe = None if options.recipe is None else load_recipe(options.recipe)
    device = options.device or ("auto" if recipe is None else recipe.train.device)
    return diagnose_job(options.launch, device, recipe, options.run_dir, options.patience)


def render_job(report: dict[str, Any]) -> Table:
    """What was found of a job's machines and processes."""
    machines, probes = report["machines"], report["probes"]
    here = {probe["machine"]: probe["host"] for probe in probes}
    rates = {machine: [probe["flops"] for probe in probes if probe["machine"] == machine] for machine in here}
    speeds = {machine: f"{show.flops(min(rates[machine]))} the slowest of {len(rates[machine])}" for machine in here}
    backend = report["backend"]
    return _table(
        f"{len(probes)} processes on {_plural(len(here), 'machine')} are ready",
        {
            "machines": [(_named(one["machine"], here), _describe_machine(one), "") for one in machines],
            "products": [(_named(machine, here), f"right; {speeds[machine]}", "") for machine in here],
            backend: [
                ("all of them", _describe_exchange(report, "a number summed"), ""),
                *(
                    (" – ".join(map(str, link["machines"])), _describe_exchange(link, "there and back"), "")
                    for link in report["links"]
                ),
            ],
            **({"notes": [("", note, "yellow") for note in report["notes"]]} if report["notes"] else {}),
        },
    )


def _named(machine: int, hosts: dict[int, str]) -> str:
    return f"{machine} {hosts[machine]}"


def _describe_machine(one: dict[str, Any]) -> str:
    processes = _plural(one["processes"], "process", "es")
    devices = "" if one["devices"] is None else f" of {one['devices']} devices"
    versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
    clock = f"; clock {one['clock_ahead']:+.3f} s, {one['delay'] * 1e3:.2f} ms away" if one["machine"] else ""
    return f"{processes} on {one['device']}{devices}; {versions}{clock}"


def _describe_exchange(measured: dict[str, Any], what: str) -> str:
    return f"{what} in {measured['latency'] * 1e3:.3f} ms, {show.bytes_(measured['bandwidth'])}/s"


def render(report: dict[str, Any]) -> Table:
    """What was found of this machine."""
    return _table(f"Paddock {report['paddock']}", _sections(report))


def _table(title: str, sections: dict[str, list[tuple[str, str, str]]]) -> Table:
    """A report as one table that reads well at 80 columns, with or without colour."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.HORIZONTALS, show_header=False, title=title, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for section, rows in sections.items():
        table.add_section()
        for number, (item, detail, style) in enumerate(rows):
            # Text, not markup: a vendor's error message may hold square brackets.
            table.add_row("" if number else section, item, Text(detail, style))
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


def _plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"
