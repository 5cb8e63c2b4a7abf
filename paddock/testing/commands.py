"""`paddock` commands as a user starts them, which begin at once: forks of a process that has imported what they need.

A program that imports torch takes two seconds of processor time for it, and its jobs as much again for a fork server;
tests start hundreds. Here both are forked. What is asked of a command whose libraries would be loaded otherwise
(`MKL_…`, `TORCH_…`), or where nothing can be forked, is a new program after all. Tests of the program itself, its first
moments, its limits and its closed streams start it with `subprocess`.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import json
import os
import pty
import runpy
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from paddock.cores import num_cores
from paddock.launch import fork_server

IMPORTED = (
    *fork_server.IMPORTED,
    "paddock.cli.train",
    "paddock.cli.evaluate",
    "paddock.cli.generate",
    "paddock.jobs.generate",
    "paddock.jobs.predict",
    "torch.distributed.elastic.agent.server.api",
)
SAFE_PATH = ["-P"]
"""The server has no folder of its own in its path; each command adds that in which it is started, as Python does."""
PATH, THREADS = "PYTHONPATH", "OMP_NUM_THREADS"
PROGRAM = [sys.executable, "-m", "paddock"]


class Process(Protocol):
    """The part of `subprocess.Popen` that all kinds of processes here have."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def send_signal(self, number: int) -> None: ...


