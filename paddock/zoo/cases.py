"""A case of a contribution, run in a sandbox for a few steps and held against its log."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from paddock.errors import DataError
from paddock.files import scratch_folder
from paddock.process import OUT_OF_MEMORY
from paddock.telemetry.format import bytes_, duration
from paddock.zoo.contribution import NOT_PART
from paddock.zoo.findings import CaseResult, Finding, failed, passed_unless
from paddock.zoo.logs import LOSS, SPEED, LogSummary, Record, devices_of, find_logs, read_log, records_in, summarize
from paddock.zoo.model_file import Case, CasePlace
from paddock.zoo.sandbox import OUTPUT, Limits, Outcome, run_in_sandbox

WITHOUT_MEMORY = re.compile(rf"^MemoryError|{OUT_OF_MEMORY.pattern}", re.IGNORECASE | re.MULTILINE)
SHOWN_LINES = 12
"""Of what a failed script printed last."""


@dataclass(frozen=True)
class RunOptions:
    """How cases are run."""

    device: str | None = None
    """In place of the case's own."""
    steps: int | None = None
    """In place of the case's own."""
    dataset_root: Path | None = None
    """Where datasets are that are no part of a contribution."""
    limits: Limits = field(default_factory=Limits)
    variables: tuple[str, ...] = ()
    """Names of variables that scripts get, beside a clean environment."""


def run_case(place: CasePlace, options: RunOptions) -> tuple[list[Finding], CaseResult | None]:
    """Run one case on a copy of its contribution."""
    check = f"case {place.case.case_name}"
    steps = place.case.params.step if options.steps is None else options.steps
    if steps < 1:
        return [failed(check, f"step = {steps}: it would train to its end", fix="a case has a step of 1 or more")], None
    with scratch_folder() as scratch:
        copy = scratch / "work" / "contribution"
        shutil.copytree(place.contribution, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_PART))
        before = snapshot(copy)
        values = place.case.params.given() | {"step": steps}
        if options.device is not None:
            values["device"] = options.device
        missing = find_dataset(values, copy / place.run_dir, options.dataset_root)
        if missing is not None:
            return [failed(check, missing, "model.yaml", "--dataset-root FOLDER says where datasets are")], None
        command = [sys.executable, str(place.run_file), *as_flags(values)]
        outcome, printed = run_in_sandbox(command, copy / place.run_dir, copy.parent, options.limits, options.variables)
        problems = how_it_ended(check, outcome, printed, options.limits)
        if problems:
            return problems, CaseResult(outcome.seconds, outcome.memory)
        changed = [path for path, state in snapshot(copy).items() if before.get(path) != state]
        records, paths, problems = logs_of(check, place, copy, changed, scratch / OUTPUT)
        folders = {path.parent for path in paths}
        devices = devices_of(records, [path for path in changed if path.parent in folders])
    summary = summarize(records)
    problems = problems or [failed(check, problem) for problem in shortcomings(place.case, summary, steps)]
    result = result_of(outcome, summary)
    findings = passed_unless(check, problems, describe(result, steps))
    return findings + device_findings(check, str(values["device"]), devices), result


def as_flags(values: dict[str, object]) -> list[str]:
    """`--name value`, as the ModelZoo's checker writes them."""
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def find_dataset(values: dict[str, object], run_dir: Path, root: Path | None) -> str | None:
    """Put the path of the dataset into the parameters; or say that it is not there. An empty one is the script's own
    matter. A path may be the beginning of the names of several files."""
    name = str(values.get("dataset_path") or "")
    if not name:
        return None
    for folder in (run_dir, root):
        found = (folder or run_dir) / name
        if folder is not None and found.parent.is_dir() and any(found.parent.glob(f"{escape(found.name)}*")):
            values["dataset_path"] = name if folder is run_dir else str(found.resolve())
            return None
    return f"dataset_path = {name} is not there"


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    """The regular files below a folder, with what changes when they are written to."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def how_it_ended(check: str, outcome: Outcome, printed: str, limits: Limits) -> list[Finding]:
    """What is wrong with the end of a script, if something is."""
    passed_limits = {
        "time": f"it did not end within {duration(limits.seconds)}",
        "memory": f"it used more than {bytes_(limits.memory)} of memory",
        "disk": f"it wrote more than {bytes_(limits.disk)}",
        "output": f"it printed more than {bytes_(limits.output)}",
        "processes": f"it started more than {limits.processes} processes",
        "stopped": "it was stopped from outside",
        "supervisor": "it killed the process that watched it",
    }
    tail = last_lines(printed)
    if outcome.ended is not None:
        return [failed(check, passed_limits[outcome.ended], fix=tail)]
    if outcome.status is None or outcome.status < 0:
        number = -(outcome.status or -signal.SIGKILL)
        names = {one.value: one.name for one in signal.Signals}
        return [failed(check, f"it was ended by {names.get(number, f'signal {number}')}", fix=tail)]
    if outcome.status:
        lacked = f": it may have {bytes_(limits.memory)} of memory" if WITHOUT_MEMORY.search(printed) else ""
        lacked = lacked or (f": it may write {bytes_(limits.disk)}" if os.strerror(errno.EFBIG) in printed else "")
        return [failed(check, f"exit status {outcome.status}{lacked}", fix=tail)]
    if outcome.left:
        return [failed(check, f"it left processes behind: {', '.join(outcome.left[:5])}", fix="end what you start")]
    return []


def last_lines(printed: str) -> str:
    """The end of what a script said."""
    lines = [line for line in printed.splitlines() if line.strip()][-SHOWN_LINES:]
    return "it said last:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def logs_of(
    check: str, place: CasePlace, copy: Path, changed: Iterable[Path], output: Path
) -> tuple[list[Record], list[Path], list[Finding]]:
    """The records of a case's logs, and the logs; or why there are none."""
    run_dir, wanted = copy / place.run_dir, place.case.expect.log
    paths = find_logs(changed) if wanted is None else [path for path in changed if path == run_dir / wanted]
    records: list[Record] = []
    for path in paths:
        try:
            records += read_log(path)
        except DataError as error:
            what = error.what.replace(str(copy), "").lstrip("/")
            return [], [], [failed(check, f"the log does not parse: {what}: {error.why}", fix=error.fix)]
    if not paths and wanted is None:
        records = records_in(output.read_text(encoding="utf-8", errors="replace"))
    if not records:
        fix = "paddock.telemetry.dllogger writes one; `paddock zoo wrap` makes one of what a script prints"
        return [], [], [failed(check, f"there is no unified log{f' {wanted}' if wanted else ''}", fix=fix)]
    return records, paths, []


