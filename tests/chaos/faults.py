"""The kinds of faults: what each does to a run, and what may be asked of the run after it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import machinery
from machinery import MARK, Attempt

STEPS, EVERY = 20, 4
"""Steps of a run, and between its checkpoints."""
DISK = 64 << 20
"""Bytes: a disk with room enough."""


class Skipped(Exception):
    """This fault cannot be made here; the message says why."""


@dataclass
class Scene:
    """One fault, and the run that it meets."""

    number: int
    rng: Random
    processes: int
    folder: Path
    environment: dict[str, str]
    cannot_mount: str | None
    writes: dict[str, int]
    """Steps on the disk of an undisturbed run, by the process that takes them."""
    flags: list[str] = field(default_factory=list)
    """More arguments of the disturbed attempt."""
    prepare: Callable[[], None] = lambda: None
    """Done in the process that is to become the command."""
    command: list[str] = field(default_factory=list)
    """What the disturbed attempt runs."""
    said: str = ""
    """What the fault was, in words."""
    complaints: list[str] = field(default_factory=list)
    """What went wrong while it struck."""
    must_save: int = 0
    """The step that a checkpoint must have: the run was asked to stop, and had reported it."""
    may_die: bool = False
    """Whether a signal is a proper end."""
    _undo: list[Callable[[], None]] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def mounts(self) -> None:
        if self.cannot_mount is not None:
            raise Skipped(self.cannot_mount)

    def undo_by(self, action: Callable[[], None]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def reported(self) -> int:
        """The last step in the run's metrics."""
        try:
            content = (self.run_dir / "metrics.jsonl").read_bytes()
        except OSError:
            return 0
        return content.count(b'"train.loss": ')

    def wait_for_step(self, attempt: Attempt, step: int) -> None:
        while self.reported() < step and not attempt.is_over():
            time.sleep(0.001)


Fault = Callable[[Scene], Callable[[Attempt], None]]
"""Prepares a scene; what it returns strikes the attempt when it runs."""


def nothing(attempt: Attempt) -> None:
    """The fault was there from the beginning."""


def moment(scene: Scene) -> tuple[str, Callable[[Attempt], None]]:
    """Some point of a run: while it starts, at a step, or while it saves."""
    kind, part = scene.rng.choice(("start", "step", "step", "save", "save")), scene.rng.random()
    step = scene.rng.randrange(1, STEPS)
    if kind == "start":
        seconds = part * (1.5 if scene.processes == 1 else 6)
        return f"{seconds:.2f} s after its start", lambda attempt: time.sleep(seconds)
    if kind == "step":

        def at_step(attempt: Attempt) -> None:
            scene.wait_for_step(attempt, step)
            time.sleep(part * 0.02)

        return f"after step {step}", at_step
    saved = max(EVERY, step // EVERY * EVERY)
    partial = scene.run_dir / "checkpoints" / f".step-{saved:08d}.partial"

    def at_save(attempt: Attempt) -> None:
        scene.wait_for_step(attempt, saved - 1)
        while not partial.exists() and not attempt.is_over() and scene.reported() <= saved:
            pass
        time.sleep(part * 0.004)

    return f"while saving step {saved}", at_save


def kill(scene: Scene) -> Callable[[Attempt], None]:
    when, wait = moment(scene)
    scene.said, scene.may_die = f"SIGKILL to the launcher {when}", True

    def strike(attempt: Attempt) -> None:
        wait(attempt)
        attempt.signal(signal.SIGKILL)

    return strike


def kill_rank(scene: Scene) -> Callable[[Attempt], None]:
    scene.processes = 2
    when, wait = moment(scene)
    rank, number = scene.rng.randrange(2), scene.rng.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT))
    scene.said = f"{number.name} to rank {rank} {when}"

    def strike(attempt: Attempt) -> None:
        wait(attempt)
        while not attempt.is_over():
            ranks = attempt.ranks()
            if len(ranks) > rank:
                attempt.signal(number, ranks[rank])
                return
            time.sleep(0.01)

    return strike


