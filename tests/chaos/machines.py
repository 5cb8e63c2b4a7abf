"""The machines of one job: a launcher for each, with all that it has started, on this one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import machinery
from campaign import RECIPE
from cluster_records import Verdict
from faults import Scene, Skipped
from machinery import MARK, Attempt

from paddock.testing.hosts import Host, hosts, why_no_hosts

RESTARTS = 3
KNOWN = ("going on from the newest checkpoint", "ending this attempt")
"""What a launcher says that knows of a fault."""


@dataclass(frozen=True)
class Layout:
    """How the processes of a job share its work."""

    name: str
    each: int = 1
    """Processes of a machine."""
    flags: tuple[str, ...] = ()


DATA = Layout("data")
TENSOR = Layout("tensor", 2, ("--parallel.tensor", "2"))
PIPELINE = Layout("pipeline", 2, ("--parallel.pipeline", "2", "--batch.micro", "1"))


class Machines:
    """Two launchers, which meet on a loopback interface of the campaign's own, or in networks of their own."""

    def __init__(self, scene: Scene, timeout: float, port: int, turn: int) -> None:
        self.scene, self.timeout, self.port = scene, timeout, port
        self.turn = turn
        """How often the kind has come before: what alternates follows it."""
        self.attempts: dict[int, Attempt] = {}
        self.former: list[Attempt] = []
        self.prepare: Callable[[int], None] = lambda machine: None
        self.layout = DATA
        self.elastic = False
        self.flags: list[str] = []
        self.hosts: list[Host] = []
        self.known_within = timeout
        """Seconds of silence after which what the fault strikes counts as lost."""
        self.struck = 0.0
        self.looked_after = False
        """Whether a scheduler starts a launcher again that has lost the others, while they go on."""
        self.started_again = 0
        self._attempts_before, self._known_before = 0, 0
        self._later: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._stack = ExitStack()

    def on_hosts(self) -> None:
        """Give each machine a network of its own, or raise Skipped."""
        self.scene.mounts()
        if (reason := why_no_hosts()) is not None:
            raise Skipped(reason)
        self.hosts = self._stack.enter_context(hosts(2))

    def close(self) -> None:
        """Take the networks away, with all that is left in them."""
        self._stack.close()

    def start_all(self) -> None:
        for machine in (0, 1):
            self.start(machine)
            # The first one that comes makes the store of an elastic job: let that be machine 0.
            while self.elastic and not machine and not self._serves(self.attempts[0]):
                time.sleep(0.02)

    def _serves(self, attempt: Attempt) -> bool:
        return attempt.is_over() or bool(attempt.children_of("paddock.launch.rendezvous.keeper"))

    def start(self, machine: int) -> None:
        """The command of a machine, for the first time or again."""
        folder = self.scene.folder / f"machine-{machine}"
        folder.mkdir(exist_ok=True)
        if machine in self.attempts:
            self.former.append(self.attempts[machine])
        mark = f"{self.scene.environment[MARK]}-{machine}-{len(self.former)}"
        environment = {**self.scene.environment, MARK: mark}
        if machine == 0:
            environment.pop("CHAOS_CLOCK", None)
        self.attempts[machine] = Attempt(self._command(machine), folder, environment, lambda: self._begin(machine))

    def _command(self, machine: int) -> list[str]:
        address = self.hosts[0].address if self.hosts else "127.0.0.1"
        command = ["train", *RECIPE, *self.layout.flags, "--run-dir", str(self.scene.run_dir)]
        command += ["--checkpoint.load", "auto", *self.flags, "--nproc-per-node", str(self.layout.each)]
        command += ["--nnodes", "1:2", "--rdzv-id", "chaos"] if self.elastic else ["--nnodes", "2"]
        command += [] if self.elastic else ["--node-rank", str(machine)]
        command += ["--master-addr", address, "--master-port", str(self.port)]
        return [*command, "--max-restarts", str(RESTARTS), "--node-timeout", f"{self.timeout:g}"]

    def _begin(self, machine: int) -> None:
        """In the process that is to become the command."""
        if self.hosts:
            machinery.enter_host(self.hosts[machine].namespace, self.hosts[machine].name)
        self.prepare(machine)

    def strike(self) -> None:
        """The fault happens now."""
        self.struck = time.time()
        self._attempts_before = len(list(self.scene.run_dir.glob("attempts/*")))
        self._known_before = self._known()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something while the job is watched."""
        due = time.monotonic() + seconds
        self.when(lambda: time.monotonic() >= due, action)

    def when(self, condition: Callable[[], bool], action: Callable[[], None]) -> None:
        """Do something once that is so, or all has ended."""
        self._later.append((condition, action))

    def _act(self) -> None:
        for one in list(self._later):
            condition, action = one
            if condition() or self.are_over():
                self._later.remove(one)
                action()

    def everybody(self) -> list[int]:
        """Process ids of all that is left of the job."""
        return [pid for attempt in [*self.attempts.values(), *self.former] for pid in attempt.processes()]

    def kill(self, *pids: int) -> None:
        send(signal.SIGKILL, list(pids))

    def are_over(self) -> bool:
        return all([attempt.is_over() for attempt in self.attempts.values()])

    def text(self) -> str:
        return "\n".join(attempt.text() for attempt in [*self.former, *self.attempts.values()])

    def watch(self, verdict: Verdict, patience: float) -> None:
        """Until all have ended; notes when they knew of the fault."""
        deadline = time.monotonic() + patience
        while self._later or not self.are_over():
            self._act()
            now = time.time() - self.struck
            if verdict.detected is None and self._says_so():
                verdict.detected = now
            self._look_after()
            if time.monotonic() > deadline:
                verdict.wrong.append(f"it hung for {patience:g} s")
                self._later.clear()
                self.kill(*self.everybody())
                deadline = float("inf")
            time.sleep(0.02)
        if verdict.detected is None and any(attempt.code for attempt in self.attempts.values()):
            verdict.detected = time.time() - self.struck

    def _look_after(self) -> None:
        for machine, attempt in list(self.attempts.items()):
            other = self.attempts[1 - machine]
            lost = self.looked_after and attempt.is_over() and attempt.code == 3 and not other.is_over()
            if lost and self.started_again < RESTARTS:
                self.started_again += 1
                self.start(machine)

    def _known(self) -> int:
        text = self.text()
        return sum(text.count(words) for words in KNOWN)

    def _says_so(self) -> bool:
        ended = [attempt for attempt in [*self.attempts.values(), *self.former] if attempt.is_over() and attempt.code]
        by_itself = [attempt for attempt in ended if attempt.code != -signal.SIGKILL]
        return bool(by_itself) or self._known() > self._known_before

    def first_step(self) -> float | None:
        """Seconds to the first step of an attempt that began after the fault, by the clock of its record."""
        lines = []
        with suppress(OSError):
            lines = (self.scene.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        for line in lines:
            with suppress(ValueError):
                record = json.loads(line)
                is_later = record.get("attempt", 1) > self._attempts_before
                if is_later and "train.loss" in record.get("data", {}):
                    return float(record["timestamp"]) - self.struck
        return None


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
