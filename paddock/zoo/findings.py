"""What a check of a contribution found, and the report of all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paddock.errors import CheckFailed

Status = Literal["passed", "failed", "NOT CHECKED"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check has to say."""

    check: str
    """Which check: structure, readme, …, or `case NAME`."""
    status: Status
    what: str
    where: str = ""
    """The file, and the line if there is one, inside the contribution."""
    fix: str = ""

    def __str__(self) -> str:
        return (f"{self.where}: " if self.where else "") + self.what


def failed(check: str, what: str, where: str = "", fix: str = "") -> Finding:
    return Finding(check, "failed", what, where, fix)


def passed_unless(check: str, failures: Sequence[Finding], what: str) -> list[Finding]:
    """The failures of a check; where there are none, what holds."""
    return list(failures) or [Finding(check, "passed", what)]


@dataclass(frozen=True)
class CaseResult:
    """What a case measured in its sandbox."""

    seconds: float
    memory: int
    """Peak bytes of all its processes."""
    first_loss: float | None = None
    last_loss: float | None = None
    ips: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Of its last validation."""


@dataclass(frozen=True)
class Report:
    """All findings of a check, in their order."""

    subject: str
    findings: tuple[Finding, ...]
    cases: dict[str, CaseResult] = field(default_factory=dict)
    """What was measured, by the name of the case."""

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "failed"]

    @property
    def unchecked(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "NOT CHECKED"]

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "passed": self.passed,
            "findings": [asdict(finding) for finding in self.findings],
            "cases": {name: _plain(asdict(case)) for name, case in self.cases.items()},
        }

    def raise_if_failed(self) -> None:
        """Raise CheckFailed if anything is wrong with the contribution."""
        if self.failures:
            first, count = self.failures[0], len(self.failures)
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise CheckFailed(f"{self.subject} does not pass: {first}{more}", fix=first.fix)


def _plain(value: Any) -> Any:
    """Numbers that JSON has no word for, as `metrics.jsonl` spells them."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
