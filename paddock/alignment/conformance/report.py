"""The verdicts on a device, one a check, and the tier that they earn it. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from paddock.errors import CheckFailed

Tier = Literal["inference", "data parallel", "full 3D"]
"""What a device can be used for; each one holds those before it."""
Verdict = Literal["pass", "fail", "skipped"]
TIERS: tuple[Tier, ...] = get_args(Tier)
CLAIMS: Mapping[str, Tier] = {"data": "data parallel", "full": "full 3D"}
"""What an adapter's `parallelism` promises."""
FOR_ALL_KINDS = 8
"""Devices that a layout takes with two parts of data, of tensors and of a pipeline."""


@dataclass(frozen=True)
class Row:
    """One check."""

    name: str
    tier: Tier | None
    """The lowest that needs it; None where no tier does."""
    verdict: Verdict
    detail: str = ""
    devices: int = 1
    """How many it was made on, or would have been."""


@dataclass(frozen=True)
class Report:
    """All that was found of a device."""

    device: str
    model: str
    """As its vendor calls it."""
    versions: Mapping[str, str | None]
    claims: Tier
    rows: Sequence[Row]
    by_host: Mapping[str, Mapping[str, float]]
    """Operators that the device lacks and the host computed: calls and seconds."""

    @property
    def earned(self) -> Tier | None:
        """The highest tier of which nothing failed, and nothing was left out."""
        found: Tier | None = None
        for tier in TIERS:
            if any(row.verdict != "pass" for row in self.rows if row.tier == tier):
                break
            found = tier
        return found

    @property
    def stands_on(self) -> str:
        """What the highest tier was earned by: with few devices, no layout has all kinds of parallelism at once."""
        if self.earned != TIERS[-1]:
            return ""
        most = max(row.devices for row in self.rows if row.tier == TIERS[-1])
        together = most >= FOR_ALL_KINDS
        how = "data × tensor × pipeline parallelism at once" if together else "each kind of parallelism by itself"
        return f"{how}, over {most} processes"

    @property
    def failed(self) -> list[Row]:
        """What fails of the tier that the adapter claims."""
        claimed = TIERS[: TIERS.index(self.claims) + 1]
        return [row for row in self.rows if row.verdict == "fail" and row.tier in claimed]

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "model": self.model,
            "versions": dict(self.versions),
            "claims": self.claims,
            "earned": self.earned,
            "stands_on": self.stands_on,
            "passes": not self.failed,
            "checks": [asdict(row) for row in self.rows],
            "computed_by_host": {name: dict(entry) for name, entry in self.by_host.items()},
        }

    def conclusion(self) -> str:
        """What it earned, and why not more."""
        earned = (self.earned or "no tier") + (f" ({self.stands_on})" if self.stands_on else "")
        if self.earned == self.claims:
            return f"{self.device} earns: {earned}, as its adapter claims"
        wanted = TIERS[: TIERS.index(self.claims) + 1]
        missing = [row for row in self.rows if row.verdict != "pass" and row.tier in wanted]
        if not missing:
            return f"{self.device} earns: {earned}; its adapter claims {self.claims} alone"
        reasons = ", ".join(f"{row.name} ({row.verdict})" for row in missing[:4]) + (" …" if len(missing) > 4 else "")
        return f"{self.device} earns: {earned}; its adapter claims {self.claims}, for which it lacks: {reasons}"

    def table(self) -> str:
        """A line for every check."""
        width = max(len(row.name) for row in self.rows)
        head = f"{'check':<{width}}  {'tier':<13}  verdict  detail"
        lines = [f"{row.name:<{width}}  {row.tier or '–':<13}  {_mark(row):<7}  {row.detail}" for row in self.rows]
        return "\n".join([f"{self.device}: {self.model}", head, *map(str.rstrip, lines), "", self.conclusion()])

    def markdown(self) -> str:
        """The same for a pull request."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        rows = [f"| {row.name} | {row.tier or '–'} | {_mark(row)} | {_cell(row.detail)} |" for row in self.rows]
        head = ["| check | tier | verdict | detail |", "|---|---|---|---|"]
        about = [f"# Device check: {self.device}", "", f"{_cell(self.model)}; {versions}", "", self.conclusion(), ""]
        return "\n".join([*about, *head, *rows, ""])

    def raise_if_failed(self) -> None:
        """Raise CheckFailed if a check of the claimed tier fails."""
        if self.failed:
            first = self.failed[0]
            raise CheckFailed(
                f"{self.device}: {len(self.failed)} of {len(self.rows)} checks fail: "
                + ", ".join(row.name for row in self.failed[:8])
                + (" …" if len(self.failed) > 8 else ""),
                why=f"{first.name}: {first.detail}",
            )


def _mark(row: Row) -> str:
    return "FAIL" if row.verdict == "fail" else row.verdict


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
