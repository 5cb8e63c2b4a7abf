"""`python tests/chaos/cluster.py`: faults against small runs of two machines, and how long each kept them from work.

The machines are two launchers on this one, which meet on a loopback interface of their own, or in two networks with a
link between them that can be cut. After a fault the job goes on by itself, or ends with a word about it and goes on
when it is started again; either way it ends with the losses and the weights of an undisturbed one, bit by bit, and
within a time. What has a row in the file of --csv is not done again. See `make chaos`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
sys.path.append(str(Path(__file__).parents[2]))  # this project, unless PYTHONPATH says another

import machinery

cannot_mount = machinery.isolate() if __name__ == "__main__" else None  # before there are threads

from campaign import warm_up  # noqa: E402
from cluster_campaign import Campaign  # noqa: E402
from cluster_faults import KINDS, PLANTED  # noqa: E402
from cluster_records import BAD, COLUMNS, NEWER, Verdict, distribution, outcomes, write_times  # noqa: E402
from ledger import Ledger, run_faults  # noqa: E402


def main() -> int:
    options = parse()
    if unknown := set(options.kinds) - set(KINDS) - set(PLANTED):
        raise SystemExit(f"there is no kind {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    csv = None if options.csv is None else Path(options.csv)
    ledger = Ledger(csv, COLUMNS, NEWER)
    first, count = (options.only, 1) if options.only is not None else (options.first, options.faults)
    left = [number for number in range(first, first + count) if not ledger.has(options.seed, number)]
    if len(left) < count:
        print(f"{count - len(left)} of these {count} faults have a row in {csv} already", flush=True)
    if left:
        disturb(options, ledger, left)
    rows = ledger.of(options.seed)
    times = distribution(rows)
    if csv is not None:
        write_times(times, csv.with_stem(f"{csv.stem}-times"))
    print("\n".join(outcomes(rows)))
    for time_of in times:
        print(
            "{what:<13} {kind:<20} p50 {p50:6.1f} s  p90 {p90:6.1f} s  max {max:6.1f} s  of {count}".format(**time_of)
        )
    return 1 if any(row["outcome"] in BAD for row in rows) else 0


def disturb(options: argparse.Namespace, ledger: Ledger, numbers: list[int]) -> None:
    warm_up()
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.keep))
    kinds = options.kinds or list(KINDS)
    campaign = Campaign(root, options.seed, kinds, options.timeout, options.patience, cannot_mount)
    verdicts: list[Verdict] = []
    begun = time.monotonic()
    try:
        campaign.prepare()
        print(
            f"a machine is lost after {campaign.timeout:g} s of silence; a fault is to be known after twice that, and "
            f"the first step after it done within {campaign.first_step_limit:.0f} s",
            flush=True,
        )
        for verdict in run_faults(numbers, options.seed, campaign.fault, ledger):
            verdicts.append(verdict)
            each = (time.monotonic() - begun) / len(verdicts)
            tell(verdict, each * (len(numbers) - len(verdicts)))
    finally:
        if any(verdict.outcome == "lost" for verdict in verdicts):
            print(f"what these runs left is in {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/chaos/cluster.py", description=__doc__)
    parser.add_argument("--faults", type=int, default=len(KINDS), help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with fault K: parts of a campaign")
    parser.add_argument("--only", type=int, metavar="K", help="fault K alone (with the same --kinds)")
    parser.add_argument("--seed", type=int, default=0, help="decides moments and sizes")
    parser.add_argument("--kinds", nargs="*", default=[], help=f"only these, in this order: {', '.join(KINDS)}")
    timeout = "seconds: the --node-timeout of the jobs (default: 5, more on a slow machine)"
    parser.add_argument("--timeout", type=float, help=timeout)
    parser.add_argument("--patience", type=float, default=600, help="seconds until a job counts as hung")
    parser.add_argument("--keep", type=Path, help="where runs are, and stay if something was wrong (default: $TMPDIR)")
    parser.add_argument("--csv", help="add a row for each fault, such as to benchmarks/results/chaos-cluster.csv")
    return parser.parse_args()


def tell(verdict: Verdict, left: float) -> None:
    seconds = {"known after": verdict.detected, "ended after": verdict.ended_seconds}
    seconds["first step after"] = verdict.first_step
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items() if value is not None)
    print(
        f"{verdict.number:>3}  {verdict.outcome:<10} {verdict.kind}: {verdict.fault}; {verdict.codes}; {times}; "
        f"{verdict.seconds:.0f} s, {left / 60:.0f} min to go",
        flush=True,
    )
    for line in verdict.wrong:
        print(f"     {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
