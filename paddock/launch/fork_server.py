"""A process that has imported what workers need, and forks them: `python -m paddock.launch.fork_server SOCKET`.

Importing torch takes a worker seconds of processor time, and a worker of a small job most of its life. Here it is done
once for all workers of a machine, while the launcher gets ready, and once for all jobs that a process launches. What is
imported touches no device, and starts no threads that a fork would miss, so a fork is as good as a new process; where
that is not so (a vendor's package that torch imports may do anything) workers are new programs, as ever. The launcher's
end of the socket is closed when it ends, however it ends; then the server ends its workers, and itself. It is deaf to
stop signals, which a cluster's scheduler sends to every process of a job: with the server its workers would go, and
what they have to save.

A request is a line of JSON (what to run, where, in which environment) behind its length, with the three standard
streams; answers are lines of JSON: {"pid": …}, {"error": …}, and when a worker has ended {"ended": pid, "code": …}.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from typing import Any, NoReturn, Protocol

from paddock.process import STOP_SIGNALS

IMPORTED = (
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "paddock.launch.worker",
    "paddock.training.run",
    "paddock.jobs.train",
    "paddock.jobs.evaluate",
)
"""What workers spend their first seconds on."""
READ_WHEN_LOADED = (
    "ATEN",
    "DNNL",
    "GOMP",
    "KMP",
    "LD_",
    "MALLOC",
    "MKL",
    "OMP",
    "ONEDNN",
    "OPENBLAS",
    "PYTHON",
    "TORCH",
)
"""How variables begin that libraries read when they are loaded: a server that was started with others does not do."""
HEADER = struct.Struct("!Q")
READ_WHEN_USED = ("TORCHELASTIC_", "TORCH_ELASTIC_")
"""The exceptions."""
SECONDS_BETWEEN_LOOKS = 1.0

_idle: list[ForkServer] = []
"""At most one, kept for the next job of this process."""


class ForkServer:
    """The launcher's side."""

    def __init__(self, options: Sequence[str] = (), module: str = __name__) -> None:
        """`module` is what it runs: this one, or another whose forks do something else than workers."""
        self.key = key(options)
        self.workers: dict[int, int | None] = {}
        """Exit codes by process id; None of those that run."""
        self._unread = b""
        self._socket, self._process = start(options, module)

    def fork(
        self,
        spec: str,
        environment: dict[str, str],
        stdout: int,
        stderr: int,
        stdin: int | None = None,
        folder: str | None = None,
    ) -> ForkedProcess:
        """Start a worker; where nothing else is said, with this process's standard input and folder."""
        request = {"spec": spec, "environment": environment, "folder": folder or os.getcwd()}
        body = json.dumps(request).encode()
        with open(os.devnull, "rb") as nothing:
            if stdin is None:
                stdin = 0 if _is_open(0) else nothing.fileno()
            try:
                socket.send_fds(self._socket, [HEADER.pack(len(body))], [stdin, stdout, stderr])
                self._socket.sendall(body)
                while "pid" not in (answer := self._answer()):
                    if "error" in answer:
                        raise OSError(answer["error"], os.strerror(answer["error"]))
            except (BrokenPipeError, ConnectionError) as error:
                raise OSError(f"the process that starts workers has gone (exit {self._process.wait()})") from error
        self.workers[answer["pid"]] = None
        return ForkedProcess(self, answer["pid"])

    def look(self) -> None:
        """Take note of the workers that have ended."""
        try:
            self._socket.setblocking(False)
            while True:
                self._answer()
        except BlockingIOError:
            return
        except ConnectionError:  # it was killed, and its workers with it
            for pid, code in self.workers.items():
                self.workers[pid] = -signal.SIGKILL if code is None else code
        finally:
            self._socket.setblocking(True)

    @property
    def is_idle(self) -> bool:
        """Whether it lives and has nobody to look after."""
        self.look()
        return self._process.poll() is None and None not in self.workers.values()

    def close(self) -> None:
        """End it, and with it the workers that still run."""
        self._socket.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        while b"\n" not in self._unread:
            some = self._socket.recv(65536)
            if not some:
                raise ConnectionResetError
            self._unread += some
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "ended" in answer:
            self.workers[answer["ended"]] = answer["code"]
        return answer


class ForkedProcess:
    """A worker, as far as the agent knows processes: the part of `subprocess.Popen` that it uses."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server

    @property
    def returncode(self) -> int | None:
        return self._server.workers[self.pid]

    def poll(self) -> int | None:
        if self.returncode is None:
            self._server.look()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Process(Protocol):
    """The part of `subprocess.Popen` that a server is known by."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


