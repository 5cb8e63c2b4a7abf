"""Attempts of a job: an elastic agent (a user's torchrun, or our launcher) starts all processes anew when one fails.

What must be known from one attempt to the next is kept in the agent's store, which outlives the processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import uuid4

from torch.distributed import PrefixStore, Store

from paddock.parallel.reach import agent_store


def said_by_main(topic: str, say: Callable[[], str]) -> str | None:
    """What rank 0 said on a topic, in the first attempt that came to it; the same for everyone. Without an agent's
    store the others cannot hear it: None."""
    store, is_main = agent_store(), os.environ["RANK"] == "0"
    if store is None:
        return say() if is_main else None
    key = f"paddock/{topic}"
    if is_main and not store.check([key]):
        store.set(key, say())
    said: bytes = store.get(key)
    return said.decode()


def note(topic: str) -> None:
    """Remember for later attempts that something was done."""
    store = agent_store()
    if store is not None:
        store.set(f"paddock/{topic}", "done")


def is_noted(topic: str) -> bool:
    """Whether an earlier attempt, or this one, has noted it."""
    store = agent_store()
    return store is not None and bool(store.check([f"paddock/{topic}"]))


def store_of_attempt(rank: int, size: int) -> Store | None:
    """A part of the agent's store that no earlier attempt has written to, for a process group; None if there was none.

    gloo would take addresses of processes that are gone for those of their successors. The number of restarts does not
    tell attempts apart: each machine's agent counts its own. So everyone asks rank 0 for a name, by a word of which
    there can be no old answer.
    """
    store = agent_store() if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" else None
    if store is None:
        return None
    if rank == 0:
        name = uuid4().hex
        while store.add(f"paddock/joined/{name}", 0) < size - 1:
            for asking in (f"paddock/asks/{other}" for other in range(1, size)):
                if store.check([asking]):
                    store.set(f"paddock/answer/{store.get(asking).decode()}", name)
            time.sleep(0.02)
    else:
        word = uuid4().hex
        store.set(f"paddock/asks/{rank}", word)
        name = store.get(f"paddock/answer/{word}").decode()
        store.add(f"paddock/joined/{name}", 1)
    return PrefixStore(name, store)
