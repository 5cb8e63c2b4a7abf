"""What a fault needs of the machine: mounts and a network that nobody else sees, and commands in processes of their
own."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MARK = "CHAOS_MARK"
"""The variable by which every process of an attempt is known."""
_NEW_MOUNTS, _NEW_NAMES, _NEW_USER, _NEW_NETWORK = 0x20000, 0x4000000, 0x10000000, 0x40000000
_NAMESPACES = Path("/run/netns")
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_LISTENS, _IS_CONNECTED = "0A", "01"
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 1, 32, 4096, 16384, 1 << 18, 2
_libc = ctypes.CDLL(None, use_errno=True)


class CannotMount(Exception):
    """This machine lets nobody mount anything; the reason is the message."""


def isolate() -> str | None:
    """Give this process mounts and a loopback of its own, before it has threads; returns why it cannot have them."""
    user, group = os.getuid(), os.getgid()
    try:
        if user == 0:
            _call("unshare", _NEW_MOUNTS | _NEW_NETWORK)
        else:
            _call("unshare", _NEW_MOUNTS | _NEW_NETWORK | _NEW_USER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        _call("mount", b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
        mount_memory(Path("/dev/shm"), None)  # what runs leave there is theirs
        with suppress(OSError):  # names of networks that only this process sees, and that go with it
            _NAMESPACES.mkdir(exist_ok=True)
            mount_memory(_NAMESPACES, None)
        set_loopback(up=True)
    except OSError as error:
        return f"no mounts of its own: {error.strerror}"
    return None


def enter_host(namespace: str, name: str) -> None:
    """Let this process be on another machine, as far as the network is concerned."""
    place = os.open(_NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
    _call("setns", place, _NEW_NETWORK)
    os.close(place)
    _call("unshare", _NEW_NAMES)
    socket.sethostname(name)


def set_loopback(*, up: bool) -> None:
    """Begin the loopback interface of this network, or cut it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        name = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(asked, _GET_FLAGS, name), 16)[0]
        fcntl.ioctl(asked, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP if up else flags & ~_UP))


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_sockets() -> list[str]:
    """The sockets of this network that somebody listens at, or that lead to somebody."""
    found = []
    for protocol in ("tcp", "tcp6"):
        lines = Path(f"/proc/self/net/{protocol}").read_text().splitlines()[1:]
        words = [line.split() for line in lines]
        found += [f"{protocol} {place[1]}" for place in words if place[3] in (_LISTENS, _IS_CONNECTED)]
    return found


def mount_memory(place: Path, size: int | None) -> None:
    """A disk of `size` bytes, in memory."""
    _call("mount", b"none", os.fsencode(place), b"tmpfs", 0, None if size is None else f"size={size}".encode())


def resize_memory(place: Path, size: int) -> None:
    """Make room on such a disk."""
    _call("mount", b"none", os.fsencode(place), b"tmpfs", _REMOUNT, f"size={size}".encode())


def leave_room(place: Path, room: int) -> None:
    """Make such a disk so small that `room` bytes of it are free, while somebody may be writing."""
    while True:
        disk = os.statvfs(place)
        try:
            resize_memory(place, (disk.f_blocks - disk.f_bfree) * disk.f_frsize + room)
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # it has become fuller meanwhile
                raise


def mount_read_only(place: Path) -> None:
    """The same folder, in which nobody can write: permissions would not keep root out."""
    _call("mount", os.fsencode(place), os.fsencode(place), None, _BIND, None)
    _call("mount", b"none", os.fsencode(place), None, _BIND | _REMOUNT | _READ_ONLY, None)


def unmount(place: Path) -> None:
    with suppress(OSError):
        _call("umount2", os.fsencode(place), _DETACH)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Attempt:
    """A `paddock` command in a process of its own, which begins as a copy of this one: the libraries are there."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.output = folder / f"output-{len(list(folder.glob('output-*')))}.txt"
        self.mark = environment[MARK]
        self.code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            self._become(arguments, folder, environment, prepare)

    def _become(
        self, arguments: Sequence[str], folder: Path, environment: dict[str, str], prepare: Callable[[], None]
    ) -> None:
        code = 1  # as Python ends when nobody catches an error
        try:
            os.setsid()
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            streams = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            for number, target in ((null, 0), (streams, 1), (streams, 2)):
                os.dup2(number, target)
            os.closerange(3, 256)
            sys.argv = ["paddock", *arguments]
            prepare()
            code = _run_command(list(arguments))
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code & 0xFF)

    def signal(self, number: int, pid: int | None = None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid or self.pid, number)

    def is_over(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self, patience: float) -> bool:
        """Until it ends; False, and it is killed with all that it started, if that takes too long."""
        deadline = time.monotonic() + patience
        while not self.is_over():
            if time.monotonic() > deadline:
                for pid in [self.pid, *self.processes()]:
                    self.signal(signal.SIGKILL, pid)
                while not self.is_over():
                    time.sleep(0.05)
                return False
            time.sleep(0.01)
        return True

    def processes(self) -> list[int]:
        """Those of it that are still there, known by their variables or, if they were only forked, their session."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [
            pid
            for pid in pids
            if (_stat(pid)[3] == str(self.pid) or _environment(pid).get(MARK) == self.mark) and not _is_dead(pid)
        ]

    def ranks(self) -> list[int]:
        """The process ids of the ranks that it started, the first rank first: a server forks one after the other."""
        servers = self.children_of("paddock.launch.fork_server")
        return sorted(pid for pid in self.processes() if _parent(pid) in servers)

    def children_of(self, module: str) -> list[int]:
        """Programs of ours that it has started."""
        return [pid for pid in self.processes() if _parent(pid) == self.pid and module in _command(pid)]

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""


def _run_command(arguments: list[str]) -> int:
    """As `python -m paddock` does, to its end."""
    import atexit

    from paddock.cli.main import main

    try:
        main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    else:
        code = 0
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody listens any more
        pass
    return code


def limit(kind: int, value: int) -> None:
    """Set a limit of this process and of those that it starts."""
    resource.setrlimit(kind, (value, value))


def address_space() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _environment(pid: int) -> dict[str, str]:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.partition(b"=") for part in content.split(b"\0"))
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0", "0", "0"]


def _is_dead(pid: int) -> bool:
    return _stat(pid)[0] in "ZX"


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])
