"""Processes that act together: what one of them fails at, all of them hear of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

from paddock.errors import UserError

T = TypeVar("T")


def agree(action: Callable[[], T] | None, group: dist.ProcessGroup | None = None) -> list[T | None]:
    """Do `action`, if this process has one; returns everyone's results, or raises, in all of them, what one met."""
    outcome: T | Exception | None = None
    if action is not None:
        try:
            outcome = action()
        except Exception as error:
            outcome = error
    outcomes: list[T | Exception | None] = [outcome]
    if dist.is_initialized():
        outcomes = [None] * dist.get_world_size(group)
        dist.all_gather_object(outcomes, outcome, group=group)
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if errors:
        raise first_error(errors)
    return [outcome for outcome in outcomes if not isinstance(outcome, Exception)]


def first_error(errors: Sequence[BaseException]) -> BaseException:
    """The one to show: what a user can act on rather than what followed from it."""
    return min(errors, key=lambda error: not isinstance(error, UserError))
