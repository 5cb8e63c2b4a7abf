"""Python runs this first in every rank of a disturbed run: it kills one process before its n-th step on the disk.

CHAOS_RANK names the process (a rank, or `launcher`) and CHAOS_STEP the step. CHAOS_COUNT is a folder, in which a file
named like the process gets a byte a step. CHAOS_CLOCK is by how many seconds this machine's clock is off.
"""

import os
import signal
import time

STEPS = ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "symlink", "truncate")


def install() -> None:
    """Watch what this process does on the disk."""
    me = os.environ.get("RANK", "launcher")
    left = int(os.environ["CHAOS_STEP"]) if os.environ.get("CHAOS_RANK") == me else 0
    count = os.environ.get("CHAOS_COUNT")

    def watched(action):
        def step(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if count is not None:
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
if "RANK" in os.environ and not {"CHAOS_RANK", "CHAOS_COUNT"}.isdisjoint(os.environ):
    install()  # the launcher, which is not begun anew, does so itself
