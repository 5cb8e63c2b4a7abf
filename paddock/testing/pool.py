"""Processes that are started once and then do one piece of distributed work after another.

    with ProcessPool(4) as pool:
        results = pool.run(function, 1, "two")        # function(rank, 1, "two") in every process; a list by rank

The processes are forked from one that has imported torch already, and stay joined in one gloo process group: a piece
of work begins at once. `function` stands at the top of any file, a test's too; arguments and results are pickled.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import importlib.util
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel

PATIENCE = 1500.0
"""Seconds that one piece of work may take before the pool gives it up."""
GRACE = 60.0
"""Seconds that the others get to say what they saw, once one process has failed."""
MANY_THREADS = 40
"""In a process. Every group that work made leaves some behind, which wake a hundred times a second for ever: with two
hundred of them, processes that wait for work take a tenth of a core each. Such a pool starts anew."""


class WorkFailed(RuntimeError):
    """A process of the pool raised; `errors` has the exception of every rank that did, `str` their stack traces."""

    def __init__(self, errors: dict[int, BaseException | None], traces: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}: {trace}" for rank, trace in sorted(traces.items())))
        self.errors = errors


class ProcessPool:
    """`size` processes in one process group. They start when first needed, and again after a failure."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, function: Callable[..., Any], *arguments: Any, patience: float = PATIENCE) -> list[Any]:
        """Call `function(rank, *arguments)` in every process, and give what each returned."""
        if not self._processes:
            self._start()
        place = (function.__code__.co_filename, function.__name__)
        for pipe in self._pipes:
            pipe.send((place, arguments, patience))
        results: dict[int, Any] = {}
        errors: dict[int, BaseException | None] = {}
        traces: dict[int, str] = {}
        deadline = time.monotonic() + patience
        while len(results) + len(traces) < self.size and time.monotonic() < deadline:
            silent = [rank for rank in range(self.size) if rank not in results and rank not in traces]
            ready = wait([self._pipes[rank] for rank in silent], deadline - time.monotonic())
            for rank in silent:
                if self._pipes[rank] not in ready:
                    continue
                try:
                    value, error, trace = self._pipes[rank].recv()
                except EOFError:
                    error, trace = None, "the process has gone"
                if trace is None:
                    results[rank] = value
                else:
                    errors[rank], traces[rank] = error, trace
                    deadline = min(deadline, time.monotonic() + GRACE)
        if len(results) < self.size:
            self.close()
            raise WorkFailed(errors, traces or {-1: f"no answer within {patience:.0f} s"})
        if _num_threads(self._processes[0].pid) > MANY_THREADS:
            self.close()
        return [results[rank] for rank in range(self.size)]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._folder = tempfile.TemporaryDirectory(prefix="paddock-pool-")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            # A file to meet in: unlike a port, nobody else can take it.
            process = context.Process(
                target=_serve, args=(theirs, rank, self.size, f"{self._folder.name}/store"), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_meeting: list[str] = []
"""Where this process of a pool has met the others."""


def another_meeting_place() -> str:
    """For a process of a pool: a file at which its processes can join another process group, once."""
    return f"{_meeting[0]}-again"


def _num_threads(pid: int | None) -> int:
    """Of a process; 1 where that cannot be told."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 1


def _serve(pipe: Connection, rank: int, size: int, meeting: str) -> None:
    """A process of the pool: does what comes through the pipe, until the pipe is closed."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    _meeting.append(meeting)
    torch.set_num_threads(1)
    gc.freeze()  # what was imported is not looked through again after every piece of work
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    while True:
        try:
            (file, name), arguments, patience = pipe.recv()
        except EOFError:
            os._exit(0)
        faulthandler.dump_traceback_later(patience, exit=True)
        try:
            answer: tuple[Any, BaseException | None, str | None]
            answer = (getattr(_module(file), name)(rank, *arguments), None, None)
        except BaseException as error:
            answer = (None, _portable(error), traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        pipe.send(answer)
        gc.collect()  # what the work left in circles holds process groups


@cache
def _module(file: str) -> ModuleType:
    """The module of a file, wherever it lies."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return module
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _portable(error: BaseException) -> BaseException | None:
    """The exception itself if it can be sent, else nothing."""
    try:
        pickle.dumps(error)
        copy.copy(error)  # made again from its parts, as the receiver will
    except Exception:
        return None
    return error
