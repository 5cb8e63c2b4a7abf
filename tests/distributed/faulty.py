"""A callback that makes a training run fail or wait on order.

FAULTS is a list of `what:step:rank:attempt` (an attempt of `*` is any): after that step that rank is killed (`kill`),
raises a bug (`bug`) or an error of a recipe (`config`), is frozen for ever (`hang`), or waits (`hold`) until its run
directory has a file `go-STEP`, and says by a file `at-STEP` that it does. Its newest checkpoint can be damaged: a
changed `byte` or half of a file (`truncate`), or a `description` that says nothing.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from paddock.errors import ConfigError
from paddock.training.callbacks import Callback, register_callback
from paddock.training.run import TrainingRun


@register_callback
class Faulty(Callback):
    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        now = [str(run.progress.step), str(run.world.rank)]
        for fault in filter(None, os.environ.get("FAULTS", "").split(",")):
            what, *when, attempt = fault.split(":")
            if when == now and attempt in ("*", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
                fail(what, run)


def fail(what: str, run: TrainingRun) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what in ("byte", "truncate", "description"):
        damage(what, max(run.run_dir.glob("checkpoints/step-*")))
    elif what == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)  # a callback that only waits has half an hour
    elif what == "bug":
        raise RuntimeError("the bearing broke")
    elif what == "config":
        raise ConfigError("the gate is shut", fix="open it")
    else:
        assert what == "hold"
        step = run.progress.step
        (run.run_dir / f"at-{step}").touch()
        while not (run.run_dir / f"go-{step}").exists():
            time.sleep(0.02)


def damage(what: str, checkpoint: Path) -> None:
    if what == "description":
        (checkpoint / "checkpoint.json").write_text("{}")
        return
    for file in checkpoint.glob("*.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content if what == "byte" else content[: len(content) // 2])
