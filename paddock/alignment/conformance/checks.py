"""What a check is, and what it may say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paddock.alignment.conformance.report import Row, Tier
from paddock.devices.fallback import missing_operator

TOLERANCE = 1e-5
"""What losses may differ by, relative to each other, of runs that are alike but for the order of their sums."""


class Skipped(Exception):
    """A check that cannot be made here; says why."""


class Wrong(Exception):
    """A check that was made, and not passed; says what was found."""


@dataclass(frozen=True)
class Check:
    """What is looked at, the lowest tier that needs it, and how: gives what to say if it holds."""

    name: str
    tier: Tier | None
    run: Callable[[], str]

    def row(self) -> Row:
        """Make it."""
        try:
            return Row(self.name, self.tier, "pass", self.run())
        except Skipped as reason:
            return Row(self.name, self.tier, "skipped", str(reason))
        except Wrong as found:
            return Row(self.name, self.tier, "fail", str(found))
        except Exception as error:  # a vendor's library may raise anything
            return Row(self.name, self.tier, "fail", first_line(error))


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    missing = missing_operator(error)
    if missing is not None:
        return f"no kernel for {missing}"
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0][:200]}"


def relative_error(found: float, right: float) -> float:
    """How far a number is off; what is no number is infinitely far."""
    return abs(found - right) / max(abs(right), 1e-12) if math.isfinite(found) else math.inf
