"""`python tests/fuzz`: damaged inputs for every reader, with a report. `make fuzz` and the tests run it."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[2]))  # this project, unless PYTHONPATH says another
os.environ.setdefault("XDG_CACHE_HOME", "/nonexistent")  # no reader may fall back on somebody's own cache

import engine
import guided
from engine import (
    FINDINGS,
    PATIENCE,
    Campaign,
    Finding,
    Reader,
    make_input,
    name_of,
    outcome_of,
    progress_line,
    read_corpus,
    save_input,
)
from minimising import minimise

MODULES = [f"readers_{kind}" for kind in ("config", "foreign", "data", "logs", "tokenizers", "weights", "images")]
REPORT = Path(__file__).parents[2] / "benchmarks" / "results" / "fuzz.csv"


def main() -> int:
    options = parse()
    engine.SECONDS = options.processor_seconds
    load = partial(chosen, options.reader, options.module)
    readers = guided.instrument(load) if options.guided else load()
    if options.list:
        print("\n".join(reader.name for reader in readers))
        return 0
    if options.only is not None:
        return show_one(readers[0], options)
    failed = replay(readers, options.quiet)
    known: list[Finding] = []

    def note(finding: Finding) -> None:
        known.append(finding)
        save(finding, options, smaller=False)

    work = guided.work if options.guided else None
    campaign = Campaign(readers, options.seed, options.jobs, note, options.patience, work)
    begun = time.monotonic()
    try:
        if options.inputs or options.seconds:
            campaign.run(options.inputs, options.seconds, lambda text: None if options.quiet else progress_line(text))
    finally:  # a campaign that is stopped has looked at what it has looked at
        rows = [campaign.tallies[reader.name].to_dict(reader.name) for reader in readers]
        if options.csv:
            write_csv(rows, Path(options.csv), options.seed)
    found = [save(finding, options, smaller=True) for finding in known]
    if options.json:
        print(json.dumps({"readers": rows, "corpus": failed, "findings": found}))
    else:
        print(table(rows), f"\n{sum(row['inputs'] for row in rows):,} inputs in {time.monotonic() - begun:.0f} s")
        for one in failed:
            print(f"\n{one['reader']}: {one['what']}\n  {one['where']}\n  {one['last']}")
    return 1 if failed or found else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("--reader", nargs="*", default=[], help="only these (default: all)")
    parser.add_argument("--module", nargs="*", default=MODULES, help="that have READERS")
    parser.add_argument("--guided", action="store_true", help="led by coverage; needs atheris, and --seconds")
    parser.add_argument("--list", action="store_true", help="name the readers, and stop")
    parser.add_argument("--seed", type=int, default=0, help="decides the inputs")
    parser.add_argument("--inputs", type=int, help="so many for a reader of a usual share")
    parser.add_argument("--seconds", type=float, help="so long, over all readers, by the clock")
    parser.add_argument("--only", type=int, metavar="K", help="input K of one reader alone, with what comes of it")
    parser.add_argument("--keep", type=Path, help="with --only: write the input into this folder")
    parser.add_argument("--jobs", type=int, default=min(2, len(os.sched_getaffinity(0))), help="processes")
    parser.add_argument("--processor-seconds", type=float, default=engine.SECONDS, help="that an input may take")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds until a process counts as hung")
    parser.add_argument("--findings", type=Path, default=FINDINGS, help="where findings are written, made small")
    parser.add_argument(
        "--csv",
        help=f"write the table to a file, such as {REPORT.name} in benchmarks/results, beside those of other seeds",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args()
    if options.guided and not (guided.is_installed() and options.seconds):
        parser.error("--guided needs --seconds, and the package atheris (pip install atheris)")
    return options


def chosen(names: list[str], modules: list[str]) -> list[Reader]:
    """The readers of these names in some modules; all, where there are none."""
    every = {reader.name: reader for module in modules for reader in import_module(module).READERS}
    unknown = set(names) - set(every)
    if unknown:
        raise SystemExit(f"there is no reader {', '.join(sorted(unknown))}; there are: {', '.join(every)}")
    return [every[name] for name in names] or list(every.values())


def replay(readers: list[Reader], quiet: bool) -> list[dict[str, str]]:
    """Every input that was a finding once."""
    failed = []
    for reader in readers:
        for name, files in read_corpus(reader).items():
            outcome = outcome_of(reader, files, None)
            if outcome.kind == "finding":
                failed.append(told(reader, outcome.what, f"corpus/{reader.name}/{name}", outcome.trace))
        if not quiet:
            progress_line(f"{reader.name}: corpus")
    return failed


def save(found: Finding, options: argparse.Namespace, smaller: bool) -> dict[str, str]:
    """Write a finding as the corpus would have it: at once as it is, and in the end made small."""
    reader, outcome = found.reader, found.outcome
    place = options.findings / reader.name / name_of(outcome.what, found.files)
    again = f"python tests/fuzz --reader {reader.name} --seed {options.seed} --only {found.number}"
    small = minimise(reader, found.files, found.origin, outcome, options.patience) if smaller else found.files
    save_input(place, small, f"{again if found.number is not None else 'led by coverage'}\n\n{outcome.trace}")
    one = told(reader, outcome.what, f"{place}; {again}" if found.number is not None else str(place), outcome.trace)
    if not options.quiet and not smaller:
        print(f"{one['reader']}: {one['what']}\n  {one['where']}\n  {one['last']}", file=sys.stderr, flush=True)
    return one


def told(reader: Reader, what: str, where: str, trace: str) -> dict[str, str]:
    last = next((line for line in reversed(trace.splitlines()) if line.strip()), "")
    return {"reader": reader.name, "what": what, "where": where, "last": last[:300]}


def show_one(reader: Reader, options: argparse.Namespace) -> int:
    """One input, and what comes of it."""
    origin, files = make_input(reader, options.seed, options.only)
    outcome = outcome_of(reader, files, origin, options.patience)
    for name, content in files.items():
        print(f"--- {name} ({len(content)} bytes)\n{content[:2000]!r}")
    print(f"--- {outcome.kind}: {outcome.what}\n{outcome.trace}")
    if options.keep is not None:
        save_input(options.keep, files, f"{outcome.what}\n\n{outcome.trace}")
    return outcome.kind == "finding"


def table(rows: list[dict[str, object]]) -> str:
    """The report for people."""
    names = list(rows[0])
    cells = [
        names,
        *([f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in names] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in cells)


def write_csv(rows: list[dict[str, object]], path: Path, seed: int) -> None:
    """A row for every reader and seed; those of other seeds stay."""
    own = [{"seed": str(seed), **row} for row in rows]
    others: list[dict[str, str]] = []
    if path.exists():
        with open(path, encoding="utf-8", newline="") as stream:
            others = [row for row in csv.DictReader(stream) if row.get("seed") not in (None, str(seed))]
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(own[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, *own])


if __name__ == "__main__":
    sys.exit(main())