def device_findings(check: str, asked: str, said: set[str]) -> list[Finding]:
    """Whether a case ran on the device that was asked for, as far as its log says which it was."""
    check = f"{check}: device"
    if asked == "auto":
        return [Finding(check, "passed", f"it took {', '.join(sorted(said)) or 'what was there'}")]
    if not said:
        what = f"not verified: no log says which device it ran on, and {asked} was asked for"
        fix = 'logger.log(step="PARAMETER", data={"device": str(loss.device)})'
        return [Finding(check, "NOT CHECKED", what, fix=fix)]
    others = sorted(said - {asked.partition(":")[0].lower(), _torch_type(asked)})
    if others:
        what = f"it ran on {', '.join(others)}, and {asked} was asked for"
        return [failed(check, what, fix="use what --device says, and no other")]
    return [Finding(check, "passed", f"it ran on {asked}, says its log")]


def _torch_type(name: str) -> str:
    """What torch calls a device, where that is not its name."""
    from paddock.devices import adapter_named, device_names

    return adapter_named(name).torch_type if name in device_names() else name


def shortcomings(case: Case, summary: LogSummary, steps: int) -> list[str]:
    """What a log lacks of what the case should show."""
    if not summary.losses:
        return [f"the log has no {LOSS}"]
    found = []
    bad = [(step, loss) for step, loss in summary.losses if not math.isfinite(loss) or loss == 0]
    if bad:
        step, loss = bad[0]
        found.append(f"the loss is {'exactly 0' if loss == 0 else loss} at step {list(step)}")
    if len(summary.losses) > steps + 1:  # some log the beginning, too
        found.append(f"the log has {len(summary.losses)} steps, and --step asked for {steps}")
    if not summary.speeds:
        found.append(f"the log has no {SPEED}")
    elif not all(math.isfinite(speed) and speed > 0 for speed in summary.speeds):
        found.append(f"{SPEED} is not always a positive number")
    if case.expect.loss_falls and not bad:
        first, last = summary.first_and_last
        if len(summary.losses) < 2 or last >= first:
            found.append(f"the loss does not fall: {first:.4g} at the beginning, {last:.4g} at the end")
    return found + validation_shortcomings(case, summary)


def validation_shortcomings(case: Case, summary: LogSummary) -> list[str]:
    """A validation that says nothing of how good the model is."""
    wanted = case.expect.metric
    if wanted is not None and wanted not in summary.metrics:
        return [f"the log has no {wanted}, which the case expects"]
    if summary.validates and not summary.metrics.keys() - {"val.loss", "val.ips"}:
        return ["it validates, and the log has no metric (val.NAME)"]
    broken = [name for name, value in summary.metrics.items() if not math.isfinite(value)]
    return [f"{broken[0]} is not a finite number"] if broken else []


def result_of(outcome: Outcome, summary: LogSummary) -> CaseResult:
    first, last = summary.first_and_last if summary.losses else (None, None)
    speed = summary.speeds[-1] if summary.speeds else None
    return CaseResult(outcome.seconds, outcome.memory, first, last, speed, summary.metrics)


def describe(result: CaseResult, steps: int) -> str:
    """A case that went well, in a line."""
    loss = f"loss {result.first_loss:.4g} → {result.last_loss:.4g}" if result.first_loss is not None else ""
    metrics = "".join(f", {name} {value:.4g}" for name, value in result.metrics.items() if name != "val.ips")
    speed = f", {result.ips:.4g} samples/s" if result.ips is not None else ""
    return f"{steps} steps in {duration(result.seconds)}: {loss}{speed}{metrics}, {bytes_(result.memory)}"
