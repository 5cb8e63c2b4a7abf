"""What is kept of a hang: the stacks of all threads, what torch recorded of collectives, and one error that sums up."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from paddock.errors import HangError
from paddock.launch.heartbeat import Heartbeat, never_arrived

SHOWN_FRAMES = 8
SHOWN_COLLECTIVES = 30
TORCH = os.path.dirname(os.path.realpath(torch.__file__))
STANDARD = os.path.realpath(sysconfig.get_path("stdlib"))


def main_stack(limit: int = SHOWN_FRAMES) -> list[str]:
    """Where the main thread is: the innermost calls, as file:line function. Reads no source file."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=limit, lookup_lines=False)
    return [f"{one.filename}:{one.lineno} {one.name}" for one in reversed(frames)]


def all_stacks() -> str:
    """The stack of every thread of this process, the main one first."""
    frames, main = sys._current_frames(), threading.main_thread()
    threads = sorted(threading.enumerate(), key=lambda thread: thread is not main)
    told = [
        f"thread {thread.name}:\n" + "".join(traceback.format_stack(frames[thread.ident]))
        for thread in threads
        if thread.ident in frames
    ]
    return "\n".join(told)


def collectives() -> str:
    """The last collectives that torch's flight recorder knows of, the newest last, and how far each came."""
    recorded = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    lines = [_collective(entry) for entry in recorded.get("entries", [])[-SHOWN_COLLECTIVES:]]
    return "\n".join(lines) or "none were recorded"


def _collective(entry: dict[str, Any]) -> str:
    group = " ".join(map(str, entry.get("process_group", ())))
    return (
        f"{entry.get('state', '?'):<10} {entry.get('profiling_name', '?')} no. {entry.get('collective_seq_id', '?')} "
        f"in group {group}, {entry.get('input_sizes', '')} → {entry.get('output_sizes', '')}"
    )


def hang_error(beats: Sequence[Heartbeat], silent: dict[int, float], errors: Path, store: str = "") -> HangError:
    """One summary of what all ranks told. `silent` are those of whom nothing was heard for so many seconds; `store`
    says what is wrong with the store, if the others could not be heard at all."""
    missing = never_arrived(beats, list(silent))
    of = {beat.rank: beat for beat in beats}
    lines = [f"rank {rank} {_frozen(of[rank], seconds)}" for rank, seconds in silent.items()]
    lines += _by_place([beat for beat in beats if beat.rank not in silent and not beat.has_ended])
    if ended := [beat.rank for beat in beats if beat.has_ended]:
        lines.append(f"{_ranks(ended)}: at the end already")
    if store:
        lines.append(f"nothing is known of the other ranks: {store}")
    waited = max((beat.age for beat in beats if not beat.has_ended), default=0.0)
    what = f"the job hangs: nothing has moved for {max([waited, *silent.values()]):.0f} s"
    if missing and len(beats) > 1:
        places = ", ".join(f"rank {rank} ({of[rank].host}, process {of[rank].pid})" for rank in missing)
        what += f", and the others wait for {places}"
    return HangError(
        what,
        why="\n       ".join(lines),
        fix=f"the stacks of all ranks are in {errors}; if it was only slow, give it longer: --train.hang-timeout",
    )


def _frozen(beat: Heartbeat, seconds: float) -> str:
    return (
        f"has sent no heartbeat for {seconds:.0f} s: it is stopped, or its machine is, or cannot be reached; "
        f"its last was from: {beat.what}{_place(beat.stack)}"
    )


def _by_place(beats: Sequence[Heartbeat]) -> list[str]:
    """One line for the ranks that are at the same."""
    places: dict[str, list[int]] = {}
    for beat in beats:
        waits = "waits in" if beat.waits else "is in"
        places.setdefault(f"{waits} {beat.what}{_place(beat.stack)}", []).append(beat.rank)
    return [f"{_ranks(ranks)} {place}" for place, ranks in places.items()]


def _place(stack: Sequence[str]) -> str:
    """The innermost call, and the innermost one that is not a library's."""
    if not stack:
        return ""
    ours = [line for line in stack if not _is_library(os.path.realpath(line.rpartition(":")[0]))]
    places = list(dict.fromkeys([_short(stack[-1]), *map(_short, ours[-1:])]))
    return ": " + ", called by ".join(places)


def _is_library(path: str) -> bool:
    return path.startswith(TORCH) or (path.startswith(STANDARD) and "-packages" not in path)


def _short(line: str) -> str:
    """The last two parts of a path are enough to find it."""
    path, _, rest = line.rpartition(":")
    return "/".join(Path(path).parts[-2:]) + ":" + rest


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
