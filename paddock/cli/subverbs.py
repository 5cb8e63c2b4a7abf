"""Verbs with verbs of their own: `paddock recipe show`, `paddock cache clean`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from paddock.cli.arguments import HELP_FLAGS
from paddock.cli.pages import show_page
from paddock.errors import ConfigError, did_you_mean

Subverbs = Mapping[str, tuple[Callable[[list[str]], None], type[Any]]]
"""Each with what runs it and the options that say what it does."""


def run_subverb(verb: str, subverbs: Subverbs, arguments: list[str]) -> None:
    """Run the one that is named first; --help alone explains all of them in a line each."""
    wanted = arguments[0] if arguments else ""
    if wanted in HELP_FLAGS:
        show_page(_overview(verb, subverbs))
    elif wanted in subverbs:
        subverbs[wanted][0](arguments[1:])
    else:
        raise ConfigError(
            f'paddock {verb} has no verb "{wanted}"' if wanted else f"paddock {verb} needs to know what to do",
            fix=did_you_mean(wanted, list(subverbs)),
        )


def _overview(verb: str, subverbs: Subverbs) -> str:
    lines = [f"usage: paddock {verb} {'|'.join(subverbs)} …", "  --help after one of them explains it", ""]
    for name, (_, options) in subverbs.items():
        first = inspect.cleandoc(options.__doc__ or "").partition(".")[0].replace("\n", " ")
        lines.append(f"  {name:<8} {first}")
    return "\n".join(lines)
