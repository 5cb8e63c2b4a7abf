"""The curves of two logs on one axis: which metric is the loss, and steps that are counted alike.

Logs count steps over a run (ours do) or anew in every epoch, from 0 or from 1. Comparing step 100 of the one with step
101 of the other would find differences that are none, so what cannot be told is asked for, and what is done is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddock.alignment.comparison.logged import LoggedRun, Position
from paddock.errors import ConfigError, DataError, bad_value, nearest, shown

Curve = dict[int, float]
"""A number by step, in the order of the steps."""
LOSSES = ("train.loss", "loss", "train_loss", "train/loss", "training_loss", "qa.loss", "total_loss", "lm loss")
NORMS = ("train.grad_norm", "grad_norm", "train/grad_norm", "gradient_norm", "grad norm")
RATES = ("train.lr", "lr", "train/lr", "learning_rate", "learning rate", "train/learning_rate")
_HELD_OUT = re.compile(r"(^|[./_ ])(val|valid|validation|eval|evaluation|test|min|max)([./_ ]|$)", re.IGNORECASE)


def find_metric(run: LoggedRun, names: Sequence[str]) -> str | None:
    """The first of the names that a run has, whatever its capitals."""
    spelled = {name.casefold(): name for name in run.series}
    return next((spelled[name.casefold()] for name in names if name.casefold() in spelled), None)


def find_loss(run: LoggedRun, wanted: str | None) -> str:
    """The metric that is the training loss: the one that is wanted, or the one that is called so. A run of ours that
    broke off in its first step does not have it."""
    if run.is_directory and not run.series:
        return wanted or LOSSES[0]
    if wanted is not None:
        found = find_metric(run, [wanted])
        if found is None:
            fix = nearest(wanted, list(run.series)) or f"it has: {_listed(run)}"
            raise bad_value("--loss", wanted, f"{run.name} has no such metric", fix)
        return found
    if (found := find_metric(run, LOSSES)) is not None:
        return found
    trained = [name for name in run.series if not _HELD_OUT.search(name)]
    like = [name for name in trained if "loss" in name.casefold()]
    if len(like) == 1 or len(trained) == 1:
        return (like or trained)[0]
    if not run.series:
        raise DataError(f"{run.name} has no metrics", why="no record in it has a number", fix="give another log")
    raise DataError(
        f"{run.name} does not say which metric is its loss",
        why=f"it has: {_listed(run)}",
        fix="name it: --loss METRIC, or --loss METRIC_OF_A METRIC_OF_B",
    )


def _listed(run: LoggedRun) -> str:
    return shown(", ".join(run.series) or "none")


@dataclass(frozen=True)
class StepAxis:
    """Where the positions of a log stand among the steps that two logs have in common."""

    per_epoch: int = 0
    """Steps from one epoch's beginning to the next; 0 where steps are counted over the whole run."""
    first_epoch: int = 0
    shift: int = 0

    def step(self, position: Position) -> int:
        epochs = (position[0] - self.first_epoch) * self.per_epoch if len(position) > 1 else 0
        return epochs + position[-1] + self.shift

    def curve(self, values: Mapping[Position, float], last: int | None = None) -> Curve:
        """A metric by step, up to a last one. A log that has both has its epochs as summaries of steps."""
        longest = max((len(position) for position in values), default=0)
        steps = {self.step(position): value for position, value in values.items() if len(position) == longest > 0}
        return {step: steps[step] for step in sorted(steps) if last is None or step <= last}

    def placed(self, values: Mapping[Position, float], last: int | None = None) -> dict[Position, float]:
        """A metric by step on this axis (behind a 0), or by epoch, or of the whole run, as it was recorded."""
        found = {}
        for position, value in values.items():
            place = (0, self.step(position)) if len(position) > 1 else position
            if last is None or len(place) < 2 or place[1] <= last:
                found[place] = value
        return found


@dataclass
class Axes:
    """The axes of two logs, and what is to be said of them."""

    a: StepAxis
    b: StepAxis
    notes: list[str] = field(default_factory=list)


def common_axes(
    runs: tuple[LoggedRun, LoggedRun], names: tuple[str, str], per_epoch: int | None, offset: int | None
) -> Axes:
    """How the steps of two logs are counted. `per_epoch` and `offset` are what the user says of that, if anything."""
    positions = [list(run.series.get(name, {})) for run, name in zip(runs, names, strict=True)]
    anew = [counts_anew(one) for one in positions]
    notes = []
    if per_epoch is not None and not any(anew):
        raise bad_value("--steps-per-epoch", per_epoch, "both runs count their steps over all epochs", "leave it out")
    if per_epoch is None and any(anew):
        per_epoch = _longest_epoch(runs, positions, anew)
        notes.append("both count their steps anew in every epoch: the same step of the same epoch is compared")
    axes = [
        StepAxis(per_epoch or 0, first_epoch=int(_first_epoch(one) == 1)) if restarts else StepAxis()
        for restarts, one in zip(anew, positions, strict=True)
    ]
    begins = [_first(axis, one) for axis, one in zip(axes, positions, strict=True)]
    shifts = [0, offset or 0]
    if offset is None and all(positions) and sorted(begins) == [0, 1]:
        shifts = [int(begin == 0) for begin in begins]
        zero, one = (runs[begins.index(number)].name for number in (0, 1))
        notes.append(
            f"{zero} counts its steps from 0 and {one} from 1: their first steps are compared (--offset 0: not)"
        )
    a, b = (replace(axis, shift=shift) for axis, shift in zip(axes, shifts, strict=True))
    return Axes(a, b, notes)


def _longest_epoch(
    runs: tuple[LoggedRun, LoggedRun], positions: Sequence[Sequence[Position]], anew: Sequence[bool]
) -> int:
    """A number of steps that no epoch of either log exceeds, where both count them anew: any such number will do."""
    if not all(anew):
        odd = runs[0] if anew[0] else runs[1]
        raise ConfigError(
            f"{odd.name} counts its steps anew in every epoch, and the other one over the whole run",
            why="which step of the one is which of the other cannot be told",
            fix="set --steps-per-epoch to the number of steps that an epoch has",
        )
    return 1 + max(position[1] for one in positions for position in one if len(position) > 1)


def counts_anew(positions: Sequence[Position]) -> bool:
    """Whether the steps of a log begin again in a later epoch."""
    pairs = sorted(position for position in positions if len(position) > 1)
    return any(
        later[0] > earlier[0] and later[1] <= earlier[1] for earlier, later in zip(pairs, pairs[1:], strict=False)
    )


def _first_epoch(positions: Sequence[Position]) -> int:
    """Some count epochs from 1: theirs is the others' 0."""
    return min(position[0] for position in positions if len(position) > 1)


def _first(axis: StepAxis, positions: Sequence[Position]) -> int:
    """The first step of a log."""
    return min((axis.step(position) for position in positions if position), default=0)
