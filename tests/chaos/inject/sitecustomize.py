"""Python runs this first in every process of a disturbed run: it kills one of them before its n-th step on the disk.

CHAOS_RANK names the process (a rank, or `launcher`) and CHAOS_STEP the step. CHAOS_COUNT is a folder, in which a file
named like the process gets a byte a step. CHAOS_CLOCK is by how many seconds this machine's clock is off.
"""

import os
import signal
import sys
import time

STEPS = ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "symlink", "truncate")
SERVER = "paddock.launch.fork_server"


def install(alone: str | None = None) -> None:
    """Watch what this process does on the disk, and each that is forked from it as the rank that it becomes; as `alone`
    where there is no rank."""
    taken: dict[str, int] = {}

    def watched(action):
        def step(*arguments, **options):
            me = os.environ.get("RANK", alone)
            if me is None:
                return action(*arguments, **options)
            taken[me] = taken.get(me, 0) + 1
            if os.environ.get("CHAOS_RANK") == me and taken[me] == int(os.environ["CHAOS_STEP"]):
                os.kill(os.getpid(), signal.SIGKILL)
            if (count := os.environ.get("CHAOS_COUNT")) is not None:
                with open(os.path.join(count, me), "ab") as stream:
                    stream.write(b".")
            return action(*arguments, **options)

        return step

    for name in STEPS:
        setattr(os, name, watched(getattr(os, name)))


def skew():
    """Let this process see another time of day."""
    right, off = time.time, float(os.environ["CHAOS_CLOCK"])
    time.time = lambda: right() + off


if "CHAOS_CLOCK" in os.environ:
    skew()
if ("RANK" in os.environ or SERVER in sys.orig_argv) and not {"CHAOS_RANK", "CHAOS_COUNT"}.isdisjoint(os.environ):
    install()  # the launcher, which is not begun anew, does so itself
