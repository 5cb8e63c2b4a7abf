"""Looking at runs that are there, comparing them, and tidying up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.reporting.comparison import Beside, beside
from paddock.reporting.curves import chosen_metrics, default_metric, read_curves
from paddock.reporting.figures import View, figure_of
from paddock.reporting.listing import STATES, RunEntry, describe_run, find_runs
from paddock.telemetry.drawing.plots import Plot

SORTS: dict[str, Callable[[RunEntry], object]] = {
    "newest": lambda run: -run.changed,
    "name": lambda run: run.name,
    "loss": lambda run: (run.loss is None, run.loss),
    "steps": lambda run: -run.step,
    "speed": lambda run: -(run.speed or 0.0),
    "size": lambda run: -run.bytes,
}
"""What a list can be sorted by."""
RUNS = "runs"
"""Where runs are that were not told where to be."""


def list_runs(
    folders: Sequence[str], *, states: Sequence[str] = (), recipe: str | None = None, sort: str = "newest"
) -> list[RunEntry]:
    """The runs in folders (`runs`, if none is named): those in a state, those of a recipe or a family."""
    wanted = [state.replace("-", " ") for state in states]
    for state in wanted:
        if state not in STATES:
            raise bad_value("--state", state, "there is no such state", did_you_mean(state, list(STATES)))
    if sort not in SORTS:
        raise bad_value("--sort", sort, "a list cannot be sorted by that", did_you_mean(sort, list(SORTS)))
    found = [describe_run(name) for name in find_runs(places_of_runs(folders))]
    chosen = [run for run in found if (not wanted or run.state in wanted) and (recipe is None or is_of(run, recipe))]
    return sorted(chosen, key=SORTS[sort])  # type: ignore[arg-type]


def is_of(run: RunEntry, recipe: str) -> bool:
    """Whether a run is of a recipe (`gpt2/tiny`), of a family (`gpt2`) or of a task."""
    return recipe in (run.recipe, run.family, run.task) or run.recipe.startswith(f"{recipe}/")


def places_of_runs(folders: Sequence[str]) -> Sequence[str]:
    """The folders that somebody names, or the one where runs are."""
    if folders or Path(RUNS).is_dir():
        return folders or [RUNS]
    raise ConfigError(
        f"there is no folder {RUNS} here", fix="go where you train, or name the folder: paddock runs list DIR"
    )


def compare_runs(names: Sequence[str]) -> Beside:
    """Runs beside each other."""
    if len(names) < 2:
        raise ConfigError("paddock runs compare needs two runs or more", fix="paddock runs compare RUN RUN…")
    return beside([read_curves(name) for name in names])


def plot_runs(names: Sequence[str], metric: str | None, view: View) -> Plot:
    """A metric of runs as a plot: the loss, unless another is named."""
    if not names:
        raise ConfigError("paddock runs plot needs a run", fix="paddock runs plot RUN…")
    runs = [read_curves(name) for name in names]
    view.check(runs)
    wanted = chosen_metrics(runs, [metric])[0] if metric is not None else default_metric(runs)
    return figure_of(runs, wanted, view)
