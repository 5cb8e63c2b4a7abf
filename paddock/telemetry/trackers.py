"""Experiment trackers: trackio, Weights & Biases, SwanLab, MLflow. Thin sinks over the package that the user has.

What a tracker does beyond that (its server, its account, working offline) is its own matter, and set by its own
environment variables. Everything is in `metrics.jsonl` anyway: a tracker that fails says so once, and the run goes on.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from paddock.errors import MachineError
from paddock.telemetry.stream import NOTHING, Step, Value

TrackerName = Literal["trackio", "wandb", "swanlab", "mlflow"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
EXTRAS = {"trackio": '"paddock[track]"'}
"""What pip is to install, where that is not the package itself."""
LONGEST_PARAMETER = 500
"""Characters of a value that MLflow takes."""


@dataclass(frozen=True)
class Tracked:
    """The run, as a tracker is told of it."""

    run_dir: Path
    project: str
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.run_dir.name


class Tracker(Protocol):
    """What all of them can do."""

    @abstractmethod
    def log(self, values: dict[str, float], step: int) -> None:
        """Record numbers at a step."""

    @abstractmethod
    def finish(self) -> None:
        """The run is over."""


class ModuleTracker:
    """A package with `log` and `finish` of its own, as Weights & Biases made it usual."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def log(self, values: dict[str, float], step: int) -> None:
        self._module.log(values, step=step)

    def finish(self) -> None:
        self._module.finish()


class MLflowTracker:
    """MLflow calls them otherwise, and takes no numbers that are not finite."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def log(self, values: dict[str, float], step: int) -> None:
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._module.log_metrics(finite, step=step)

    def finish(self) -> None:
        self._module.end_run()


def _trackio(module: Any, run: Tracked) -> Tracker:
    module.init(project=run.project, name=run.name, config=dict(run.recipe), resume="allow")
    return ModuleTracker(module)


def _wandb(module: Any, run: Tracked) -> Tracker:
    module.init(
        project=run.project, name=run.name, id=run.name, resume="allow", config=dict(run.recipe), dir=str(run.run_dir)
    )
    return ModuleTracker(module)


def _swanlab(module: Any, run: Tracked) -> Tracker:
    folder = os.environ.get("SWANLAB_LOG_DIR") or str(run.run_dir / "swanlog")
    module.init(project=run.project, experiment_name=run.name, config=dict(run.recipe), logdir=folder)
    return ModuleTracker(module)


def _mlflow(module: Any, run: Tracked) -> Tracker:
    module.set_experiment(run.project)
    module.start_run(run_name=run.name)
    module.log_params({name: str(value)[:LONGEST_PARAMETER] for name, value in _dotted(run.recipe)})
    return MLflowTracker(module)


def _dotted(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in section.items():
        inner = _dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
        found += inner
    return found


STARTS: dict[TrackerName, Callable[[Any, Tracked], Tracker]] = {
    "trackio": _trackio,
    "wandb": _wandb,
    "swanlab": _swanlab,
    "mlflow": _mlflow,
}


def check_tracker(name: TrackerName | None) -> None:
    """Raise, before any work, if the package of a tracker is not there."""
    if name is not None and find_spec(name) is None:
        raise _missing(name, "it is not installed")


def _missing(name: TrackerName, why: str) -> MachineError:
    return MachineError(
        f"log.track = {name}, but {name} cannot be imported",
        why=why,
        fix=f"pip install {EXTRAS.get(name, name)}, or leave log.track out",
    )


class TrackerSink:
    """Hands numbers to a tracker, by step. `train.loss` becomes `train/loss`, so that groups share a section."""

    def __init__(self, name: TrackerName, run: Tracked) -> None:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise _missing(name, str(error)) from error
        self.name = name
        self._last_step = 0
        self._is_broken = False
        try:
            with redirect_stdout(sys.stderr):  # standard output is for results
                self._tracker: Tracker | None = STARTS[name](module, run)
        except Exception as error:  # whatever a tracker raises: no account, no server, no place to write to
            raise MachineError(
                f"{name} does not begin a run",
                why=_first_line(error),
                fix=f"mend that ({name}'s own settings), or leave log.track out",
            ) from error

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        """Trackers ask for none."""

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        if step:
            self._last_step = step[1]
        numbers = {
            name.replace(".", "/", 1): float(value) for name, value in data.items() if not isinstance(value, str)
        }
        if numbers:
            self._attempt(lambda tracker: tracker.log(numbers, self._last_step))

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        """Only records are tracked."""

    def message(self, text: str) -> None:
        """Messages go to `log.txt`."""

    def flush(self) -> None:
        """Trackers send when they like."""

    def close(self) -> None:
        self._attempt(lambda tracker: tracker.finish())
        self._tracker = None

    def _attempt(self, action: Callable[[Tracker], None]) -> None:
        """Do it; what goes wrong is said once, and then the tracker is left alone."""
        if self._tracker is None or self._is_broken:
            return
        try:
            with redirect_stdout(sys.stderr):
                action(self._tracker)
        except Exception as error:  # its server or its disk is gone: no reason to lose a training run
            self._is_broken = True
            print(
                f"note: {self.name} failed ({_first_line(error)}); the run goes on without it, and all of its numbers "
                "are in metrics.jsonl",
                file=sys.stderr,
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