def start(options: Sequence[str], module: str) -> tuple[socket.socket, Process]:
    """A server's process, and the launcher's end of the socket to it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, *options, "-m", module, str(theirs.fileno())]
    with theirs, stop_signals_held():  # held, they are from its first moment on
        return ours, subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )


@contextmanager
def stop_signals_held() -> Iterator[None]:
    """Inside, they wait; a process that is started inside is deaf to them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def fork_server(options: Sequence[str] = ()) -> Iterator[ForkServer]:
    """One that starts workers in this process's environment: that of the last job, or a new one. It is kept for the
    next job."""
    server = None
    with _taking:
        if _idle and _idle[0].key == key(options) and _idle[0].is_idle:
            server = _idle.pop()
    server = server or ForkServer(options)
    try:
        yield server
    finally:
        with _taking:
            if not _idle:
                atexit.register(_close_idle, os.getpid())
            _idle.append(server)
            for other in _idle[:-1] if server.is_idle else list(_idle):
                _idle.remove(other)
                other.close()


_taking = threading.Lock()


def _close_idle(maker: int) -> None:
    while _idle and os.getpid() == maker:  # a fork of the launcher's has the list, and not the servers
        _idle.pop().close()


def key(options: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[Any, ...]:
    """Of a server in such an environment (this process's, if none is told): those with one key may stand for each
    other."""
    variables = os.environ if environment is None else environment
    read = {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_WHEN_LOADED) and not name.startswith(READ_WHEN_USED)
    }
    return (os.getpid(), *options, *sorted(read.items()))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def main() -> None:
    """The server's side. Returns in no process: in a worker, `paddock.launch.worker` does not."""
    program = [*sys.orig_argv[: sys.orig_argv.index("-m")], "-m", "paddock.launch.worker"]
    spec = import_and_serve(IMPORTED, lambda spec: [*program, spec, str(os.getppid())])
    work(spec)


def work(spec: str) -> NoReturn:
    """Be a worker, in a fork of the server."""
    from paddock.launch import worker

    worker.main(spec, str(os.getppid()))


def import_and_serve(modules: Sequence[str], program: Callable[[str], list[str]]) -> str:
    """Import modules, and fork for whoever is at the other end of the socket. Returns in forks alone: with what they
    are to do. Where no fork is as good as a new process, each becomes this program, which does it."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    parent = os.getppid()
    forkable = can_fork()
    for module in modules if forkable else ():
        importlib.import_module(module)
    forkable = forkable and _has_one_thread()
    gc.freeze()  # collections in workers would copy every page that holds an object of theirs
    spec = serve(connection, parent)
    if not forkable:
        command = program(spec)
        os.execv(command[0], command)
    return spec


def can_fork() -> bool:
    """Elsewhere the system's own libraries do not bear it, nor need the driver of a vendor whose package torch
    imports."""
    return sys.platform == "linux" and not entry_points(group="torch.backends")


def _has_one_thread() -> bool:
    """Whether a fork has all that this process has. Threads that their library ends before a fork and starts when they
    are needed (OpenBLAS does) are gone after the first one."""
    trial = os.fork()
    if not trial:
        os._exit(0)
    os.waitpid(trial, 0)
    return len(os.listdir("/proc/self/task")) == 1


def serve(connection: socket.socket, launcher: int) -> str:
    """Fork workers until the launcher has gone. Returns in workers alone: with what says what to do."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    workers: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(reading, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(SECONDS_BETWEEN_LOOKS)]
            if os.getppid() != launcher:
                _end(workers)
            if reading in ready:
                os.read(reading, 4096)
                for pid, code in _ended(workers):
                    _tell(connection, {"ended": pid, "code": code}, workers)
            if connection in ready:
                request, streams = _request(connection, workers)
                try:
                    pid = os.fork()
                except OSError as error:
                    _tell(connection, {"error": error.errno}, workers)
                else:
                    if not pid:
                        break
                    workers.add(pid)
                for stream in streams:
                    os.close(stream)
    signal.set_wakeup_fd(before)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(reading)
    os.close(writing)
    os.setsid()
    _tell(connection, {"pid": os.getpid()}, set())  # said here: the launcher may signal the group that it leads at once
    connection.close()
    _become(request, streams)
    return str(request["spec"])


def _request(connection: socket.socket, workers: set[int]) -> tuple[dict[str, Any], list[int]]:
    try:
        header, streams, *_ = socket.recv_fds(connection, HEADER.size, 3, socket.MSG_WAITALL)
        if not header:
            _end(workers)
        (length,) = HEADER.unpack(header)
        body = connection.recv(length, socket.MSG_WAITALL)
        while len(body) < length:
            more = connection.recv(length - len(body), socket.MSG_WAITALL)
            if not more:
                _end(workers)
            body += more
    except ConnectionError:
        _end(workers)
    return json.loads(body), list(streams)


def _ended(workers: set[int]) -> Iterator[tuple[int, int]]:
    for pid in list(workers):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            workers.discard(pid)
            yield pid, os.waitstatus_to_exitcode(status)


def _tell(connection: socket.socket, answer: dict[str, int | None], workers: set[int]) -> None:
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        _end(workers)


def _end(workers: set[int]) -> NoReturn:
    """The launcher has gone: nobody waits for the workers."""
    for pid in workers:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this fork what a new process would be."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if numpy := sys.modules.get("numpy"):  # Python's own generator has drawn a new seed already
        numpy.random.seed()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


if __name__ == "__main__":
    main()
