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
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAPBSET_DROP = 1, 36, 24  # <linux/prctl.h>
LOOKING = (19, 38, 21, 8)
"""CAP_SYS_PTRACE, CAP_PERFMON and CAP_SYS_ADMIN, by which root reads the memory and the environment of every process;
and CAP_SETPCAP, so that whoever has it has more than the script."""
LOOK, LOOK_AT_DISK = 0.05, 0.5
"""Seconds between two looks at the processes, and at the folder, which takes longer."""
LAST_EFFORT = 20.0
"""Seconds after which a process that survives its own kill is left to the kernel."""
MOST_FILES = 200_000
SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked at, not written to
"""Folders that everybody may write to."""


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
        self.before = {entry.path for entry in in_shared_folders()}
        self.given = size_of(job["watched"])[0]

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
        if self.too_much_written([]) and self.ended is None and self.status == 0:  # since the last look
            self.ended = "disk"
        return {
            "status": self.status,
            "ended": self.ended,
            "left": self.left,
            "seconds": time.monotonic() - self.begin,
            "memory": self.memory,
            "disk": self.disk,
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
            look_at_nobody()
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
            is_too_much = self.too_much_written(mine)
            self.disk_at = time.monotonic()
            return "disk" if is_too_much else None
        return None

    def too_much_written(self, mine: list[int]) -> bool:
        """Whether a script has written more than it may: what its folder holds, what went to disks, wherever they are,
        and what is held in memory in the folders that everybody shares."""
        size, files = size_of(self.job["watched"])
        told = [written("self"), *map(written, mine)]  # ours has what those wrote that have ended
        to_disks, to_anything = (sum(numbers) - self.printed for numbers in zip(*told, strict=True))
        if self.given + to_anything > self.limits["disk"]:
            # Others of this user write there, too: no more of it is the script's than it has written to anything.
            shared = sum(size_of(path)[0] for path in self.new_in_shared_folders()) + unnamed(mine)
            size += min(shared, max(to_anything - (size - self.given), 0))
        self.disk = max(self.disk, size, to_disks)
        return self.disk > self.limits["disk"] or files > MOST_FILES

    def new_in_shared_folders(self) -> Iterator[str]:
        """What this user has made there since the beginning; our own folder may be in one of them."""
        for entry in in_shared_folders():
            is_known = entry.path in self.before or self.job["watched"].startswith(entry.path + os.sep)
            with suppress(OSError):
                if not is_known and not entry.is_symlink() and entry.stat().st_uid == os.getuid():
                    yield entry.path

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


def look_at_nobody() -> None:
    """Give up, for this process and all that it starts, what lets root look into others. Of another user than root the
    kernel refuses it, and there is nothing to give up."""
    for capability in LOOKING:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


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
                with open(f"/proc/{name}/stat", "rb") as stream:
                    state, parent = stream.read().rpartition(b")")[2].split()[:2]
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
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stream:
        return stream.read().rpartition(b")")[2].split()[0].decode()
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


def written(process: int | str) -> tuple[int, int]:
    """Bytes that a process and its ended children have written to disks, and to anything: memory, pipes, networks."""
    with suppress(OSError, ValueError), open(f"/proc/{process}/io", "rb") as lines:
        told = {name: int(number) for name, _, number in (line.partition(b":") for line in lines)}
        return told[b"write_bytes"] - told[b"cancelled_write_bytes"], told[b"wchar"]
    return 0, 0


def unnamed(processes: list[int]) -> int:
    """Bytes of the files that processes have open and that have no name any more."""
    sizes = {}
    for pid in processes:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    file = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                        sizes[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(sizes.values())


def in_shared_folders() -> Iterator[os.DirEntry[str]]:
    for folder in SHARED:
        with suppress(OSError), os.scandir(folder) as entries:
            yield from entries


def size_of(path: str) -> tuple[int, int]:
    """Bytes and number of a file, or of the files below a folder, as far as they can be counted."""
    size = count = 0
    with suppress(OSError):
        size = os.lstat(path).st_blocks * 512
    for place, _, files in os.walk(path):
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
