"""What may be added to a training run without changing it: callbacks see the run and may add metrics.

One comes by name (`train.callbacks` in a recipe) from the entry point `paddock.callbacks` or from `register_callback`,
or as an object handed to `Trainer`. Every process has its own and calls it at the same moments: what a callback writes
or prints, it does where `run.world.is_main`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from paddock import plugins
from paddock.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from paddock.telemetry.stop import Stop
    from paddock.training.run import TrainingRun

GROUP = "callbacks"
_registered: dict[str, type[Callback]] = {}
_handed_over: dict[str, Callback] = {}


class Callback:
    """Hears of what happens in a run. Each method does nothing by default; one that returns or raises a `Stop` ends the
    run after the step under way.

    >>> class Bits(Callback):
    ...     def on_evaluate(self, run, metrics):
    ...         metrics["bits"] = metrics["loss"] / math.log(2)  # logged as val.bits
    >>> Trainer(model="gpt2/tiny", callbacks=[Bits()]).train()
    """

    def on_start(self, run: TrainingRun) -> Stop | None:
        """Everything is built and loaded; the first step follows."""

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> Stop | None:
        """A step is done. `metrics` are what is logged of it, to which more may be added; None where nothing is
        logged: then nothing should wait for the device. `run.stop(reason)` makes it the last."""

    def on_evaluate(self, run: TrainingRun, metrics: dict[str, float]) -> Stop | None:
        """An evaluation is done; more may be added to what is logged of it."""

    def on_save(self, run: TrainingRun, checkpoint: Path) -> Stop | None:
        """A checkpoint is written, or on its way to the disk."""

    def on_end(self, run: TrainingRun) -> Stop | None:
        """The last step is done, evaluated and saved."""


Kind = TypeVar("Kind", bound=type[Callback])


def register_callback(callback: Kind) -> Kind:
    """Make a callback known by its class's name to this process and to those that it starts: a decorator.

    >>> @register_callback
    ... class Patience(Callback):
    ...     def on_evaluate(self, run, metrics):
    ...         if run.progress.step > run.progress.best_step + 1000:
    ...             return Stop("1000 steps without a better one")
    >>> Trainer(model="gpt2/tiny", overrides={"train.callbacks": ["Patience"]})
    """
    _registered[callback.__name__] = callback
    plugins.remember(callback.__module__)
    return callback


def callbacks_named(names: Sequence[str]) -> list[Callback]:
    """Those that a recipe names, or an error that lists what there is."""
    return [_find(name)() for name in names]


@contextmanager
def handed_over(callbacks: Sequence[Callback]) -> Iterator[list[str]]:
    """Keep objects for the run that this process is about to make; gives the keys to find them by."""
    keys = {f"{id(callback):x}": callback for callback in callbacks}
    _handed_over.update(keys)
    try:
        yield list(keys)
    finally:
        for key in keys:
            _handed_over.pop(key, None)


def callbacks_kept(keys: Sequence[str]) -> list[Callback]:
    """The objects that were handed over under these keys, in the same process."""
    return [_handed_over[key] for key in keys]


def _find(name: str) -> type[Callback]:
    found = _registered.get(name) or plugins.find(GROUP, name)
    if found is None:
        known = sorted({*_registered, *plugins.names(GROUP)})
        fix = did_you_mean(name, known) if known else "install the package that brings it, or leave it out"
        raise ConfigError(f"train.callbacks = {name}", why="there is no such callback", fix=fix)
    return found
