"""What a model puts out for the rows of a batch, without gradients; on a CPU every core takes rows of its own.

Where cores share each operation they wait for each other after every one of them, and whoever disturbs one disturbs
all. With rows of their own they wait once.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch
from torch import Tensor, nn

from paddock.devices import adapter_of

WORTHWHILE = 256
"""The least that a core's rows count together, in tokens or pixels: each core reads all the weights."""


def outputs_of(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The model's outputs, in the order of the rows; `batch` lies where the model does."""
    first = next(iter(batch.values()))
    cores = torch.get_num_threads() if adapter_of(first.device).computes_on_host else 1
    if cores == 1 or len(first) % cores or first.numel() < cores * WORTHWHILE:
        return _outputs(model, batch)
    parts = zip(*(tensor.chunk(cores) for tensor in batch.values()), strict=True)
    looks = [_workers(cores).submit(_outputs, model, dict(zip(batch, part, strict=True))) for part in parts]
    return torch.cat([look.result() for look in looks])


def _outputs(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(**batch)
    return found


@cache
def _workers(cores: int) -> ThreadPoolExecutor:
    """A thread for each core, that computes on this one alone.

    torch has no way to say that of one thread: `set_num_threads` sets the number of the thread that calls it, and the
    one that threads take over at their first operation. So all of them begin here together, once, and the number for
    others is put back before anything is computed. Threads that have computed before keep theirs throughout.
    """
    started = Barrier(cores + 1)

    def begin() -> None:
        torch.get_num_threads()  # else torch would look up the number for all threads at this one's first operation
        torch.set_num_threads(1)  # of this thread, and of those that start after it
        started.wait()

    workers = ThreadPoolExecutor(cores, thread_name_prefix="rows", initializer=begin)
    for _ in range(cores):
        workers.submit(int)
    started.wait()
    torch.set_num_threads(cores)
    return workers
