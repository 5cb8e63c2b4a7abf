"""`python tests/chaos`: faults against small runs of one and two processes, and a report. See `make chaos-local`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
sys.path.append(str(Path(__file__).parents[2]))  # this project, unless PYTHONPATH says another

from machinery import isolate

cannot_mount = isolate()  # before there are threads: libraries begin some

from campaign import COLUMNS, Campaign, Verdict, warm_up  # noqa: E402
from faults import KINDS, PLANTED  # noqa: E402
from ledger import Ledger, run_faults  # noqa: E402

COUNTED = ("kind", "tried", "recovered", "refused", "unaffected", "lost", "left_behind", "skipped")


def main() -> int:
    options = parse()
    kinds = options.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS) - set(PLANTED):
        raise SystemExit(f"there is no kind {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    ledger = Ledger(None if options.csv is None else Path(options.csv).absolute(), COLUMNS)
    first, count = (options.only, 1) if options.only is not None else (options.first, options.faults)
    numbers = [number for number in range(first, first + count) if not ledger.has(options.seed, number)]
    verdicts = disturb(options, kinds, numbers, ledger) if numbers else []
    rows = summary(ledger.of(options.seed))
    bad = [verdict for verdict in verdicts if verdict.lost or verdict.left]
    print(json.dumps({"kinds": rows, "bad": [vars(one) for one in bad]}) if options.json else table(rows))
    if not options.json:
        for reason in sorted({verdict.skipped for verdict in verdicts if verdict.skipped}):
            print(f"skipped: {reason}")
    return 1 if any(row["lost"] or row["left_behind"] for row in rows) else 0


def disturb(options: argparse.Namespace, kinds: list[str], numbers: list[int], ledger: Ledger) -> list[Verdict]:
    """These faults, each told as soon as it is over."""
    warm_up()
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.keep))
    campaign = Campaign(root, options.seed, kinds, options.processes, options.patience, cannot_mount)
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    try:
        campaign.prepare()
        for verdict in run_faults(numbers, options.seed, campaign.fault, ledger):
            verdicts.append(verdict)
            if not options.quiet:
                tell(verdict, time.monotonic() - begun)
    finally:
        if all(verdict.outcome not in ("lost", "left_behind") for verdict in verdicts):
            shutil.rmtree(root, ignore_errors=True)
        else:
            print(f"what these runs left is in {root}", file=sys.stderr)
    return verdicts


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=len(KINDS), help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with fault K: parts of a campaign")
    parser.add_argument("--seed", type=int, default=0, help="decides moments and sizes")
    parser.add_argument("--kinds", nargs="*", default=[], help=f"only these, in this order: {', '.join(KINDS)}")
    parser.add_argument("--processes", type=int, nargs="*", choices=(1, 2), default=[1, 2], help="of the runs")
    parser.add_argument("--only", type=int, metavar="K", help="fault K alone (with the same --kinds)")
    parser.add_argument("--patience", type=float, default=600, help="seconds until a run counts as hung")
    parser.add_argument("--keep", type=Path, help="where runs are, and stay if something was wrong (default: $TMPDIR)")
    parser.add_argument(
        "--csv",
        help="add a row for each fault to a file, such as benchmarks/results/chaos.csv; what has one is not done again",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no line for each fault")
    return parser.parse_args()


def tell(verdict: Verdict, seconds: float) -> None:
    what = f"{verdict.kind}, {verdict.processes} process{'es' if verdict.processes > 1 else ''}: {verdict.fault}"
    print(f"{seconds:6.0f} s  {verdict.number:>3}  {verdict.outcome:<11} {what}; code {verdict.code}", file=sys.stderr)
    for line in [*verdict.lost, *(f"left behind: {one}" for one in verdict.left)]:
        print(f"              {line}", file=sys.stderr, flush=True)


def summary(told: list[dict[str, str]]) -> list[dict[str, object]]:
    """Outcomes by kind."""
    rows = []
    for kind in dict.fromkeys(row["kind"] for row in told):
        outcomes = [row["outcome"] for row in told if row["kind"] == kind]
        rows.append({"kind": kind, "tried": len(outcomes)} | {name: outcomes.count(name) for name in COUNTED[2:]})
    return rows


def table(rows: list[dict[str, object]]) -> str:
    cells = [list(COUNTED), *([str(row[name]) for name in COUNTED] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COUNTED))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


if __name__ == "__main__":
    sys.exit(main())
