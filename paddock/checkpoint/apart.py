"""Checkpoints of machines that share no storage: each keeps the part that its processes wrote, and the description, on
machine 0, says who keeps what.

A folder is shared if the mark that the first process left in it is seen.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.checkpoint.shards.blocks import FileRecord
from paddock.errors import DataError
from paddock.files import disk_errors

MARK = ".begun"
PARTS = "shard-*.safetensors"


def mark(folder: Path) -> None:
    """Of the first process, in a folder that it has made for all."""
    (folder / MARK).touch()


def unmark(folder: Path) -> None:
    (folder / MARK).unlink()


def place_apart(folder: Path) -> str | None:
    """Where this process's part stays, `HOST:FOLDER`, if it is not where the first process has begun; the folder is
    then made here."""
    if (folder / MARK).exists():
        return None
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return f"{socket.gethostname()}:{folder.absolute().parent}"


def name_part(folder: Path, path: Path, file: str, records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Give the folder of parts that was made here its name, as the first process has done where it is; of the
    processes of this machine, the one whose `file` is the first of them. Gives all places where parts are kept."""
    places = {name: record["kept_by"] for name, record in records.items() if "kept_by" in record}
    if file in places and file == min(name for name, place in places.items() if place == places[file]):
        with disk_errors(path):
            if path.exists():  # of the same step, from before the run went back to an earlier one
                shutil.rmtree(path)
            os.rename(folder, path)
    return sorted(set(places.values()))


def keep_only(folder: Path, names: list[str]) -> None:
    """Drop the parts of checkpoints that machine 0 has dropped."""
    for path in folder.glob("step-*"):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)


def tell(path: Path, places: list[str]) -> None:
    """Say, once, that a checkpoint lies in several places."""
    print(
        f"note: the machines share no storage: parts of {path} and of those that follow are kept in "
        f"{', '.join(places)}; to go on from one, copy its parts together, to all machines",
        file=sys.stderr,
    )


def check_parts(path: Path, records: Mapping[str, FileRecord]) -> None:
    """An error that names the machines, if parts that others kept have not been brought here."""
    missing = {
        name: record.kept_by for name, record in records.items() if record.kept_by and not (path / name).exists()
    }
    if missing:
        hosts = sorted({place.partition(":")[0] for place in missing.values()})
        raise DataError(
            f"the checkpoint {path} lacks parts that {', '.join(hosts)} {'keeps' if len(hosts) == 1 else 'keep'}",
            why="the machines that wrote it shared no storage: "
            + ", ".join(f"{name} is in {place}/{path.name}" for name, place in sorted(missing.items())[:10]),
            fix=f"copy them into {path}, on every machine that is to load it",
        )


def has_part_only(path: Path) -> bool:
    """Whether a folder holds what one machine kept of checkpoints whose description is elsewhere."""
    return any(path.glob(f"checkpoints/step-*/{PARTS}")) or any(path.glob(f"step-*/{PARTS}")) or any(path.glob(PARTS))
