"""How a callback says that a run has done enough."""

from __future__ import annotations

from collections.abc import Callable


class Stop(Exception):
    """What a callback returns or raises to end the run; a checkpoint of its last step is saved.

    A `Callback` is in the run: when it has said so of a step, the next one is under way, and is the last. A function
    follows the run, and hears of a record at most 0.2 seconds after it was written; the run looks after every step
    whether a function has asked, and the next step, which is under way then, is the last.

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