def stop(number: signal.Signals) -> Fault:
    def fault(scene: Scene) -> Callable[[Attempt], None]:
        when, wait = moment(scene)
        whom = scene.rng.choice(("the launcher", "all")) if scene.processes > 1 else "it"
        scene.said, scene.may_die = f"{number.name} to {whom} {when}", True

        def strike(attempt: Attempt) -> None:
            wait(attempt)
            scene.must_save = scene.reported()
            ranks = attempt.ranks() if whom == "all" else []
            for pid in (attempt.pid, *ranks):
                attempt.signal(number, pid)

        return strike

    return fault


def kill_at_write(scene: Scene) -> Callable[[Attempt], None]:
    who = "launcher" if scene.processes == 1 else scene.rng.choice(("launcher", "0", "1"))
    step = scene.rng.randint(1, max(1, scene.writes[f"{scene.processes}/{who}"]))
    scene.said, scene.may_die = f"SIGKILL to {who} before step {step} on the disk", True
    scene.environment |= {"CHAOS_RANK": who, "CHAOS_STEP": str(step)}
    scene.prepare = watch_disk
    return nothing


def watch_disk() -> None:
    """In a process that is not begun anew, what Python runs first in others."""
    from sitecustomize import install

    install("launcher")


def pause(scene: Scene) -> Callable[[Attempt], None]:
    when, wait = moment(scene)
    scene.said = f"SIGSTOP and SIGCONT {when}"

    def strike(attempt: Attempt) -> None:
        wait(attempt)
        pids = scene.rng.sample(together, 1) if (together := [attempt.pid, *attempt.ranks()]) else []
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                attempt.signal(number, pid)
            time.sleep(0.5)

    return strike


def full_disk(scene: Scene) -> Callable[[Attempt], None]:
    scene.mounts()
    size = scene.rng.choice((8, 40, 200, 600, 1500, 2500, 4000)) << 10
    scene.said = f"a disk of {size >> 10} kB for the run"
    scene.run_dir.mkdir()
    machinery.mount_memory(scene.run_dir, size)
    scene.undo_by(lambda: machinery.resize_memory(scene.run_dir, DISK))
    return nothing


def full_temporary(scene: Scene) -> Callable[[Attempt], None]:
    scene.mounts()
    scene.processes = 2
    scene.said = "a disk of 4 kB for temporary files"
    place = Path(scene.environment["TMPDIR"])
    machinery.mount_memory(place, 4 << 10)
    scene.undo_by(lambda: machinery.unmount(place))
    return nothing


def file_limit(scene: Scene) -> Callable[[Attempt], None]:
    size = scene.rng.choice((20_000, 50_000, 100_000, 200_000, 400_000))
    scene.said = f"files of {size} bytes at most"

    def prepare() -> None:
        machinery.limit(resource.RLIMIT_FSIZE, size)

    scene.prepare = prepare
    return nothing


def read_only(scene: Scene) -> Callable[[Attempt], None]:
    scene.mounts()
    name = scene.rng.choice(("run", "run/checkpoints", "tmp", "cache"))
    place = {"tmp": Path(scene.environment["TMPDIR"]), "cache": Path(scene.environment["XDG_CACHE_HOME"])}.get(
        name, scene.folder / name
    )
    place.mkdir(parents=True, exist_ok=True)
    machinery.mount_read_only(place)
    scene.said = f"{name} is read-only"
    scene.undo_by(lambda: machinery.unmount(place))
    return nothing


def closed_streams(scene: Scene) -> Callable[[Attempt], None]:
    how = scene.rng.choice(("closed", "a pipe that nobody reads any more", "a full device"))
    which = scene.rng.choice(((1,), (2,), (1, 2), (0, 1, 2)))
    scene.said = f"streams {which}: {how}"

    def prepare() -> None:
        for number in which:
            if how == "closed":
                os.close(number)
            elif how == "a full device":
                os.dup2(os.open("/dev/full", os.O_RDWR), number)
            else:
                reader, writer = os.pipe()
                os.dup2(writer, number)
                os.close(writer)
                os.close(reader)

    scene.prepare = prepare
    return nothing


