"""The entry of a worker process: called in a fork of `fork_server`, or `python -m paddock.launch.worker SPEC PARENT`.

It reads the spec, makes sure that it dies with its parent and that its failure is recorded, and calls the
target. Process groups, devices and seeds belong to the target.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from paddock.launch import failure
from paddock.launch.stop import hold_signals
from paddock.launch.target import resolve
from paddock.phases import STARTING, phase
from paddock.plugins import import_all
from paddock.process import claim, leave, tell_steps_to

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # <linux/prctl.h>


def main(spec_file: str, parent: str) -> NoReturn:
    claim()
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    rank, reports = int(os.environ["RANK"]), Path(spec["reports"])
    try:
        _begin(rank, parent, reports, spec["stops_cleanly"])
        with phase(STARTING):
            import_all(spec["modules"], spec["path"])
            result = resolve(spec["target"])(spec["payload"])
        (reports / f"rank{rank}.result").write_text(json.dumps(result), encoding="utf-8")
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            leave(failure.record(error, rank, errors=Path(spec["errors"]), reports=reports))
    leave(0)


def _begin(rank: int, parent: str, reports: Path, stops_cleanly: bool) -> None:
    """What a rank is, before it does anything: when it ends, and how it is known."""
    if stops_cleanly:
        hold_signals()
    else:  # there is nothing to finish or to save
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent(int(parent))
    _show_rank(rank)
    failure.own_reports = reports
    # Not closed: a crash in C++ writes the Python stack here until the very end of the process.
    faulthandler.enable(open(reports / f"rank{rank}.fault", "w"))  # noqa: SIM115
    tell_steps_to(reports / f"rank{rank}.step")
    (reports / f"rank{rank}.ready").touch()


def die_with_parent(parent: int) -> None:
    """Be killed when the launcher or its fork server is killed, so that no rank lives on as an orphan."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()


def _show_rank(rank: int) -> None:
    """Let `ps` and `top` tell the ranks of a job apart: they are forks, with the command line of their server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, f"paddock/{rank}".encode())


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
