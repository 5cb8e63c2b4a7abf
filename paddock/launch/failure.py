"""What a failing rank leaves behind, which of several failures was the first, and the error that says so.

Failures cross the process border as JSON, never as pickles: a report is data, not code.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import traceback as traceback_module
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import MachineError, UserError
from paddock.messages import PeerFailed, error_from_json, error_to_json
from paddock.process import STOP_SIGNALS, machine_lacks

# How gloo, the TCP store and friends say that somebody else has gone.
PEER_IS_GONE = re.compile(
    r"gloo/transport|connection (was likely )?(closed|reset|refused)|broken pipe|socket closed|"
    r"failed to recv|recvvalue failed|sendbytes failed",
    re.IGNORECASE,
)
NUMBERS = re.compile(r"\d+")
STDERR_TAIL = 64 * 1024


class WorkerFailed(MachineError):
    """A rank failed, other than by an error that a user can act on. `traceback` is that rank's own."""

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", rank: int | None = None, traceback: str = ""
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.rank = rank
        self.traceback = traceback


@dataclass(frozen=True)
class Failure:
    """One rank's failure, as the launcher knows it."""

    rank: int
    time: float
    exit_code: int  # negative: the signal that killed it
    report: dict[str, Any] | None  # what the rank itself recorded, if it could
    traceback: str

    @property
    def signal_name(self) -> str | None:
        if self.exit_code >= 0 or self.report is not None:
            return None
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:  # a real-time signal has no name
            return f"signal {-self.exit_code}"

    @property
    def remoteness(self) -> int:
        """0 may be the cause; 1 an abort, which can be a watchdog's answer; 2 only lost a peer."""
        if self.report is not None:
            return 2 if self.report["lost_peer"] else 0
        return 1 if self.exit_code == -signal.SIGABRT else 0

    @property
    def obeyed_signal(self) -> bool:
        """Whether the rank ended because it was asked to."""
        ended = -self.exit_code if self.exit_code < 0 else self.exit_code - 128  # the latter, if it hung
        return self.report is None and ended in STOP_SIGNALS

    @property
    def signature(self) -> str:
        """The error without the numbers in it: addresses and process ids differ from one attempt to the next."""
        if self.report is None:
            return self.signal_name or f"exit {self.exit_code}"
        return NUMBERS.sub("#", f"{self.report['type']}: {self.report['message'].partition(chr(10))[0]}")

    def describe(self) -> str:
        if self.report is not None:
            first_line = (self.report["message"].splitlines() or [""])[0]
            return f"rank {self.rank} failed: {self.report['type']}: {first_line}".rstrip(": ")
        if self.signal_name is not None:
            hint = " (often: out of memory)" if self.exit_code == -signal.SIGKILL else ""
            return f"rank {self.rank} was killed by {self.signal_name}{hint}"
        return f"rank {self.rank} exited with code {self.exit_code} and left no traceback"

    def to_error(self, errors: Path) -> UserError:
        """The error to raise in the launcher: the rank's own if a user can act on it, else WorkerFailed."""
        lost = "it lost its connection to another rank, which left early or failed on another machine"
        failed = WorkerFailed(
            self.describe(),
            why=lost if self.remoteness == 2 else "",
            fix=f"what each failing rank left is in {errors}",
            rank=self.rank,
            traceback=self.traceback,
        )
        if self.report is None:
            return failed
        if self.report["user"] is None:
            failed.exit_code = UserError.exit_code  # a bug: the same code as in one process
            return failed
        error = error_from_json(self.report["user"])
        error.__cause__ = failed  # keeps the rank and its traceback for --debug
        return error


own_reports: Path | None = None
"""In a worker of ours: where its launcher looks for a report."""


def record(
    error: BaseException, rank: int, *, errors: Path, reports: Path | None = None, traceback: str | None = None
) -> int:
    """In the failing rank: write `errors/rankN.txt` and a report for the launcher; returns the exit code. `traceback`
    is what else is known than where the error was raised."""
    text = "".join(traceback_module.format_exception(error)) if traceback is None else traceback
    user = None
    code = 1
    told = error if isinstance(error, UserError) else machine_lacks(error)
    if told is not None:
        user = error_to_json(told)
        code = told.exit_code
    elif isinstance(error, SystemExit) and isinstance(error.code, int):
        code = error.code & 0xFF or 1
    write_text(errors, rank, text)
    if reports is not None:
        report = {
            "time": time.time(),
            "type": type(error).__name__,
            "message": str(error),
            "lost_peer": _lost_peer(error),
            "traceback": text,
            "user": user,
        }
        partial = reports / f"rank{rank}.partial"
        partial.write_text(json.dumps(report), encoding="utf-8")
        os.replace(partial, reports / f"rank{rank}.json")
    return code


def read(rank: int, exit_code: int, exit_time: float, reports: Path) -> Failure:
    """In the launcher: what is known about a rank that has failed."""
    report = None
    path = reports / f"rank{rank}.json"
    if path.exists():
        report = json.loads(path.read_text(encoding="utf-8"))
        return Failure(rank, report["time"], exit_code, report, report["traceback"])
    return Failure(rank, exit_time, exit_code, None, _tail(reports / f"rank{rank}.fault"))


def last_step(reports: Path) -> int:
    """In the launcher: the last step that a rank of this machine has done."""
    return max((int(path.read_text(encoding="ascii") or 0) for path in reports.glob("rank*.step")), default=0)


def likely_cause_first(failures: list[Failure]) -> list[Failure]:
    """Order by time, but a rank that only lost a peer never stands before one that failed by itself."""
    return sorted(failures, key=lambda failure: (failure.remoteness, failure.time))


def write_up(failure: Failure, errors: Path, reports: Path) -> None:
    """In the launcher: `errors/rankN.txt` with all that the rank left, also when it could write nothing."""
    parts = [failure.traceback or failure.describe() + "\n"]
    stderr = _tail(reports / f"rank{failure.rank}.stderr")
    if stderr:
        parts.append(f"--- standard error of rank {failure.rank} ---\n{stderr}")
    write_text(errors, failure.rank, "\n".join(parts))


def write_text(errors: Path, rank: int, text: str) -> None:
    try:
        errors.mkdir(parents=True, exist_ok=True)
        (errors / f"rank{rank}.txt").write_text(text, encoding="utf-8")
    except OSError:
        pass  # a full disk may be the very failure being told: the launcher still has the report


def _lost_peer(error: BaseException) -> bool:
    """Whether the innermost error of the chain says that another rank has gone."""
    root = error
    while (deeper := root.__cause__ or root.__context__) is not None:
        root = deeper
    if isinstance(root, PeerFailed):
        return True
    if any(kind.__name__ == "DistError" for kind in type(root).__mro__):  # by name: no torch import here
        return True
    return isinstance(root, (RuntimeError, OSError)) and bool(PEER_IS_GONE.search(str(root)))


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - STDERR_TAIL))
        return stream.read().decode("utf-8", errors="replace")
