"""A question before something is removed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddock.errors import ConfigError
from paddock.telemetry.format import bytes_


def confirmed(verb: str, lines: Sequence[str], size: int, *, has_dry_run: bool) -> bool:
    """Show what is to go, and ask, if there is somebody to ask; else an error that says how to do without."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"paddock {verb} asks before it removes anything, and there is no terminal to ask at",
            fix="add --yes" + (", or look first with --dry-run" if has_dry_run else ""),
        )
    for line in lines:
        print(line, file=sys.stderr)
    print(f"remove {bytes_(size)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
