"""Whether a run that is killed and resumed ends as one that was not.

Training runs in processes of its own, as a user starts it, so that it can be killed like one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.alignment.divergence import TOLERANCE, relative
from paddock.alignment.parity import without_noise
from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.names import PARTIAL
from paddock.config.layouts import with_layout, world_of_layout
from paddock.config.load import save_recipe
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.cores import num_cores
from paddock.errors import CheckFailed, ConfigError, UserError, bad_value
from paddock.files import scratch_folder
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.telemetry.jsonl import metrics_of, read_metrics

PATIENCE = 600
"""Seconds without a further step after which a run counts as hung."""


@dataclass(frozen=True)
class Part:
    """A recipe in a layout, and how many processes that takes."""

    recipe: Recipe
    processes: int


@dataclass(frozen=True)
class Kill:
    """A moment at which the run was killed, and where it could go on."""

    moment: str
    step: int
    """The last step that it had reported."""
    resumes_from: int
    """The step of the newest complete checkpoint; 0 is the beginning."""


@dataclass(frozen=True)
class ResumeResult:
    """Loss and gradient norm by step of a run without a disturbance and of one that was killed and resumed."""

    undisturbed: dict[int, tuple[float, float]]
    resumed: dict[int, tuple[float, float]]
    kills: list[Kill]
    exact: bool
    """Whether they must be bit-equal, rather than within the tolerance."""

    @property
    def steps(self) -> list[int]:
        return sorted(self.undisturbed.keys() | self.resumed.keys())

    @property
    def missing(self) -> list[int]:
        """Steps that only one of the two has."""
        return sorted(self.undisturbed.keys() ^ self.resumed.keys())

    @property
    def differences(self) -> dict[int, float]:
        """The relative difference at each step that both have."""
        both = sorted(self.undisturbed.keys() & self.resumed.keys())
        return {step: max(map(relative, self.resumed[step], self.undisturbed[step])) for step in both}

    @property
    def differing(self) -> list[int]:
        tolerance = 0.0 if self.exact else TOLERANCE
        return [step for step, difference in self.differences.items() if difference > tolerance]

    @property
    def largest_difference(self) -> float:
        return max(self.differences.values(), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "agrees": not self.differing and not self.missing,
            "exact": self.exact,
            "steps": len(self.steps),
            "kills": [asdict(kill) for kill in self.kills],
            "largest_difference": self.largest_difference,
            "differing_steps": self.differing,
            "missing_steps": self.missing,
        }

    def raise_if_different(self) -> None:
        """Raise CheckFailed if a step is missing or too far off."""
        if self.missing:
            raise CheckFailed(f"steps are missing: {', '.join(map(str, self.missing[:8]))}")
        if self.differing:
            step = self.differing[0]
            mine, other = self.resumed[step], self.undisturbed[step]
            raise CheckFailed(
                f"the resumed run differs at {len(self.differing)} of {len(self.steps)} steps, first at step {step}",
                why=f"loss {mine[0]!r} against {other[0]!r}, gradient norm {mine[1]!r} against {other[1]!r}",
            )


def check_resume(
    recipe: Recipe,
    launch: LaunchOptions,
    *,
    layout: str | None,
    resume_layout: str | None,
    seed: int,
    run_dir: Path | None,
) -> ResumeResult:
    """Train once undisturbed and once with two kills, and compare."""
    first, second = plan(recipe, launch, layout, resume_layout)
    exact = first == second
    with ExitStack() as stack:
        folder = run_dir or stack.enter_context(scratch_folder())
        if (folder / "resumed").exists():
            raise ConfigError(f"{folder} already holds a check", fix="choose another --run-dir")
        say(f"{first.recipe.train.steps} steps without a disturbance" + ("" if exact else "; dropout off, float32"))
        finish(Run(first, folder / "undisturbed"))
        kills = disturb(first, second, folder / "resumed", random.Random(seed))
        finish(Run(second, folder / "resumed", resumes=True))
        undisturbed, resumed = (numbers(folder / name) for name in ("undisturbed", "resumed"))
    return ResumeResult(undisturbed, resumed, kills, exact)


def plan(recipe: Recipe, launch: LaunchOptions, layout: str | None, resume_layout: str | None) -> tuple[Part, Part]:
    """The recipe as it begins and as it goes on, checked."""
    launch.check()
    if launch.nnodes > 1 or under_torchrun():
        raise ConfigError("a resume check starts its own processes, on one machine", fix="start it by itself")
    if layout is not None and launch.nproc_per_node > 1:
        raise bad_value(
            "--nproc-per-node",
            launch.nproc_per_node,
            "--layout says how many processes there are, so it would be ignored",
            "leave one of them out",
        )
    every, steps = recipe.checkpoint.every, recipe.train.steps
    if not isinstance(every, int) or steps is None or 2 * every > steps - 1 or every < 2:
        raise bad_value(
            "checkpoint.every",
            every,
            f"a run of {steps} steps is killed between its checkpoints and while it saves the second",
            "set --checkpoint.every to 2 or more, and --steps to more than twice that",
        )
    values = recipe.to_dict()
    values["checkpoint"]["load"] = None
    values["log"]["every"] = 1
    first = recipe_from_dict(values)
    if layout is not None:
        first = with_layout(first, layout)
    processes = launch.world_size if layout is None else world_of_layout(first).world
    batch = check_recipe(first, processes).batch
    if resume_layout is None:
        return Part(first, processes), Part(first, processes)
    values = without_noise(first).to_dict()
    values["batch"] |= {"global": batch.total, "accumulation": None, "micro": batch.micro}
    first = recipe_from_dict(values)
    second = with_layout(first, resume_layout)
    moved = world_of_layout(second).world
    check_recipe(second, moved)
    return Part(first, processes), Part(second, moved)


class Run:
    """A training run in processes of its own."""

    def __init__(self, part: Part, path: Path, resumes: bool = False) -> None:
        self.path = path
        self.log = path.with_name(f"{path.name}.log")
        config = path.with_name(f"{path.name}.yaml")
        config.parent.mkdir(parents=True, exist_ok=True)
        save_recipe(part.recipe, config)
        command = [sys.executable, "-m", "paddock", "train", str(config), "--run-dir", str(path)]
        command += ["--nproc-per-node", str(part.processes)]
        if "OMP_NUM_THREADS" not in os.environ:  # always as many, however busy the machine is: products round by them
            command += ["--threads", str(max(1, num_cores() // part.processes))]
        command += ["--checkpoint.load", "auto"] if resumes else []
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def reported(self) -> int:
        """The last step in its metrics."""
        return max(numbers(self.path), default=0)

    def saved(self) -> int:
        """The step of its newest complete checkpoint."""
        latest = CheckpointDirectory(self.path, None, is_main=False).latest()
        return 0 if latest is None else int(latest.name.removeprefix("step-"))

    def is_saving(self, step: int) -> bool:
        """Whether the checkpoint of a step is being written at this moment."""
        return (self.path / FOLDER / PARTIAL.format(f"step-{step:08d}")).exists()

    def kill(self) -> None:
        """As a machine that loses power does: its processes get no word."""
        self.process.kill()  # worker processes die with it
        self.process.wait()

    def watch(self) -> None:
        """Raise if it has ended; it was not supposed to."""
        if self.process.poll() is not None:
            raise self.failure("ended before it was killed")

    def failure(self, what: str) -> UserError:
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        error = CheckFailed(f"the run {what}, with exit code {self.process.returncode}", why="\n       ".join(tail))
        error.follows_result = False
        error.exit_code = self.process.returncode if self.process.returncode > 0 else CheckFailed.exit_code
        return error


def disturb(first: Part, second: Part, path: Path, rng: random.Random) -> list[Kill]:
    """Begin the run, kill it between two checkpoints; let it go on, and kill it while it saves."""
    every = first.recipe.checkpoint.every
    assert isinstance(every, int)
    at = every + rng.randrange(1, every)
    run = Run(first, path)
    seconds_a_step = wait_for_step(run, at)
    share = rng.random()
    time.sleep(share * seconds_a_step)
    run.kill()
    kills = [Kill(f"{share:.0%} of a step after step {at}", run.reported(), run.saved())]
    say(f"killed {kills[0].moment}")
    run = Run(second, path, resumes=True)
    wait_for_step(run, 2 * every - 1)
    while not run.is_saving(2 * every) and run.saved() < 2 * every:
        run.watch()
    time.sleep(rng.random() * 0.005)
    moment = "while saving" if run.is_saving(2 * every) else "just after saving"
    run.kill()
    kills.append(Kill(f"{moment} step {2 * every}", run.reported(), run.saved()))
    say(f"resumed, killed {kills[1].moment}")
    return kills


def wait_for_step(run: Run, step: int) -> float:
    """Wait until the run has reported a step; returns how long a step takes."""
    seen, since = -1, time.monotonic()
    pace = 0.0
    while seen < step:
        run.watch()
        reported = run.reported()
        now = time.monotonic()
        if reported > seen:
            pace = (now - since) / (reported - seen) if seen > 0 else 0.0
            seen, since = reported, now
        elif now - since > PATIENCE:
            run.kill()
            raise run.failure(f"made no step for {PATIENCE} s after step {seen}")
        time.sleep(0.002)
    return pace


def finish(run: Run) -> None:
    """Let a run come to its end."""
    try:
        if run.process.wait() != 0:
            raise run.failure("failed")
    finally:
        run.process.kill()
    say(f"{run.path.name}: at step {run.reported()}")


def numbers(path: Path) -> dict[int, tuple[float, float]]:
    """Loss and gradient norm by step, of the metrics of a run."""
    metrics = path / "metrics.jsonl"
    if not metrics.exists():
        return {}
    return {
        record["step"][1]: (data["train.loss"], data["train.grad_norm"])
        for record in read_metrics(metrics)
        if "train.loss" in (data := metrics_of(record))
    }


def say(text: str) -> None:
    print(f"resume: {text}", file=sys.stderr, flush=True)
