"""Encoding chunks in worker processes, in the order of the input and in bounded memory.

Workers are spawned, not forked, and compute with one thread each, so `workers` is the number of cores in use. They
leave Ctrl-C to the parent, and end with it, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from paddock.data.preprocess.chunks import Chunk
from paddock.data.preprocess.encoding import ChunkEncoder, EncodedChunk
from paddock.data.preprocess.job import PreprocessJob
from paddock.errors import MachineError

Encode = Callable[[Iterable[Chunk]], Iterator[tuple[Chunk, EncodedChunk]]]


@contextmanager
def chunk_encoding(
    job: PreprocessJob, encoder: ChunkEncoder, in_place: bool, stopped: Callable[[], bool]
) -> Iterator[Encode]:
    """Yields a function that encodes chunks in their order: in this process, by `encoder`, or in several others."""
    if in_place:
        with _one_thread():
            yield lambda chunks: ((chunk, encoder(chunk)) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(job.workers, multiprocessing.get_context("spawn"), _begin, (job,))
    try:
        with _ignoring_interrupts():
            for _ in range(job.workers):
                pool.submit(_warm_up)
        yield lambda chunks: _in_order(pool, chunks, ahead=2 * job.workers)
    except BrokenProcessPool:
        if stopped():  # a signal to all of us
            raise KeyboardInterrupt from None
        raise MachineError(
            "a worker process ended unexpectedly",
            why="the system kills processes when memory runs out",
            fix="run the same command again, which continues; with fewer --workers, or more memory",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, chunks: Iterable[Chunk], ahead: int) -> Iterator[tuple[Chunk, EncodedChunk]]:
    under_way: deque[tuple[Chunk, Future[EncodedChunk]]] = deque()
    for chunk in chunks:
        under_way.append((chunk, pool.submit(_encode, chunk)))
        if len(under_way) > ahead:
            first, result = under_way.popleft()
            yield first, result.result()
    while under_way:
        first, result = under_way.popleft()
        yield first, result.result()


_encoder: ChunkEncoder


def _begin(job: PreprocessJob) -> None:
    """The first thing a worker does."""
    global _encoder
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    _encoder = ChunkEncoder(job)


def _warm_up() -> None:
    """A worker is started by the first thing that it is asked to do."""


def _encode(chunk: Chunk) -> EncodedChunk:
    return _encoder(chunk)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes that start meanwhile never hear of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # nobody else may say what a signal does
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep the tokenizer's own threads out of the way, as in a worker."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before
