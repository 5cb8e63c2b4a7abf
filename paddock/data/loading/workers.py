"""Worker processes that read batches, through torch's DataLoader: how they start, hear signals, fail and end.

They come from a fork server, which is a fresh process: a fork of one that trains would copy locks of gloo's and
OpenMP's threads. Ctrl-C, SIGTERM and a closed terminal reach everybody in it or in a job, and mean "finish this step
and save", so a worker blocks them. It ends when it is told to, or when the process that it works for is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import popen_forkserver, resource_tracker, spawn
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.queues import Queue
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from paddock.errors import DataError, MachineError, UserError

Batch = dict[str, Tensor]

BLOCKED_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at for its free space, never written to by name
ALIGNMENT = 64
"""Bytes: tensors begin at multiples of this."""


@dataclass(frozen=True)
class BatchReader:
    """`reader[part]` is the batch of the samples with these numbers."""

    samples: Any
    collate: Callable[[list[Any]], Batch]

    def __getitem__(self, part: Sequence[int]) -> Batch:
        return self.collate([self.samples[index] for index in part])


class WorkerTraceback(Exception):
    """The traceback of a worker's error, as text: the cause of the error that is raised here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class PackedBatch:
    """A batch on its way from a worker, as one block of shared memory: each block costs a descriptor and a message."""

    content: Tensor
    layout: list[tuple[str, torch.dtype, tuple[int, ...], slice]]
    """Of every tensor: its name, type and shape, and its bytes in `content`."""

    @staticmethod
    def pack(batch: Batch) -> PackedBatch:
        layout, end = [], 0
        for name, tensor in batch.items():
            layout.append((name, tensor.dtype, tuple(tensor.shape), slice(end, end + tensor.nbytes)))
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        content = torch.empty(end, dtype=torch.uint8)
        for name, _, _, place in layout:
            content[place] = batch[name].reshape(-1).view(torch.uint8)
        return PackedBatch(content, layout)

    def unpack(self) -> Batch:
        """The batch in memory of its own, so that the block is free at once."""
        content = torch.from_numpy(self.content.numpy().copy())  # a clone would wake torch's computing threads
        return {name: content[place].view(dtype).view(shape) for name, dtype, shape, place in self.layout}


@dataclass(frozen=True)
class WorkerFailure:
    """An error on its way from a worker."""

    error: UserError
    trace: str


