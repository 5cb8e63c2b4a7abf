"""How a callback says that a run has done enough."""

from __future__ import annotations

from collections.abc import Callable


class Stop(Exception):
    """What a callback returns or raises to make the step under way the last one; a checkpoint of it is saved.

    >>> def enough(step, metrics):
    ...     if metrics.get("val.loss", 9) < 5:
    ...         return Stop("a validation loss below 5")
    """

    def __init__(self, reason: str = "a callback") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def wish_of(callback: Callable[..., object], *arguments: object) -> str | None:
    """Call a callback; why the run is to end, if it says so."""
    try:
        said = callback(*arguments)
    except Stop as stop:
        said = stop
    if said is Stop:
        return Stop().reason
    return said.reason if isinstance(said, Stop) else None
