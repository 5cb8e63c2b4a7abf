"""Going on with a run: what its directory says of its recipe and its processes, or why it is none. No torch, so that
its answer comes at once."""

from __future__ import annotations

from pathlib import Path

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError, DataError
from paddock.files import nearest_named
from paddock.jobs.attempt import GOES_ON, has_checkpoint
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.objects.address import is_address
from paddock.training.run_directory.files import CONFIG, ENVIRONMENT, read_environment


def find_run(name: str) -> Path:
    """The run directory that somebody names, with a checkpoint to go on from; else an error that says what it is."""
    path = Path(name).expanduser()
    if is_address(name):
        from paddock.training.remote.run import RemoteRun

        path = RemoteRun.at(name).brought()
    if not (path / CONFIG).is_file():
        raise _no_run(name, path)
    if not has_checkpoint(path):
        raise DataError(
            f"{path} has no checkpoint yet to go on from",
            why="it was stopped before its first one",
            fix=f"begin it again: paddock train {path}/{CONFIG} --run-dir {path} --checkpoint.load auto",
        )
    return path


def saved_recipe(run: Path) -> Recipe:
    """The recipe that a run had last, to go on with."""
    return recipe_from_dict(merge(load_recipe(run / CONFIG).to_dict(), {"checkpoint": GOES_ON}))


def saved_launch(run: Path) -> LaunchOptions:
    """As many processes as a run had last; the user's torchrun decides, if there is one."""
    if under_torchrun() or not (run / ENVIRONMENT).is_file():
        return LaunchOptions()
    return LaunchOptions(**read_environment(run).processes.model_dump())


def _no_run(name: str, path: Path) -> ConfigError:
    inside = next((parent for parent in path.absolute().parents if (parent / CONFIG).is_file()), None)
    if path.exists() and inside is not None:
        return ConfigError(f"{name} is in a run, not the run itself", fix=f"paddock resume {inside}")
    if path.exists():
        return ConfigError(
            f"{name} is not a run", why=f"it has no {CONFIG}", fix=f"begin one with it: paddock train … {name}"
        )
    places = [path.parent, Path("runs")]
    runs = sorted({str(config.parent) for place in places for config in place.glob(f"*/{CONFIG}")})
    fix = (
        nearest_named(name, runs) or "give a run directory, such as those in runs/; to begin one: paddock train RECIPE"
    )
    return ConfigError(f"there is no run {name}", fix=fix)
