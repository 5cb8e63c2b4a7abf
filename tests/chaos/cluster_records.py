"""What a campaign over several machines writes down: a row for each fault, and the times by kind."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

TIMES = ("detected", "first_step", "ended_seconds")
BAD = ("lost", "late")
"""Outcomes with which a campaign does not succeed, in whichever part of it they came."""


@dataclass
class Verdict:
    """What came of a fault."""

    number: int
    kind: str
    fault: str
    outcome: str = ""
    """`recovered` by itself, `resumed` when it was started again, `unaffected`, `late`, `lost` or `skipped`."""
    codes: list[int | None] = field(default_factory=list)
    """What the launchers of machines 0 and 1 ended with."""
    attempts: int = 0
    detected: float | None = None
    """Seconds from the fault until a launcher said that the attempt has ended, or is being ended; or ended itself."""
    first_step: float | None = None
    """Seconds from the fault to the end of the first step after it; where all launchers had ended and the campaign
    began them again, from then on: `ended_seconds` has what was before."""
    wrong: list[str] = field(default_factory=list)
    seed: int = 0
    timeout: float = 0.0
    """Seconds of silence after which whatever the fault met counts as lost."""
    seconds: float = 0.0
    """What it all took, undisturbed part and end included."""
    torch: str = ""
    ended_seconds: float | None = None
    """Where all launchers had ended and the campaign began them again: seconds from the fault until everything that the
    job had started was gone."""

    def judge_times(self, first_step_limit: float) -> None:
        """A fault that was known too late, or cost too long, is no better than one that was not mended."""
        late = []
        for name, limit in (("detected", 2 * self.timeout), ("first_step", first_step_limit)):
            value = getattr(self, name)
            if value is not None and value > limit:
                late.append(f"{name} after {value:.1f} s, where {limit:.1f} s are allowed")
        self.wrong += late
        if late and self.outcome != "lost":
            self.outcome = "late"

    def row(self) -> dict[str, object]:
        row = asdict(self)
        row["codes"], row["wrong"] = " ".join(map(str, self.codes)), "; ".join(self.wrong)
        return row | {name: round(row[name], 2) for name in (*TIMES, "seconds") if row[name] is not None}


COLUMNS = tuple(one.name for one in fields(Verdict))
NEWER = ("ended_seconds",)
"""Of these, those that rows of earlier campaigns lack."""


def distribution(rows: list[dict[str, str]]) -> list[dict[str, object]]:
    """Of the seconds to know of a fault, to the first step after it, and until all had ended, by kind and of all kinds
    together."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    found: list[dict[str, object]] = []
    for name in TIMES:
        for kind in (*kinds, "all"):
            values = sorted(float(row[name]) for row in rows if row[name] and kind in (row["kind"], "all"))
            if values:
                p50, p90 = (values[math.ceil(share * len(values)) - 1] for share in (0.5, 0.9))
                counts = {"count": len(values), "p50": p50, "p90": p90, "max": values[-1]}
                found.append({"what": name, "kind": kind, **counts})
    return found


def outcomes(rows: list[dict[str, str]]) -> Iterator[str]:
    """In words, by kind."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        came = [row["outcome"] for row in rows if row["kind"] == kind]
        yield f"{kind:<20} " + ", ".join(f"{came.count(one)} {one}" for one in dict.fromkeys(came))


def write_times(times: list[dict[str, object]], path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ["what", "kind", "count", "p50", "p90", "max"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(times)
