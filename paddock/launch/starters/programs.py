"""Several launchers started from here, as one: the first speaks, all hear a stop signal, and all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from paddock.errors import STOPPED, MachineError
from paddock.files import scratch_folder
from paddock.process import heard_signals

SECONDS_FOR_THE_OTHERS = 60  # to hear by themselves that one has failed, and to say what they lost
SECONDS_TO_TERMINATE = 15
SECONDS_BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Program:
    """One of them."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of this process."""
    ends_with_stdin: bool = False
    """It is asked to stop by closing its standard input, as one on another machine: signals do not travel."""


class _Running:
    def __init__(self, program: Program, errors: Path | None) -> None:
        self.program, self.errors = program, errors
        self.stopped_by_us = False
        self._streams = open(errors, "wb") if errors is not None else None  # noqa: SIM115 - closed in `close`
        stdin = subprocess.PIPE if program.ends_with_stdin else (subprocess.DEVNULL if errors is not None else None)
        try:
            self.process = subprocess.Popen(
                program.command,
                stdin=stdin,
                stdout=self._streams,
                stderr=self._streams,
                env={**os.environ, **program.environment},
                start_new_session=True,  # a terminal's Ctrl-C reaches them through us alone, once
            )
        except OSError as error:
            why = f"{program.command[0]}: {error.strerror}"
            raise MachineError(f"cannot start {program.name}", why=why, fix="check that it is installed") from error

    def stop(self, number: signal.Signals) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        elif self.process.poll() is None:
            self.process.send_signal(number)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self._streams is not None:
            self._streams.close()

    @property
    def exit_code(self) -> int:
        """As a shell counts."""
        code = self.process.returncode
        return code if code >= 0 else 128 - code


def run_together(programs: Sequence[Program]) -> int:
    """Run programs side by side until all have ended. The first one has our streams; what the others said is shown if
    they fail. When one fails, the others have a while to hear of it. Returns the exit code of what went wrong."""
    with scratch_folder() as folder:
        running: list[_Running] = []
        try:
            with _passing_on_signals(running):
                for number, program in enumerate(programs):
                    running.append(_Running(program, folder / str(number) if number else None))
                _wait(running)
        finally:
            for one in running:
                one.close()
        return _conclude(running)


@contextmanager
def _passing_on_signals(running: list[_Running]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        for one in list(running):
            one.stop(signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, pass_on) for number in heard_signals()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(running: Sequence[_Running]) -> None:
    steps = [(SECONDS_FOR_THE_OTHERS, signal.SIGTERM), (SECONDS_TO_TERMINATE, signal.SIGKILL)]
    since: float | None = None
    while left := [one for one in running if one.process.poll() is None]:
        # One that was stopped and has saved is no failure: others may still be saving, or uploading.
        if since is None and any(one.process.returncode not in (None, 0, STOPPED) for one in running):
            since = time.monotonic()
        if since is not None and steps and time.monotonic() - since > steps[0][0]:
            _, number = steps.pop(0)
            since = time.monotonic()
            for one in left:
                one.stopped_by_us = True
                one.stop(number)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _conclude(running: Sequence[_Running]) -> int:
    failed = [one for one in running if one.exit_code and not one.stopped_by_us]
    for one in failed:
        if one.errors is not None and one.exit_code != STOPPED:  # that it stops, the first one says for all
            words = one.errors.read_text(encoding="utf-8", errors="replace").strip()
            for line in (words or f"ended with exit code {one.exit_code} and said nothing").splitlines():
                print(f"{one.program.name}: {line}", file=sys.stderr)
    # Who only lost the others has a launch error: what another one met says more.
    codes = [one.exit_code for one in failed]
    return next((code for code in codes if code != MachineError.exit_code), codes[0] if codes else 0)
