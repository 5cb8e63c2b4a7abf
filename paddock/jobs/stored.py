"""Runs that are kept in a store, as jobs see them. Nothing heavy is imported where none is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.config.load import merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.objects.address import Address, is_address
from paddock.parallel.rendezvous import place_in_job

if TYPE_CHECKING:
    from paddock.training.remote.run import RemoteRun


def find_place(recipe: Recipe, run_dir: str | Path | None) -> tuple[Recipe, Path | None, RemoteRun | None]:
    """The folder in which a run works, the run in a store of which that is the part here, and the recipe: where it
    begins from another run in a store, with the address of one checkpoint, so that all processes take the same."""
    remote, load = None, recipe.checkpoint.load
    if run_dir is not None and (is_address(run_dir) or Path(run_dir).is_dir()):
        from paddock.training.remote.run import RemoteRun

        remote = RemoteRun.of(run_dir)
    if load is not None and is_address(load):
        from paddock.checkpoint.stored_run import exact_source

        goes_on = remote is not None and Address.parse(load) == remote.address
        exact = "auto" if goes_on else exact_source(load)
        recipe = recipe_from_dict(merge(recipe.to_dict(), {"checkpoint": {"load": exact}}))
    if remote is not None:
        return recipe, remote.folder, remote
    return recipe, None if run_dir is None else Path(run_dir), None


def leads_job(launch: LaunchOptions) -> bool:
    """Whether this is the process that decides for all of a job that is about to start."""
    return place_in_job().rank == 0 if under_torchrun() else launch.node_rank == 0


@contextmanager
def kept(address: str | None, folder: Path, verb: str, keep: int | None) -> Iterator[None]:
    """Let the copy of a run in a store, if there is one, follow its folder inside."""
    if address is None:
        yield
        return
    from paddock.training.remote.run import RemoteRun

    with RemoteRun(Address.parse(address), folder).kept(verb, keep):
        yield
