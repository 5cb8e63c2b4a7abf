"""Disturbing small runs, one fault each, and looking at what is left: the same losses, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults import EVERY, KINDS, OF_SEVERAL, PLANTED, STEPS, Scene, Skipped, watch_disk
from machinery import MARK, Attempt, open_sockets, unmount

import paddock
from paddock.alignment.resume import numbers
from paddock.checkpoint.directory import CheckpointDirectory

PROJECT = Path(paddock.__file__).parents[1]
RECIPE = [
    *("gpt2/tiny", "--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--model.vocab", "512"),
    *("--model.context", "32", "--data.sequence-length", "32", "--batch.micro", "2", "--batch.global", "4"),
    *("--steps", str(STEPS), "--schedule.warmup", "2", "--evaluate.every", "None", "--log.every", "1"),
    *("--checkpoint.every", str(EVERY), "--checkpoint.keep", "2"),
]
CODES = set(range(9)) | {128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP}
"""What a command may end with."""
SECONDS_TO_GO = 20
"""In which everything that a killed run had started must be gone."""
Losses = dict[int, tuple[float, float]]


@dataclass
class Verdict:
    """What came of a fault."""

    number: int
    kind: str
    fault: str
    processes: int
    code: int | None = None
    """What the disturbed attempt ended with."""
    finished: bool = False
    """Whether the disturbed attempt came to its end all the same."""
    skipped: str = ""
    lost: list[str] = field(default_factory=list)
    """What the run lost, or said wrongly."""
    left: list[str] = field(default_factory=list)
    """What it left behind."""
    seed: int = 0

    @property
    def outcome(self) -> str:
        if self.skipped:
            return "skipped"
        if self.lost:
            return "lost"
        if self.left:
            return "left_behind"
        return "unaffected" if self.finished else "refused" if self.code in range(1, 8) else "recovered"

    def row(self) -> dict[str, object]:
        wrong = [self.skipped] if self.skipped else [*self.lost, *(f"left behind: {one}" for one in self.left)]
        values = {name: getattr(self, name) for name in COLUMNS if name != "wrong"}
        return values | {"wrong": "; ".join(wrong).replace("\n", " ")}


COLUMNS = ("seed", "number", "kind", "processes", "fault", "code", "outcome", "wrong")


class Campaign:
    """Faults by their number: kind, moment and size follow from (seed, number) alone."""

    def __init__(
        self,
        root: Path,
        seed: int,
        kinds: list[str],
        processes: list[int],
        patience: float,
        cannot_mount: str | None,
    ) -> None:
        self._root, self._seed, self._kinds, self._processes = root, seed, kinds, processes
        self._patience, self._cannot_mount = patience, cannot_mount
        self._cache = root / "cache"
        self._writes: dict[str, int] = {}
        self._undisturbed: dict[int, Losses] = {}

    def prepare(self) -> None:
        """Let runs without a fault come to their end, and count their steps on the disk. The first one of all also
        prepares the data, which the others find."""
        for processes in (1, *self._processes):
            folder = self._root / f"undisturbed-{processes}"
            scene = self._scene(0, processes, folder, self._environment(folder))
            counts = folder / "counts"
            counts.mkdir()
            scene.environment["CHAOS_COUNT"] = str(counts)
            attempt = self._start(scene, resumes=False, prepare=watch_disk)
            if not attempt.wait(self._patience) or attempt.code:
                raise SystemExit(f"a run without a fault ended with {attempt.code}:\n{attempt.text()}")
            self._writes |= {f"{processes}/{file.name}": file.stat().st_size for file in counts.iterdir()}
            losses = numbers(scene.run_dir)
            assert len(losses) == STEPS and self._undisturbed.setdefault(processes, losses) == losses

    def fault(self, number: int) -> Verdict:
        """One fault, the run that it met, and what was left."""
        kind = self._kinds[number % len(self._kinds)]
        folder = self._root / f"fault-{number}"
        processes = self._processes[number // len(self._kinds) % len(self._processes)]
        scene = self._scene(number, processes, folder, self._environment(folder))
        try:
            if kind in OF_SEVERAL and max(self._processes) == 1:
                raise Skipped("it takes several processes")
            strike = (KINDS | PLANTED)[kind](scene)
        except Skipped as reason:
            return Verdict(number, kind, scene.said, scene.processes, skipped=str(reason), seed=self._seed)
        verdict = Verdict(number, kind, scene.said, scene.processes, seed=self._seed)
        try:
            disturbed = self._start(scene, resumes=True, prepare=scene.prepare, flags=scene.flags)
            strike(disturbed)
            self._judge_end(verdict, scene, disturbed)
            verdict.lost += scene.complaints
        finally:
            scene.undo()
        self._finish(verdict, scene)
        if verdict.outcome not in ("lost", "left_behind"):
            shutil.rmtree(folder, ignore_errors=True)
        return verdict

    def _judge_end(self, verdict: Verdict, scene: Scene, attempt: Attempt) -> None:
        if not attempt.wait(self._patience):
            verdict.lost.append(f"it hung for {self._patience:g} s")
        verdict.code, verdict.finished = attempt.code, attempt.code == 0 and scene.reported() == STEPS
        self._judge_output(verdict, attempt, dies=scene.may_die)
        if scene.must_save and attempt.code != -signal.SIGKILL:
            saved = _saved_step(scene.run_dir)
            if saved < scene.must_save:
                verdict.lost.append(f"asked to stop at step {scene.must_save}, it has a checkpoint of step {saved}")
        deadline = time.monotonic() + SECONDS_TO_GO
        while (alive := attempt.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if alive:
            verdict.left.append(f"processes {', '.join(map(_command_of, alive))}")
            for pid in alive:
                attempt.signal(signal.SIGKILL, pid)

    def _judge_output(self, verdict: Verdict, attempt: Attempt, dies: bool = False) -> None:
        assert attempt.code is not None
        if attempt.code not in CODES and not (dies and attempt.code < 0):
            verdict.lost.append(f"it ended with {attempt.code}")
        text = attempt.text()
        # torch's own warnings may quote one, behind their prefix.
        if re.search(r"^Traceback \(most recent call last\)", text, re.MULTILINE) or attempt.code == 1:
            verdict.lost.append("a traceback: " + next((line for line in reversed(text.splitlines()) if line), ""))
        if attempt.code > 0 and attempt.code < 8 and "error: " not in text and verdict.kind != "closed_streams":
            verdict.lost.append(f"it ended with {attempt.code}, and no word about it")

    def _finish(self, verdict: Verdict, scene: Scene) -> None:
        """Go on without a fault: to the same losses, and with nothing else left."""
        for name in ("CHAOS_RANK", "CHAOS_STEP"):
            scene.environment.pop(name, None)
        attempt = self._resume(scene)
        if not attempt.wait(self._patience) or attempt.code:
            verdict.lost.append(f"it cannot go on: {attempt.code}: {attempt.text()[-500:]}")
        else:
            self._judge_output(verdict, attempt)
            self._judge_losses(verdict, scene)
        folders = {"run": scene.run_dir, "tmp": Path(scene.environment["TMPDIR"]), "shm": Path("/dev/shm")}
        for name, place in folders.items():
            verdict.left += [f"{name}/{one}" for one in _left_in(place, everything=name != "run")]
        if self._cannot_mount is None:
            verdict.left += [f"a socket: {one}" for one in open_sockets()]
        if os.path.ismount(scene.run_dir) and not (verdict.lost or verdict.left):
            unmount(scene.run_dir)

    def _judge_losses(self, verdict: Verdict, scene: Scene) -> None:
        losses, wanted = numbers(scene.run_dir), self._undisturbed[scene.processes]
        if losses != wanted:
            steps = [step for step in sorted(losses.keys() | wanted.keys()) if losses.get(step) != wanted.get(step)]
            verdict.lost.append(f"the losses of steps {steps[:6]} differ")

    def _scene(self, number: int, processes: int, folder: Path, environment: dict[str, str]) -> Scene:
        shutil.rmtree(folder, ignore_errors=True)
        Path(environment["TMPDIR"]).mkdir(parents=True)
        rng = Random(f"{self._seed}/{number}")
        return Scene(number, rng, processes, folder, environment, self._cannot_mount, self._writes)

    def _environment(self, folder: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("inject")), str(PROJECT)]),
            "TMPDIR": str(folder / "tmp"),
            "XDG_CACHE_HOME": str(self._cache),
            "TORCHINDUCTOR_CACHE_DIR": str(self._cache / "inductor"),  # torch's own, which it makes in any case
            "OMP_NUM_THREADS": "1",
            MARK: f"{os.getpid()}-{folder.name}",
        }

    def _start(
        self,
        scene: Scene,
        *,
        resumes: bool,
        prepare: Callable[[], None] = lambda: None,
        flags: Sequence[str] = (),
    ) -> Attempt:
        command = ["train", *RECIPE, "--run-dir", str(scene.run_dir), "--nproc-per-node", str(scene.processes)]
        command += ["--checkpoint.load", "auto"] if resumes else []
        scene.command = [*command, *flags]
        return Attempt(scene.command, scene.folder, scene.environment, prepare)

    def _resume(self, scene: Scene) -> Attempt:
        """As a user would: `paddock resume RUN` or the command again; only that where there is nothing to resume."""
        if not 0 < _saved_step(scene.run_dir) < STEPS or scene.number % 2:
            return self._start(scene, resumes=True)
        command = ["resume", str(scene.run_dir), "--nproc-per-node", str(scene.processes)]
        return Attempt(command, scene.folder, scene.environment)


def _saved_step(run_dir: Path) -> int:
    """The step of a run's newest checkpoint."""
    latest = CheckpointDirectory(run_dir, None, is_main=False).latest()
    return 0 if latest is None else int(latest.name.rpartition("-")[2])


def _left_in(place: Path, everything: bool) -> list[str]:
    """What should have gone: half of files, and whatever is in a folder that was to be empty."""
    if not place.is_dir():
        return []
    found = [path for path in sorted(place.rglob("*")) if everything or path.name.endswith((".partial", ".replaced"))]
    return [str(path.relative_to(place)) for path in found][:5]


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        words = "?"
    return f"{pid} ({words[-80:].strip()})"


def warm_up() -> None:
    """Import what a command needs: every attempt begins with it."""
    sys.path.insert(0, str(Path(__file__).with_name("inject")))
    import paddock.jobs.train
    import paddock.launch.supervisor
    import paddock.tasks.registry
    import paddock.training.loop  # noqa: F401