def few_descriptors(scene: Scene) -> Callable[[Attempt], None]:
    count = scene.rng.choice((6, 10, 14, 18, 24, 32, 48))
    scene.said = f"{count} file descriptors"

    def prepare() -> None:
        machinery.limit(resource.RLIMIT_NOFILE, count)

    scene.prepare = prepare
    return nothing


def little_memory(scene: Scene) -> Callable[[Attempt], None]:
    more = scene.rng.choice((1, 8, 30, 60, 120, 300)) << 20
    scene.said = f"{more >> 20} MB more address space"

    def prepare() -> None:
        machinery.limit(resource.RLIMIT_AS, machinery.address_space() + more)

    scene.prepare = prepare
    return nothing


def little_shared_memory(scene: Scene) -> Callable[[Attempt], None]:
    scene.mounts()
    size = scene.rng.choice((4, 16, 64)) << 10
    scene.said = f"/dev/shm of {size >> 10} kB, with loader workers"
    scene.flags = ["--data.workers", "2"]
    place = Path("/dev/shm")
    machinery.mount_memory(place, size)
    scene.undo_by(lambda: machinery.unmount(place))
    return nothing


def port_in_use(scene: Scene) -> Callable[[Attempt], None]:
    scene.processes = 2
    holder = socket.socket()
    holder.bind(("127.0.0.1" if scene.rng.random() < 0.5 else "0.0.0.0", 0))
    holder.listen(1)
    port = holder.getsockname()[1]
    scene.said = "the port that it is given is in use"
    scene.flags = ["--master-port", str(port)]
    scene.undo_by(holder.close)
    return nothing


def two_writers(scene: Scene) -> Callable[[Attempt], None]:
    step = scene.rng.randrange(1, STEPS - 4)
    scene.said = f"the same command again after step {step}"

    def strike(attempt: Attempt) -> None:
        scene.wait_for_step(attempt, step)
        second = Attempt(scene.command, scene.folder, {**scene.environment, MARK: f"{attempt.mark}-again"})
        attempt.signal(signal.SIGSTOP)  # so that it is still there when the second one looks
        ended = second.wait(120)
        attempt.signal(signal.SIGCONT)
        text = second.text()
        if not ended or second.code not in (2, 3) or "error: " not in text or str(attempt.pid) not in text:
            scene.complaints.append(f"a second writer ended with {second.code}: {text[-300:]}")

    return strike


def damage(scene: Scene) -> Callable[[Attempt], None]:
    """Something that no run survives: for trying whether a campaign sees it."""
    scene.said, scene.may_die = "SIGKILL, and a changed byte in every checkpoint", True

    def strike(attempt: Attempt) -> None:
        scene.wait_for_step(attempt, EVERY + 1)
        attempt.signal(signal.SIGKILL)
        attempt.wait(60)
        for file in scene.run_dir.glob("checkpoints/step-*/*.safetensors"):
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
        (Path(scene.environment["TMPDIR"]) / "left").touch()

    return strike


PLANTED: dict[str, Fault] = {"damage": damage}
KINDS: dict[str, Fault] = {
    "kill": kill,
    "kill_at_write": kill_at_write,
    "kill_rank": kill_rank,
    "term": stop(signal.SIGTERM),
    "interrupt": stop(signal.SIGINT),
    "hangup": stop(signal.SIGHUP),
    "pause": pause,
    "full_disk": full_disk,
    "full_temporary": full_temporary,
    "file_limit": file_limit,
    "read_only": read_only,
    "closed_streams": closed_streams,
    "few_descriptors": few_descriptors,
    "little_memory": little_memory,
    "little_shared_memory": little_shared_memory,
    "port_in_use": port_in_use,
    "two_writers": two_writers,
}
"""By their names; a campaign goes through them again and again."""
OF_SEVERAL = ("kill_rank", "full_temporary", "port_in_use")
"""Those that a run of one process cannot meet."""