def start(
    words: Sequence[str],
    streams: tuple[int, int, int],
    cwd: Path | None,
    environment: Mapping[str, str] | None,
    program: Path | None = None,
) -> Process:
    """`paddock`, or another program of Python's, with these words, standard streams and folder, in a session of its
    own."""
    variables = _share_of_cores() | dict(os.environ if environment is None else environment)
    server = _server()
    stdin, stdout, stderr = streams
    if server.key[1:] != _key(variables, SAFE_PATH):
        return subprocess.Popen(
            _command(program, words),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
    spec = json.dumps([None if program is None else str(program), *words])
    return server.fork(spec, variables, stdout, stderr, stdin, str(cwd or os.getcwd()))


def _command(program: str | Path | None, words: Sequence[str]) -> list[str]:
    return [*(PROGRAM if program is None else [sys.executable, str(program)]), *words]


def _share_of_cores() -> dict[str, str]:
    """Of a command that runs beside other tests: threads that wait for a core, and for each other, are slower than
    one alone. What else the machine does has no say: neither numbers nor what is said depend on it."""
    beside = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return {THREADS: str(max(1, num_cores() // int(beside)))}


def _key(variables: Mapping[str, str], options: Sequence[str] = ()) -> tuple[object, ...]:
    """Of the server that is needed in such an environment, but for what a fork catches up with."""
    asked = {name: value for name, value in variables.items() if name != PATH}
    if asked.get(THREADS, "").isdecimal():
        del asked[THREADS]
    return fork_server.key(options, asked)[1:]


def _catch_up() -> None:
    """Do in a fork what Python and torch do with the environment when they are loaded."""
    import torch

    sys.path[:0] = [folder for folder in os.environ.get(PATH, "").split(os.pathsep) if folder not in ("", *sys.path)]
    if (threads := os.environ.get(THREADS, "")).isdecimal():
        torch.set_num_threads(int(threads))


_servers: list[fork_server.ForkServer] = []


def _server() -> fork_server.ForkServer:
    """This process's; it starts when it is first asked for."""
    if _servers and _servers[0].key[0] != os.getpid():  # ours was forked, too
        _servers.clear()
    if not _servers:
        threads = os.environ.pop(THREADS, None)
        _servers.append(fork_server.ForkServer(SAFE_PATH, __name__))
        if threads is not None:
            os.environ[THREADS] = threads
        atexit.register(_servers[0].close)
    return _servers[0]


class Command:
    """A command that runs: as much of `subprocess.Popen` as tests use. Its output is text."""

    def __init__(
        self,
        *words: str,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        merged: bool = False,
        program: Path | None = None,
    ) -> None:
        """`merged` lets it write its errors to its output; `program` is a file to run in place of `paddock`."""
        (ours, output), (also_ours, errors) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), output, output if merged else errors)
            self._process = start(words, streams, cwd, environment, program)
        os.close(output)
        os.close(errors)
        self.stdout: IO[str] = open(ours, encoding="utf-8")  # noqa: SIM115
        self.stderr: IO[str] = open(also_ours, encoding="utf-8")  # noqa: SIM115
        self.pid = self._process.pid
        self._said: tuple[str, str] | None = None
        self.poll, self.wait, self.send_signal = self._process.poll, self._process.wait, self._process.send_signal

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def communicate(self) -> tuple[str, str]:
        """All that it writes, to its end."""
        if self._said is None:
            errors: list[str] = []
            reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
            reader.start()
            output = self.stdout.read()
            reader.join()
            self._said = output, errors[0]
        self.wait()
        return self._said

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()


def paddock(*words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with Command(*words, cwd=cwd, environment=os.environ | variables) as command:
        output, errors = command.communicate()
    return subprocess.CompletedProcess([*PROGRAM, *words], command.wait(), output, errors)


WISHES = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")
"""What whoever runs this may have asked of his own terminal."""


class AtTerminal:
    """A `paddock` command at a terminal of its own: iterating gives what it writes there, as it comes, to its end;
    then `code` is what it ended with."""

    def __init__(
        self, words: Sequence[str], columns: int, rows: int = 40, cwd: Path | None = None, **variables: str
    ) -> None:
        self._words, self._size = words, (rows, columns, 0, 0)
        environment = {name: value for name, value in os.environ.items() if name not in WISHES}
        self._cwd, self._environment = cwd, environment | {"TERM": "xterm-256color"} | variables
        self.code: int | None = None

    def __iter__(self) -> Iterator[bytes]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size))
        process = start(self._words, (slave, slave, slave), self._cwd, self._environment)
        os.close(slave)
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # nobody writes any more
                break
            if not piece:
                break
            yield piece
        os.close(master)
        self.code = process.wait()


def main() -> None:
    """The server's side. Returns in forks alone, when the command is done."""
    request = fork_server.import_and_serve(IMPORTED, lambda spec: _command((ours := json.loads(spec))[0], ours[1:]))
    fork_server.start = _Spare().start
    _catch_up()
    program, *words = json.loads(request)
    sys.argv, sys.orig_argv = [program or "paddock", *words], _command(program, words)
    sys.path.insert(0, os.path.dirname(program) if program else os.getcwd())
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    if program:
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module("paddock", run_name="__main__", alter_sys=True)


def _stream(number: int, mode: str) -> io.TextIOWrapper:
    """A standard stream, as Python opens it."""
    buffering = 1 if number == 2 or os.isatty(number) else -1
    errors = "backslashreplace" if number == 2 else "strict"
    return open(number, mode, buffering=buffering, encoding="utf-8", errors=errors, closefd=False)  # type: ignore[return-value]


class _Spare:
    """A fork server for the jobs that a command may have, forked before the command does anything. It takes no room:
    what has been imported is there once."""

    def __init__(self) -> None:
        self._start = fork_server.start
        self._key = _key(os.environ)
        self._socket, theirs = socket.socketpair()
        self._code: int | None = None
        launcher = os.getpid()
        with theirs, fork_server.stop_signals_held():
            self.pid = os.fork()
            if not self.pid:
                self._socket.close()
                os.setsid()
                spec = fork_server.serve(theirs, launcher)
                _catch_up()
                fork_server.work(spec)

    def start(self, options: Sequence[str], module: str) -> tuple[socket.socket, fork_server.Process]:
        """In place of the function of that name: once, and where the server would be loaded alike."""
        fork_server.start = self._start
        if _key(os.environ) != self._key or not fork_server.can_fork():
            return self._start(options, module)
        return self._socket, self

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def _wait(self, how: int) -> int | None:
        if self._code is None:
            found, status = os.waitpid(self.pid, how)
            if found:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


if __name__ == "__main__":
    main()