class WorkerBatches(Iterator[Batch]):
    """The batches of `parts`, in their order. Workers start with the first one that is asked for."""

    def __init__(self, reader: BatchReader, parts: Iterator[Sequence[int]], workers: int) -> None:
        context = _WorkerContext()
        context.set_forkserver_preload([__name__])
        self._loader: DataLoader[PackedBatch | WorkerFailure] = DataLoader(
            _Reporting(reader),
            sampler=parts,
            batch_size=None,
            num_workers=workers,
            collate_fn=_identity,
            worker_init_fn=_init_worker,
            multiprocessing_context=context,
            generator=torch.Generator(),  # the global one belongs to the training step
        )
        self._running: Any = None

    def __next__(self) -> Batch:
        try:
            if self._running is None:
                self._running = self._start()
            packed = next(self._running)
        except StopIteration:
            raise
        except Exception as error:
            dead = self._dead()
            if not dead:
                raise
            if any(worker.exitcode == -signal.SIGBUS for worker in self._running._workers):
                raise _cannot_hand_over("it was killed by SIGBUS") from error
            raise DataError(
                " and ".join(dead),
                why="samples are read by data.workers processes, and the run needs all of them",
                fix="look above for its own last words; if memory ran out (SIGKILL), set fewer --data.workers",
            ) from error
        if isinstance(packed, WorkerFailure):
            raise packed.error from WorkerTraceback(packed.trace)
        return packed.unpack()

    def close(self) -> None:
        """End the workers; the idle ones at once, one that does not answer by force."""
        if self._running is None:
            return
        self._running._shutdown_workers()  # what the iterator's own __del__ calls, but now
        for worker in self._running._workers:
            worker.kill()
            worker.join()

    def _start(self) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
        try:  # the new processes inherit the mask, so it holds from the first moment
            resource_tracker.ensure_running()  # which lets some of them through again, here
            signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
            return iter(self._loader)
        except OSError as error:
            _abandon(error)
            raise MachineError(
                "loader workers cannot be started",
                why=str(error),
                fix=f"if {SHARED_MEMORY} is full, make it larger (docker run --shm-size 1g …); "
                "or read without workers: --data.workers 0",
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _dead(self) -> list[str]:
        """The workers that are no more, and how they ended."""
        workers = self._running._workers if self._running is not None else []
        wait([worker.sentinel for worker in workers], timeout=1)
        return [_describe_exit(worker.pid, worker.exitcode) for worker in workers if worker.exitcode is not None]


def _abandon(error: OSError) -> None:
    """End what an iterator had started when its making failed, and let it go in silence: its own end would miss what it
    never had, and say so whenever it happens to be forgotten."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        half_made: Any = frame.f_locals.get("self")
        if hasattr(half_made, "_shutdown_workers"):
            half_made._shutdown = True
            for worker in getattr(half_made, "_workers", []):
                worker.kill()


class _Reporting(Dataset[PackedBatch | WorkerFailure]):
    """A reader whose errors are results: the DataLoader would turn them into other errors."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __getitem__(self, part: Sequence[int]) -> PackedBatch | WorkerFailure:
        try:
            return PackedBatch.pack(self._reader[part])
        except UserError as error:
            return WorkerFailure(error, traceback.format_exc())
        except Exception as error:
            what = f"samples {part[0]} to {part[-1]} cannot be read"
            return WorkerFailure(DataError(what, why=f"{type(error).__name__}: {error}"), traceback.format_exc())


def _preparation_data(name: str) -> dict[str, Any]:
    """What multiprocessing tells a new process of this one, but for where the main module is."""
    everything = spawn.get_preparation_data(name)
    return {key: value for key, value in everything.items() if not key.startswith("init_main_")}


class _WorkerStart(popen_forkserver.Popen):
    """A start that leaves the main module out.

    multiprocessing makes it anew in every process, by running the user's script: the one that trains. A worker needs
    nothing that is in there, and multiprocessing has no way to say so. So its own start runs here with another
    `get_preparation_data`, in this class only: what the rest of the process sees stays as it is.
    """

    _launch = FunctionType(
        popen_forkserver.Popen._launch.__code__,  # type: ignore[attr-defined]
        {**vars(popen_forkserver), "spawn": SimpleNamespace(get_preparation_data=_preparation_data)},
    )


class _WorkerProcess(ForkServerProcess):
    @staticmethod
    def _Popen(process: Any) -> Any:
        return _WorkerStart(process)


class _ReportingQueue(Queue):
    """A queue whose thread, if it cannot send a batch, sends word of that: it would only print a traceback, and the
    reader wait for ever."""

    def _on_queue_feeder_error(self, error: Exception, sent: Any) -> None:
        number, content = sent  # as torch's DataLoader sends them
        size = content.content.nbytes if isinstance(content, PackedBatch) else None
        self.put((number, WorkerFailure(_cannot_hand_over(error, size), traceback.format_exc())))


def _cannot_hand_over(error: Exception | str, size: int | None = None) -> MachineError:
    free = shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else None
    sizes = [f"a batch of {size} bytes"] if size else []
    sizes += [f"{free} bytes are free in {SHARED_MEMORY}"] if free is not None else []
    return MachineError(
        "a loader worker could not hand over a batch in shared memory",
        why="; ".join([str(error).splitlines()[0], *sizes]),
        fix=f"make {SHARED_MEMORY} larger (docker run --shm-size 1g …), or read without workers: --data.workers 0",
    )


class _WorkerContext(ForkServerContext):
    Process = _WorkerProcess

    def Queue(self, maxsize: int = 0) -> Any:
        return _ReportingQueue(maxsize, ctx=self.get_context())


def _init_worker(worker: int) -> None:
    """What a worker does first."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.setswitchinterval(0.0002)  # a batch is handed over by another thread, which else waits 5 ms for its turns


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _identity(packed: Any) -> Any:
    return packed


def _describe_exit(pid: int, exit_code: int) -> str:
    how = f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"loader worker {pid} {how}"
