"""A program for test_continuing: kills a job before its n-th step on the disk, for every n, and continues it.

Run with the job as JSON; prints how many steps there were. Every n has a folder of its own below the job's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.run import preprocess

STEPS = ("fsync", "replace", "unlink")


def main() -> None:
    forget_about_power_cuts()
    settings = json.loads(sys.argv[1])
    settings["tokenizer"] = TokenizerConfig(**settings["tokenizer"])
    folder = Path(settings.pop("folder"))
    number = 0
    while True:
        number += 1
        (folder / str(number)).mkdir()
        job = PreprocessJob(output_prefix=str(folder / str(number) / "out"), **settings)
        killed = in_a_child(lambda job=job, number=number: (kill_before_step(number), preprocess(job)))  # type: ignore[misc]
        if not killed:
            break
        complete = (
            not Path(f"{job.output_prefix}.progress.json").exists() and Path(f"{job.output('text')}.idx").exists()
        )
        assert complete or not in_a_child(lambda job=job: preprocess(job))  # type: ignore[misc]
    print(number)


def in_a_child(work: Callable[[], Any]) -> bool:
    """Do the work in a process of its own; True if it was killed."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, f"a job failed: {status}"
    return killed


def kill_before_step(number: int) -> None:
    left = number

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))


def forget_about_power_cuts() -> None:
    """A kill takes nothing from the kernel's hands, so there is no need to wait for the disk."""
    os.fsync = lambda _: None


if __name__ == "__main__":
    main()
