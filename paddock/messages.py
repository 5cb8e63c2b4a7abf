"""Errors on their way to another process, as JSON and never as pickles: a message is data, not code."""

from __future__ import annotations

import importlib
from typing import Any

from paddock.errors import UserError
from paddock.plugins import is_known


class PeerFailed(Exception):
    """Another process met an error that is no user's: a bug. What it was, that process tells."""


def error_to_json(error: UserError) -> dict[str, Any]:
    """An error that a user can act on, as plain values for another process."""
    return {
        "module": type(error).__module__,
        "name": type(error).__qualname__,
        "what": error.what,
        "why": error.why,
        "fix": error.fix,
        "exit_code": error.exit_code,
    }


def error_from_json(user: dict[str, Any]) -> UserError:
    """The error that another process told of."""
    kind: Any = None
    if is_known(user["module"]):
        kind = getattr(importlib.import_module(user["module"]), user["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, UserError)):
        kind = UserError
    error: UserError = kind.__new__(kind)
    UserError.__init__(error, user["what"], why=user["why"], fix=user["fix"])
    error.exit_code = user["exit_code"]
    return error
