"""Small jobs for `paddock.launch.run`: they talk, fail, hang and stop on order.

For our tests and for contributors who bring up a launcher, a container or a vendor's collective library.
Every job takes a JSON payload. torch is imported only where it is used: a worker without it starts at once. One that
waits does so for ever: whoever sees it gone knows that its launcher ended it. (It dies with its launcher.)
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

from paddock import errors
from paddock.launch import stop
from paddock.process import is_ours


def all_reduce_job(payload: dict[str, Any]) -> None:
    """Sum rank + 1 over all ranks with gloo, print it, and write `directory`/rankN.json."""
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    total = torch.tensor([rank + 1.0])
    torch.distributed.all_reduce(total)
    print(f"rank {rank} sum {int(total)}")
    print(f"rank {rank} complains", file=sys.stderr)
    seen = {
        "sum": int(total),
        "world_size": torch.distributed.get_world_size(),
        "threads": torch.get_num_threads(),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "session": os.getsid(0) == os.getpid(),
        "ours": is_ours(),
    }
    _leave(payload, f"rank{rank}.json", json.dumps(seen))
    torch.distributed.destroy_process_group()


def unfinished_job(payload: dict[str, Any]) -> None:
    """Rank 0 ends while a message of its own is on its way, which arrives in the last moment of its interpreter."""
    if os.environ["RANK"] == "0":  # before torch registers what it does at the end, so that these come after it
        # The thread that receives it cannot give the tensor back to Python until this is over, and Python is down.
        atexit.register(ctypes.PyDLL(None).usleep, 900_000)
        atexit.register(_leave, payload, "ending", "")
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    rank, tensor = torch.distributed.get_rank(), torch.zeros(1)
    torch.distributed.barrier()
    if rank == 0:
        torch.distributed.all_reduce(tensor, async_op=True)
    else:
        while not (Path(payload["directory"]) / "ending").exists():
            time.sleep(0.02)
        with suppress(RuntimeError):  # the other one may be gone by now
            torch.distributed.all_reduce(tensor)


def report_job(payload: dict[str, Any]) -> None:
    """Write the payload and the process id to `directory`/report.json: shows where a job ran."""
    _leave(payload, "report.json", json.dumps({"payload": payload, "pid": os.getpid()}))


def failing_job(payload: dict[str, Any]) -> None:
    """Rank `rank` fails as `how` says, while the others wait as `others` says.

    how: "exception", "exit", a signal's name, or the name of an error class in `paddock.errors`.
    `offspring`: the failing rank first starts a process of its own that would outlive it.
    others: "collective" (a gloo all-reduce that can never finish), "stubborn" (deaf to SIGTERM) or "wait".
    """
    rank = int(os.environ["RANK"])
    group = payload.get("others") == "collective"
    if group:
        import torch
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        torch.distributed.all_reduce(torch.zeros(1))  # everybody is connected: the middle of a job
    elif payload.get("others") == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leave(payload, f"rank{rank}.pid", str(os.getpid()))
    if rank == payload["rank"]:
        while len(list(Path(payload["directory"]).glob("rank*.pid"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.02)
        print(f"last words of rank {rank}", file=sys.stderr, flush=True)
        if payload.get("offspring"):
            _leave(payload, "offspring", str(subprocess.Popen(["sleep", "3600"]).pid))
        _fail(payload["how"])
    if group:
        torch.distributed.all_reduce(torch.zeros(1))
    else:
        _wait()


def waiting_job(payload: dict[str, Any]) -> None:
    """Join the other ranks as every verb does, leave `directory`/rankN.pid, and wait for rank 0 in a collective that
    it never enters. Unless `plain`, within a StopRequest that nobody looks at; `patience`: of whoever ends a hang."""
    from paddock import process
    from paddock.devices import select
    from paddock.parallel.world import join_world

    process.PATIENCE = payload.get("patience", process.PATIENCE)
    request = nullcontext() if payload.get("plain") else stop.StopRequest()
    with request, join_world(select("cpu")) as world:
        world.barrier()
        _leave(payload, f"rank{world.rank}.pid", str(os.getpid()))
        if world.rank > 0:
            world.barrier()
        _wait()


def stepping_job(payload: dict[str, Any]) -> None:
    """Step every 0.05 s until a stop is requested, then write its signal to `directory`/rankN.stopped.

    `early`: open the StopRequest only when a signal has come. `deaf`: never heed it. `plain`: open none.
    """
    rank = os.environ.get("RANK", "0")
    with ExitStack() as stack:
        if payload.get("early"):
            _leave(payload, f"rank{rank}.pid", str(os.getpid()))
            while stop._held is None:
                time.sleep(0.02)
        request = stop.StopRequest()
        if not payload.get("plain"):
            stack.enter_context(request)
        _leave(payload, f"rank{rank}.pid", str(os.getpid()))
        while payload.get("deaf") or not request.requested:
            time.sleep(0.05)
        _leave(payload, f"rank{rank}.stopped", str(request.requested))


def _fail(how: str) -> None:
    if how == "exception":
        raise RuntimeError("the bearing broke")
    if how == "exit":
        os._exit(9)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        _wait()
    raise getattr(errors, how)("the gate is shut", why="nobody opened it", fix="open it")


def _wait() -> NoReturn:
    while True:
        time.sleep(0.1)


def _leave(payload: dict[str, Any], name: str, text: str) -> None:
    """Write a file that a reader never sees half of."""
    path = Path(payload["directory"]) / name
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
