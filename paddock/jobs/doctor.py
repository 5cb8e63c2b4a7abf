"""`paddock doctor`: what this machine has and lacks, for people who install Paddock or ask for help; and whether the
machines of a job fit together.

`diagnose` looks and gives plain data. It does not raise because something is missing. `diagnose_job` does: what it
finds keeps the job from beginning.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock import __version__
from paddock.devices import Availability, adapter_named, device_names, probe, select
from paddock.devices.compiler import host_compiler
from paddock.devices.cpu import CPU, cpu_model
from paddock.errors import MachineError
from paddock.files import scratch_folder
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.preflight import check_same_data, check_writable, inspection
from paddock.launch.rendezvous.nodes import agreed
from paddock.launch.run import run

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe

CORE = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "pyyaml", "tyro", "rich", "packaging")
OPTIONAL = {
    "sentencepiece": "T5 and mT5 tokenizers",
    "pillow": "image files",
    "simplejpeg": "JPEG files, faster",
    "tensorboard": "TensorBoard logs",
    "trackio": "experiment tracking",
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
            "number_types": {name: CPU.has_instructions_for(name) for name in CPU.autocast},
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


def diagnose_job(
    launch: LaunchOptions, device: str, recipe: Recipe | None, run_dir: Path | None, patience: float
) -> dict[str, Any]:
    """What the machines and processes of a job have and reach, ready for JSON; an error that names those that are not
    ready. With a recipe they must all have the same one, and the same data; with a run directory, write there."""
    launch.check()
    launch = located(launch)
    inspect = inspection(launch, device, {} if recipe is None else recipe.to_dict(), patience)

    def look() -> str:
        return json.dumps(_what_a_run_needs(recipe, run_dir))

    def follow(decision: str) -> None:
        check_same_data(json.loads(decision), _what_a_run_needs(recipe, run_dir))

    with scratch_folder() as folder, agreed(launch, look, follow, inspect):
        examined = run("paddock.jobs.doctor:work", {"device": device}, launch, folder)
    machines, notes = ([], []) if inspect is None else (inspect.meeting.to_list(), inspect.notes())
    return {"machine": launch.node_rank, "machines": machines, **examined, "notes": notes + examined["notes"]}


def _what_a_run_needs(recipe: Recipe | None, run_dir: Path | None) -> dict[str, Any]:
    """What tells its data from others; an error, if it is not here, or if nothing could be written. Nothing is left of
    that."""
    from paddock.tasks.registry import build_task

    if run_dir is not None:
        check_writable(str(run_dir))
    return {} if recipe is None else dict(build_task(recipe).fingerprint())


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """One process's part in the examination of a job."""
    from paddock.parallel.preflight import examine
    from paddock.parallel.world import join_world

    with join_world(select(payload["device"])) as world:
        return examine(world, thorough=True).to_dict()


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
    """The C++ compiler that torch.compile would call on the CPU.

    A variable of the environment may say anything: only a plain executable is run, and never with arguments from there.
    """
    found = host_compiler()
    command, executable = found.command, found.executable
    if executable is None or not found.is_plain:
        plain = "CXX is not the name or the path of an executable, and nothing else is run: " + command[:80]
        return {"command": command, "version": None, "reason": plain} if found.is_named else None
    try:
        run = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"command": command, "version": None, "reason": str(error).splitlines()[0]}
    return {"command": command, "version": next(iter(run.stdout.splitlines()), command), "reason": None}


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
