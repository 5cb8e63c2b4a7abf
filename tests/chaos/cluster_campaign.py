"""Disturbing small jobs of two machines, one fault each, and looking at what came of them: the losses and the weights
of an undisturbed one, and nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import machinery
import torch
from campaign import CODES, PROJECT, Losses
from cluster_faults import KINDS, PLANTED
from cluster_records import Verdict
from faults import STEPS, Scene, Skipped
from machinery import MARK
from machines import DATA, Layout, Machines

from paddock.alignment.divergence import TOLERANCE, relative
from paddock.alignment.resume import numbers
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.storage import StoredTensors

SECONDS_TO_GO = 20
"""In which everything that a job had started must be gone, where machines are as fast as they should be."""
SECONDS_TO_STEP = 60
"""From a fault to the first step after it, likewise."""
TIMEOUT = 5
Weights = dict[str, torch.Tensor]


@dataclass
class Undisturbed:
    """A run without a fault."""

    losses: Losses
    tensors: Weights
    seconds: float
    """Until its first step was done: by it a machine is known to be slow, or busy."""


class Campaign:
    """Faults by their number: kind, moment and size follow from (seed, number) alone, and sizes in seconds from how
    fast this machine is."""

    def __init__(
        self,
        root: Path,
        seed: int,
        kinds: list[str],
        timeout: float | None,
        patience: float,
        cannot_mount: str | None,
    ) -> None:
        self._root, self._seed, self._kinds, self._cannot_mount = root, seed, kinds, cannot_mount
        self.timeout = timeout or TIMEOUT
        self._given, self._patience = timeout, patience
        self._undisturbed: dict[str, Undisturbed] = {}

    def prepare(self) -> None:
        """Two runs without a fault: the first prepares the data, the second is the measure of the others."""
        self._run_undisturbed(DATA, "first")
        seconds = self._like(DATA).seconds
        if self._given is None:
            self.timeout = max(TIMEOUT, round(seconds / 3))
        self._patience = max(self._patience, 30 * seconds)

    @property
    def slowness(self) -> float:
        """Seconds that may go by beyond what a fast machine takes."""
        return 3 * self._like(DATA).seconds

    @property
    def first_step_limit(self) -> float:
        return max(SECONDS_TO_STEP, 4 * self.timeout + self.slowness)

    def _like(self, layout: Layout) -> Undisturbed:
        """What a job of that layout comes to."""
        if layout.name not in self._undisturbed:
            self._undisturbed[layout.name] = self._run_undisturbed(layout, f"undisturbed-{layout.name}")
        return self._undisturbed[layout.name]

    def _run_undisturbed(self, layout: Layout, name: str) -> Undisturbed:
        machines = self._machines(0, self._root / name)
        machines.layout, verdict = layout, Verdict(0, "none", "")
        self._run(machines, verdict)
        if verdict.codes != [0, 0]:
            raise SystemExit(f"a run without a fault ended with {verdict.codes}:\n{machines.text()}")
        seconds = machines.first_step()
        assert seconds is not None
        run_dir = machines.scene.run_dir
        return Undisturbed(numbers(run_dir), _tensors(run_dir), seconds)

    def fault(self, number: int) -> Verdict:
        begun = time.monotonic()
        verdict = self._fault(number)
        verdict.seed, verdict.torch, verdict.seconds = self._seed, torch.__version__, time.monotonic() - begun
        if verdict.outcome != "skipped":
            verdict.judge_times(self.first_step_limit)
        return verdict

    def _fault(self, number: int) -> Verdict:
        kind = self._kinds[number % len(self._kinds)]
        machines = self._machines(number, self._root / f"fault-{number}")
        scene, verdict = machines.scene, Verdict(number, kind, "")
        try:
            strike = (KINDS | PLANTED)[kind](machines)
        except Skipped as reason:
            machines.close()
            return Verdict(number, kind, str(reason), "skipped")
        verdict.timeout = machines.known_within
        try:
            try:
                machines.start_all()
                strike()
                verdict.fault = scene.said
                machines.watch(verdict, self._patience)
            finally:
                scene.undo()
            verdict.codes = [machines.attempts[machine].code for machine in (0, 1)]
            verdict.attempts = len(list(scene.run_dir.glob("attempts/*")))
            verdict.wrong += scene.complaints
            if verdict.detected is not None:
                verdict.first_step = machines.first_step()
            self._judge(verdict, machines)
            self._finish(verdict, machines, time.time() - machines.struck)
        finally:
            machines.kill(*machines.everybody())
            machines.close()
        if verdict.outcome != "lost":
            if os.path.ismount(scene.run_dir):
                machinery.unmount(scene.run_dir)
            shutil.rmtree(scene.folder, ignore_errors=True)
        return verdict

    def _run(self, machines: Machines, verdict: Verdict) -> None:
        machines.strike()
        machines.start_all()
        machines.watch(verdict, self._patience)
        verdict.codes = [machines.attempts[machine].code for machine in (0, 1)]

    def _judge(self, verdict: Verdict, machines: Machines) -> None:
        for machine, attempt in machines.attempts.items():
            code, text = attempt.code, attempt.text()
            was_killed = (verdict.kind, machine) in (("kill_machine_0", 0), ("elastic", 1))
            if code not in CODES and not was_killed:
                verdict.wrong.append(f"machine {machine} ended with {code}")
            if re.search(r"^Traceback \(most recent call last\)", text, re.MULTILINE) or code == 1:
                last = next((line for line in reversed(text.splitlines()) if line), "")
                verdict.wrong.append(f"machine {machine}, a traceback: {last}")
            if code in range(1, 8) and "error: " not in text:
                verdict.wrong.append(f"machine {machine} ended with {code}, and no word about it")
        deadline = time.monotonic() + SECONDS_TO_GO + machines.timeout + self.slowness
        while (alive := machines.everybody()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if alive:
            verdict.wrong.append(f"processes {alive} were left behind")
            machines.kill(*alive)

    def _finish(self, verdict: Verdict, machines: Machines, ended: float) -> None:
        """Start it again without a fault, if it did not come to its end: to the same losses and weights. It had `ended`
        so many seconds after the fault."""
        run_dir = machines.scene.run_dir
        by_itself = verdict.codes == [0, 0] or (machines.elastic and verdict.codes[0] == 0)
        if not by_itself:
            verdict.ended_seconds = ended
            machines.scene.environment.pop("CHAOS_CLOCK", None)
            again, left = Verdict(0, "none", ""), STEPS - machines.scene.reported()
            self._run(machines, again)
            if again.codes != [0, 0]:
                verdict.wrong.append(f"it cannot go on: {again.codes}: {machines.text()[-500:]}")
            elif left > 0 and verdict.first_step is None:
                verdict.first_step = machines.first_step()
        self._compare(verdict, machines, run_dir)
        recovered = "recovered" if verdict.attempts > 1 else "unaffected"
        by_itself = by_itself and not machines.started_again
        verdict.outcome = "lost" if verdict.wrong else recovered if by_itself else "resumed"

    def _compare(self, verdict: Verdict, machines: Machines, run_dir: Path) -> None:
        losses, right = numbers(run_dir), self._like(machines.layout)
        if machines.elastic:  # fewer machines add up in another order
            same_steps = losses.keys() == right.losses.keys()
            if not same_steps or any(
                relative(mine, theirs) > TOLERANCE
                for step in losses
                for mine, theirs in zip(losses[step], right.losses[step], strict=True)
            ):
                verdict.wrong.append(f"its losses differ by more than {TOLERANCE:g}")
            return
        if losses != right.losses:
            verdict.wrong.append("its losses differ")
        try:
            mine = _tensors(run_dir)
        except (AssertionError, ValueError) as error:
            verdict.wrong.append(f"its weights cannot be read: {error}")
            return
        if differing := [
            name for name in sorted(mine.keys() | right.tensors.keys()) if not _same(mine, right.tensors, name)
        ]:
            verdict.wrong.append(f"its tensors differ: {', '.join(differing[:4])}")

    def _machines(self, number: int, folder: Path) -> Machines:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
        environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("inject")), str(PROJECT)]),
            "TMPDIR": str(folder / "tmp"),
            "XDG_CACHE_HOME": str(self._root / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self._root / "cache" / "inductor"),
            "OMP_NUM_THREADS": "1",
            MARK: f"{os.getpid()}-{folder.name}",
        }
        shutil.rmtree(folder, ignore_errors=True)
        Path(environment["TMPDIR"]).mkdir(parents=True)
        rng = Random(f"{self._seed}/{number}")
        scene = Scene(number, rng, 2, folder, environment, self._cannot_mount, {})
        return Machines(scene, self.timeout, machinery.free_port(), number // len(self._kinds))


def _tensors(run_dir: Path) -> Weights:
    """All that a run's last checkpoint holds: the weights, and the optimizer's state."""
    latest = CheckpointDirectory(run_dir, None, is_main=False).latest()
    assert latest is not None, "there is no checkpoint"
    return dict(StoredTensors(latest, ""))


def _same(mine: Weights, right: Weights, name: str) -> bool:
    """Bit for bit."""
    return name in mine and name in right and torch.equal(mine[name], right[name])
