"""The process between a check and a script that it does not trust: starts the script, watches it, and ends it with
everything that it started.

It is run by itself (`python -I supervisor.py`), with nothing but the standard library, and reads a job from standard
input. Orphans of the script become its children (a subreaper), so that neither a fork, a session of its own nor a
daemon escapes it. It tells the end as one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
LOOK, LOOK_AT_DISK = 0.05, 0.5
"""Seconds between two looks at the processes, and at the folder, which takes longer."""
LAST_EFFORT = 20.0
"""Seconds after which a process that survives its own kill is left to the kernel."""
MOST_FILES = 200_000


class Stopped(Exception):
    """The check itself is gone, or gave up."""


class Supervisor:
    """One script, from its start to the end of the last of its processes."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.limits = job, job["limits"]
        self.status: int | None = None
        self.ended: str | None = None
        self.left: list[str] = []
        self.mute = False
        self.memory = self.disk = self.printed = 0
        self.begin = time.monotonic()
        self.disk_at = self.begin

    def run(self) -> dict[str, Any]:
        """Start the script, and watch until it is over."""
        reading, writing = os.pipe()
        with open(self.job["output"], "wb", buffering=0) as output:
            self.main = self.start(writing)
            os.close(writing)
            try:
                self.watch(reading, output)
            except Stopped:
                self.ended = "stopped"
            finally:
                self.end_all()
            self.drain(reading, output)
        return {
            "status": self.status,
            "ended": self.ended,
            "left": self.left,
            "seconds": time.monotonic() - self.begin,
            "memory": self.memory,
            "disk": max(self.disk, size_of(self.job["watched"])[0]),
            "printed": self.printed,
        }

    def start(self, writing: int) -> int:
        """The script, in a session of its own, with the limits that the kernel keeps."""
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (writing, 1), (writing, 2)):
                os.dup2(source, target)
            os.closerange(3, 256)
            set_limits(self.limits)
            os.chdir(self.job["folder"])
            os.execve(self.job["command"][0], self.job["command"], self.job["environment"])
        except BaseException as error:
            os.write(2, f"cannot start {self.job['command'][0]}: {error}\n".encode())
        os._exit(127)

    def watch(self, reading: int, output: Any) -> None:
        """Until the script and what it started are gone, or a limit is passed."""
        over: float | None = None
        while self.ended is None:
            self.listen(reading, output, until=time.monotonic() + LOOK)
            self.reap()
            mine = below(os.getpid())
            self.ended = self.exceeded(mine)
            if self.status is None:
                continue
            if not mine:
                return
            over = over or time.monotonic()
            if time.monotonic() - over > self.limits["grace"]:
                self.left = sorted({name_of(pid) for pid in mine})
                return

    def exceeded(self, mine: list[int]) -> str | None:
        """The limit that is passed, if one is."""
        now = time.monotonic()
        if self.printed > self.limits["output"]:
            return "output"
        if now - self.begin > self.limits["seconds"]:
            return "time"
        if len(mine) > self.limits["processes"]:
            return "processes"
        used = sum(map(resident, mine))
        if used > self.limits["memory"]:  # pages that several share were counted for each of them
            used = sum(proportional(pid) or resident(pid) for pid in mine)
        self.memory = max(self.memory, used)
        if used > self.limits["memory"]:
            return "memory"
        if now - self.disk_at > LOOK_AT_DISK:
            size, files = size_of(self.job["watched"])
            self.disk_at, self.disk = time.monotonic(), max(self.disk, size)
            if size > self.limits["disk"] or files > MOST_FILES:
                return "disk"
        return None

    def listen(self, reading: int, output: Any, until: float) -> None:
        """Copy what is printed for a while, or until it is too much."""
        while (left := until - time.monotonic()) > 0 and self.printed <= self.limits["output"]:
            if not self.mute and select.select([reading], [], [], left)[0]:
                chunk = os.read(reading, 2**16)
                self.mute = not chunk  # everybody has closed it
                self.copy(chunk, output)
            elif self.mute:
                time.sleep(left)

    def copy(self, chunk: bytes, output: Any) -> None:
        """What was printed, as far as anybody wants to read it."""
        room = self.limits["output"] - self.printed
        output.write(chunk[: max(room, 0)])
        self.printed += len(chunk)

    def drain(self, reading: int, output: Any) -> None:
        """What is still in the pipe; everybody who wrote to it is gone."""
        os.set_blocking(reading, False)
        with suppress(BlockingIOError):
            while chunk := os.read(reading, 2**16):
                self.copy(chunk, output)

    def reap(self) -> None:
        """Ask after children that have ended, the orphans that were given to us too."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.main:
                    self.status = os.waitstatus_to_exitcode(found[1])

    def end_all(self) -> None:
        """Kill until nobody is left: one that is killed may just have started another."""
        deadline = time.monotonic() + LAST_EFFORT
        while (mine := below(os.getpid())) and time.monotonic() < deadline:
            kill(mine)
            self.reap()
            time.sleep(0.01)
        self.reap()


def set_limits(limits: dict[str, int]) -> None:
    """Of each process. RLIMIT_DATA counts memory that can be written to; RLIMIT_AS would also count what libraries of
    devices reserve and never touch."""
    for kind, limit in (
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["disk"]),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def kill(processes: list[int]) -> None:
    """First all stand still, so that none runs away while the others are killed."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def below(process: int) -> list[int]:
    """All processes that one started, and those they started, that have not ended."""
    children: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as stat:
                    state, parent = stat.read().rpartition(b")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(name))
                if state in (b"Z", b"X"):
                    dead.add(int(name))
    found, waiting = [], [process]
    while waiting:
        started = children.get(waiting.pop(), [])
        found += started
        waiting += started
    return [pid for pid in found if pid not in dead]


def state_of(pid: int) -> str:
    """R, S, T, …, as the kernel says it; X of one that is not there."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0].decode()
    return "X"


def resident(pid: int) -> int:
    """Bytes of memory of a process that belong to no file; shared memory counts."""
    return _kilobytes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def proportional(pid: int) -> int:
    """The same, where every page that several share is divided among them."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))


def _kilobytes(file: str, names: tuple[bytes, ...]) -> int:
    with suppress(OSError), open(file, "rb") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))
    return 0


def name_of(pid: int) -> str:
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
        return comm.read().strip()
    return "?"


def size_of(folder: str) -> tuple[int, int]:
    """Bytes and number of the files below a folder, as far as they can be counted."""
    size = count = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, file)).st_blocks * 512
            count += 1
        if count > MOST_FILES:
            break
    return size, count


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def adopt_orphans(whether: bool = True) -> None:
    """Become the parent of what the processes below this one leave behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0)


def main() -> None:
    adopt_orphans()
    signal.signal(signal.SIGTERM, _stop)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # whoever started us may be killed
    job = json.load(sys.stdin)
    os.write(sys.stdout.fileno(), json.dumps(Supervisor(job).run()).encode())


if __name__ == "__main__":
    main()
