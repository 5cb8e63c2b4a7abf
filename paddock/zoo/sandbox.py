"""Running a script that nobody has read: with limits, a clean environment, folders of its own, and nothing left behind.

It fences in carelessness, not malice: the script runs as the same user, and may read what that user may read and talk
to the network. What comes from strangers belongs into a container or a virtual machine as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from paddock.documents import Document, parse_document
from paddock.errors import DataError, MachineError

MARKER = "PADDOCK_ZOO_CASE"
"""A variable that marks what a case started, should its supervisor be killed."""
PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"),
)
"""All that a script gets of our environment: where programs and libraries are, and how many threads to use."""
OUTPUT = "output.txt"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
SHOWN_BYTES = 8_000


@dataclass(frozen=True)
class Limits:
    """What a case may use."""

    seconds: float = 600.0
    memory: int = 16 * 2**30
    """Bytes: of each process what it may write to, of all together what they really hold."""
    disk: int = 4 * 2**30
    """Bytes of a file, and of all that it writes in its folder."""
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
    output, mark = sandbox.with_name(OUTPUT), os.urandom(16).hex()
    environment = clean_environment(sandbox, variables) | {MARKER: mark}
    job = {
        "command": list(command),
        "folder": str(folder),
        "watched": str(sandbox),
        "output": str(output),
        "environment": environment,
        "limits": asdict(limits),
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(SUPERVISOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        text=True,
    )
    try:
        said, _ = process.communicate(json.dumps(job))
    except BaseException:
        process.terminate()  # it takes everybody along
        process.wait()
        raise
    finally:
        end_marked(mark)
    try:
        outcome = parse_document(said, Outcome, "the supervisor's report")
    except DataError:
        outcome = Outcome(status=None, ended="supervisor", left=[], seconds=0, memory=0, disk=0, printed=0)
    return outcome, end_of(output)


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


def end_marked(mark: str) -> None:
    """Kill what a case started and its supervisor, killed by it, could not end."""
    wanted = f"{MARKER}={mark}".encode()
    for _ in range(100):
        found = [name for name in os.listdir("/proc") if name.isdecimal() and _has_variable(name, wanted)]
        for name in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(name), signal.SIGKILL)
        if not found:
            return


def _has_variable(process: str, variable: bytes) -> bool:
    with suppress(OSError), open(f"/proc/{process}/environ", "rb") as environment:
        return variable in environment.read().split(b"\0")
    return False


def end_of(output: Path) -> str:
    """The last that was printed, without what would steer a terminal."""
    try:
        with open(output, "rb") as stream:
            stream.seek(max(0, output.stat().st_size - SHOWN_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text)
