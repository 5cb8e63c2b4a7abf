"""Running a script that nobody has read: with limits, a clean environment, folders of its own, and nothing left behind.

It fences in carelessness, not malice: the script runs as the same user, and may read what that user may read and talk
to the network. What comes from strangers belongs into a container or a virtual machine as well.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from paddock.documents import Document, parse_document
from paddock.errors import DataError, MachineError
from paddock.zoo import supervisor
from paddock.zoo.supervisor import adopt_orphans, below, kill, state_of

PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"),
)
"""All that a script gets of our environment: where programs and libraries are, and how many threads to use."""
OUTPUT = "output.txt"
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4  # <linux/prctl.h>
LOOK, MARGIN = 0.5, 60.0
"""Seconds between two looks at a supervisor, and that it may take beyond the time that its script has."""
SHOWN_BYTES = 8_000


def default_memory() -> int:
    """16 GiB, or four fifths of what the machine has: a check must not take the machine down."""
    return min(16 * 2**30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5)


@dataclass(frozen=True)
class Limits:
    """What a case may use."""

    seconds: float = 600.0
    memory: int = field(default_factory=default_memory)
    """Bytes: of each process what it may write to, of all together what they really hold."""
    disk: int = 4 * 2**30
    """Bytes of a file, and of all that it writes, in its folder or elsewhere."""
    output: int = 16 * 2**20
    """Bytes that it may print."""
    processes: int = 256
    grace: float = 5.0
    """Seconds in which processes that it started may follow it when it ends."""


class Outcome(Document):
    """How it ended."""

    status: int | None
    """Its exit status; negative is the number of the signal that ended it."""
    ended: Literal["time", "memory", "disk", "output", "processes", "stopped", "supervisor"] | None
    """The limit that it passed."""
    left: list[str]
    """Names of processes that it left running."""
    seconds: float
    memory: int
    disk: int
    printed: int


def run_in_sandbox(
    command: Sequence[str], folder: Path, sandbox: Path, limits: Limits, variables: Iterable[str] = ()
) -> tuple[Outcome, str]:
    """Run a command in `folder`, which lies in `sandbox`; returns how it ended, and the end of what it printed, all of
    which is kept beside the sandbox.

    `variables` are names of our environment that it gets besides.
    """
    if not os.path.isdir("/proc/self"):
        raise MachineError("cases are run on Linux only", fix="--static looks at the files alone")
    output = sandbox.with_name(OUTPUT)
    environment = clean_environment(sandbox, variables)
    job = {
        "command": list(command),
        "folder": str(folder),
        "watched": str(sandbox),
        "output": str(output),
        "environment": environment,
        "limits": asdict(limits),
    }
    with closed_to_others():
        said = _supervised(json.dumps(job), environment, limits)
    try:
        outcome = parse_document(said, Outcome, "the supervisor's report")
    except DataError:
        outcome = Outcome(status=None, ended="supervisor", left=[], seconds=0, memory=0, disk=0, printed=0)
    return outcome, end_of(output)


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Inside, no other process of this user may look into this one: its memory, and in `/proc` the environment that it
    was started with. Root may; the supervisor sees to that (`look_at_nobody`)."""
    kernel = ctypes.CDLL(None)
    before = kernel.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    kernel.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        if before == 1:  # nothing else can be asked for
            kernel.prctl(PR_SET_DUMPABLE, before, 0, 0, 0)


def _supervised(job: str, environment: dict[str, str], limits: Limits) -> str:
    """What the supervisor of a job reports: nothing, if the script has killed or stopped it. Then whatever it watched
    comes to us, and is ended here."""
    ours, is_over = set(below(os.getpid())), False
    adopt_orphans()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        text=True,
    )
    try:
        said = _report_of(process, job, time.monotonic() + limits.seconds + limits.grace + MARGIN)
        is_over = process.returncode == 0
        return said
    except BaseException:
        process.terminate()  # it takes everybody along
        with suppress(subprocess.TimeoutExpired):
            process.wait(MARGIN)
        raise
    finally:
        while not is_over and (orphans := [pid for pid in below(os.getpid()) if pid not in ours]):
            kill(orphans)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0) if pid != process.pid else process.wait()
        adopt_orphans(False)


def _report_of(process: subprocess.Popen[str], job: str | None, deadline: float) -> str:
    """What a supervisor says at its end; nothing, if it stands still."""
    while True:
        try:
            return process.communicate(job, timeout=LOOK)[0]
        except subprocess.TimeoutExpired:
            job = None  # it has it
            if state_of(process.pid) == "T" or time.monotonic() > deadline:
                return ""


def clean_environment(sandbox: Path, variables: Iterable[str]) -> dict[str, str]:
    """What a script finds: no secrets, a home and a temporary folder of its own, and this Python first."""
    environment = {name: os.environ[name] for name in (*PASSED_ON, *variables) if name in os.environ}
    programs = os.path.dirname(sys.executable)
    environment["PATH"] = os.pathsep.join([programs, environment.get("PATH", os.defpath)])
    environment.setdefault("LANG", "C.UTF-8")
    for name, folder in (("HOME", "home"), ("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "cache")):
        (sandbox / folder).mkdir(exist_ok=True)
        environment[name] = str(sandbox / folder)
    return environment | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def end_of(output: Path) -> str:
    """The last that was printed, without what would steer a terminal."""
    try:
        with open(output, "rb") as stream:
            stream.seek(max(0, output.stat().st_size - SHOWN_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text)
