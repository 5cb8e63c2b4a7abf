"""What may go: whole runs, runs that came to nothing, checkpoints that nobody goes on from. All is planned first, with
its bytes, and removed under the lock of the run, so that nobody trains there meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.names import complete_checkpoints, real_place, remove_checkpoint
from paddock.errors import ConfigError, MachineError
from paddock.files import disk_errors
from paddock.reporting.listing import RunEntry, describe_run, find_runs, is_run, named_run
from paddock.training.run_directory.lock import LOCK, holder_of, locked

LINKS = ("latest", "best")


@dataclass(frozen=True)
class Removal:
    """Something that is to go, and why."""

    run: Path
    path: Path
    """The run itself, or a checkpoint of it."""
    why: str
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {"path": str(self.path), "why": self.why, "bytes": self.bytes}


@dataclass(frozen=True)
class Plan:
    """All that is to go, and what was left alone."""

    removals: tuple[Removal, ...]
    left: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.removals)

    def to_dict(self) -> dict[str, Any]:
        removals = [one.to_dict() for one in self.removals]
        return {"removals": removals, "bytes": self.bytes, "left": list(self.left)}


def plan_rm(names: Sequence[str]) -> Plan:
    """Whole runs, by name; an error if one of them is under way, or holds what is not its own."""
    if not names:
        raise ConfigError("paddock runs rm needs a run", fix="paddock runs rm RUN…")
    removals = {}
    for name in names:
        run = named_run(name)
        _check_whole(name, run)
        entry = describe_run(name)
        if entry.state == "running":
            raise in_use(name, run)
        removals[run.resolve()] = Removal(run, run, entry.state, entry.bytes)
    return Plan(tuple(removals.values()))


def _check_whole(name: str, run: Path) -> None:
    """Raise where removing a folder would take more with it than a run."""
    if run.is_symlink():
        raise ConfigError(f"{name} is a symbolic link", fix=f"name the run that it leads to: {run.resolve()}")
    here = Path.cwd().resolve()
    if here.is_relative_to(run.resolve()) or Path.home().resolve().is_relative_to(run.resolve()):
        raise ConfigError(
            f"{name} is the folder you are in, or one around it", fix="go elsewhere, and name it from there"
        )
    others = [str(place.parent) for place in run.rglob("config.yaml") if place.parent != run and _is_other(place, run)]
    if others:
        raise ConfigError(f"{name} holds other runs", why=f"such as {others[0]}", fix="remove or move them first")


def _is_other(config: Path, run: Path) -> bool:
    return "attempts" not in config.relative_to(run).parts and is_run(config.parent)


def in_use(name: str, run: Path) -> MachineError:
    holder = holder_of(run)
    who = f"process {holder.pid} on {holder.host} is at it since {holder.since}" if holder else "a process is at it"
    return MachineError(f"{name} is running", why=who, fix="stop it first" + (f": kill {holder.pid}" if holder else ""))


def plan_clean(folders: Sequence[str], *, failed: bool, checkpoints: bool) -> Plan:
    """What nobody needs any more in folders of runs: runs that never began, or failed without a checkpoint to go on
    from; with `failed` all that failed; with `checkpoints` those that are neither the latest nor the best."""
    removals: list[Removal] = []
    left: list[str] = []
    for name in find_runs(folders):
        entry = describe_run(name)
        if entry.state == "running":
            left.append(f"{name} is running")
            continue
        why = _useless(entry, failed)
        if why:
            removals.append(Removal(entry.path, entry.path, why, entry.bytes))
        elif checkpoints:
            removals += _surplus(entry.path)
        if entry.state == "damaged":
            left.append(f"{name} is damaged: `paddock runs show` says how, and `paddock runs rm` removes it")
    return Plan(tuple(removals), tuple(left))


def _useless(entry: RunEntry, failed: bool) -> str:
    """Why a run may go, if it may."""
    saved = bool(complete_checkpoints(entry.path / FOLDER))
    if entry.state == "never began" and not saved:
        return "never began"
    if entry.state == "failed" and (failed or not saved):
        return "failed" if saved else "failed before its first checkpoint"
    return ""


def _surplus(run: Path) -> Iterator[Removal]:
    """Checkpoints other than the latest and the best."""
    found = complete_checkpoints(run / FOLDER)
    kept = {real_place(run / FOLDER / link) for link in LINKS} | {real_place(path) for path in found[-1:]}
    for path in found:
        if real_place(path) not in kept:
            yield Removal(run, path, "neither the latest nor the best checkpoint", _bytes_of(path))


def _bytes_of(folder: Path) -> int:
    return sum(os.lstat(os.path.join(place, file)).st_size for place, _, files in os.walk(folder) for file in files)


def carry_out(plan: Plan) -> Iterator[Removal]:
    """Remove what was planned, one after the other, each under its run's lock."""
    for removal in plan.removals:
        with locked(removal.run, "runs clean"), disk_errors(removal.path):
            if removal.path == removal.run:
                for entry in removal.path.iterdir():
                    if entry.name != LOCK:  # it keeps others out until all else is gone
                        _remove(entry)
                shutil.rmtree(removal.path)
            else:
                remove_checkpoint(removal.path)
        yield removal


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
