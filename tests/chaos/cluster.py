"""`python tests/chaos/cluster.py`: faults against small runs of two machines, and how long each kept them from work.

The machines are two launchers on this one, which meet on a loopback interface of their own. After a fault the job goes
on by itself, or ends with a word about it and goes on when it is started again; either way it ends with the losses of
an undisturbed one, bit by bit. See `make chaos`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
sys.path.append(str(Path(__file__).parents[2]))  # this project, unless PYTHONPATH says another

import machinery

cannot_mount = machinery.isolate() if __name__ == "__main__" else None  # before there are threads

from campaign import CODES, PROJECT, RECIPE, warm_up  # noqa: E402
from faults import DISK, EVERY, STEPS, Scene, Skipped, moment  # noqa: E402
from machinery import MARK, Attempt  # noqa: E402

from paddock.alignment.resume import numbers  # noqa: E402

RESTARTS = 3
SECONDS_TO_GO = 20
"""In which everything that a job had started must be gone."""


@dataclass
class Verdict:
    """What came of a fault."""

    number: int
    kind: str
    fault: str
    outcome: str = ""
    """`recovered` by itself, `resumed` when it was started again, `unaffected`, `lost` or `skipped`."""
    codes: list[int | None] = field(default_factory=list)
    """What the launchers of machines 0 and 1 ended with."""
    attempts: int = 0
    detected: float | None = None
    """Seconds from the fault until a launcher said that the attempt had ended everywhere, or ended itself."""
    first_step: float | None = None
    """Seconds from the fault to the end of the first step after it, where the job went on by itself."""
    wrong: list[str] = field(default_factory=list)


class Machines:
    """The launchers of one job, with all that they have started."""

    def __init__(self, scene: Scene, timeout: float, port: int) -> None:
        self.scene, self.timeout, self.port = scene, timeout, port
        self.attempts: dict[int, Attempt] = {}
        self.former: list[Attempt] = []
        self.prepare: Callable[[], None] = lambda: None
        self.struck = 0.0
        self.looked_after = False
        """Whether a scheduler starts a launcher again that has lost the others, while they go on."""
        self.started_again = 0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def start(self, machine: int) -> None:
        """The command of a machine, for the first time or again."""
        folder = self.scene.folder / f"machine-{machine}"
        folder.mkdir(exist_ok=True)
        if machine in self.attempts:
            self.former.append(self.attempts[machine])
        mark = f"{self.scene.environment[MARK]}-{machine}-{len(self.former)}"
        command = ["train", *RECIPE, "--run-dir", str(self.scene.run_dir), "--checkpoint.load", "auto"]
        command += ["--nnodes", "2", "--node-rank", str(machine), "--master-addr", "127.0.0.1"]
        command += ["--master-port", str(self.port), "--max-restarts", str(RESTARTS)]
        command += ["--node-timeout", f"{self.timeout:g}"]
        environment = {**self.scene.environment, MARK: mark}
        if machine == 0:
            environment.pop("CHAOS_CLOCK", None)
        self.attempts[machine] = Attempt(command, folder, environment, self.prepare)

    def strike(self) -> None:
        """The fault happens now."""
        self.struck = time.time()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something while the job is watched."""
        self._later.append((time.monotonic() + seconds, action))

    def _act(self) -> None:
        due = [one for one in self._later if one[0] <= time.monotonic()]
        for one in due:
            self._later.remove(one)
            one[1]()

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
        """Until all have ended; notes when they knew of the fault, and when they were at work again."""
        deadline = time.monotonic() + patience
        before = self._records()
        while self._later or not self.are_over():
            self._act()
            now = time.time() - self.struck
            if verdict.detected is None and self._says_so():
                verdict.detected = now
            if verdict.first_step is None and verdict.detected is not None and self._records() > before:
                verdict.first_step = self._first_step()
            before = self._records() if verdict.detected is None else before
            self._look_after()
            if time.monotonic() > deadline:
                verdict.wrong.append(f"it hung for {patience:g} s")
                self.kill(*self.everybody())
            time.sleep(0.02)
        if verdict.detected is None and any(attempt.code for attempt in self.attempts.values()):
            verdict.detected = time.time() - self.struck
        if verdict.first_step is None and verdict.detected is not None:
            verdict.first_step = self._first_step()

    def _look_after(self) -> None:
        for machine, attempt in list(self.attempts.items()):
            other = self.attempts[1 - machine]
            lost = self.looked_after and attempt.is_over() and attempt.code == 3 and not other.is_over()
            if lost and self.started_again < RESTARTS:
                self.started_again += 1
                self.start(machine)

    def _says_so(self) -> bool:
        ended = [attempt for attempt in [*self.attempts.values(), *self.former] if attempt.is_over() and attempt.code]
        by_itself = [attempt for attempt in ended if attempt.code != -signal.SIGKILL]
        return "going on from the newest checkpoint" in self.text() or bool(by_itself)

    def _records(self) -> int:
        return self.scene.reported()

    def _first_step(self) -> float | None:
        """From the fault to the first step of a later attempt, by the clock of its record."""
        lines = []
        with suppress(OSError):
            lines = (self.scene.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        for line in lines:
            with suppress(ValueError):
                record = json.loads(line)
                if record.get("attempt", 1) > 1 and "train.loss" in record.get("data", {}):
                    moment = float(record["timestamp"])
                    if moment > self.struck:
                        return moment - self.struck
        return None


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


Fault = Callable[[Machines], Callable[[], None]]
"""Prepares; what it returns strikes."""


def kill_rank(machines: Machines) -> Callable[[], None]:
    machine = machines.scene.number // len(KINDS) % 2
    when, wait = moment(machines.scene)
    machines.scene.said = f"SIGKILL to rank {machine} {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        while not machines.are_over() and not machines.attempts[machine].ranks():
            time.sleep(0.01)
        machines.strike()
        machines.kill(*machines.attempts[machine].ranks()[:1])

    return strike


def kill_launcher(machine: int) -> Fault:
    def fault(machines: Machines) -> Callable[[], None]:
        when, wait = moment(machines.scene)
        pause = machines.scene.rng.choice((0.0, 0.5 * machines.timeout, 2 * machines.timeout))
        what = "that has made the store" if machine == 0 else "without the store"
        machines.looked_after = True
        machines.scene.said = f"SIGKILL to the launcher {what} {when}; started again after {pause:g} s"

        def strike() -> None:
            wait(machines.attempts[0])
            machines.strike()
            machines.kill(machines.attempts[machine].pid)
            machines.later(pause, lambda: machines.start(machine))

        return strike

    return fault


def kill_store(machines: Machines) -> Callable[[], None]:
    when, wait = moment(machines.scene)
    machines.scene.said = f"SIGKILL to the process that keeps the store {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        while not machines.are_over() and not machines.attempts[0].children_of("paddock.launch.keeper"):
            time.sleep(0.01)
        machines.strike()
        machines.kill(*machines.attempts[0].children_of("paddock.launch.keeper"))

    return strike


def kill_machine_0(machines: Machines) -> Callable[[], None]:
    when, wait = moment(machines.scene)
    machines.scene.said = f"SIGKILL to every process of machine 0 {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        machines.strike()
        machines.kill(machines.attempts[0].pid, *machines.attempts[0].processes())

    return strike


def freeze(machine: int) -> Fault:
    def fault(machines: Machines) -> Callable[[], None]:
        when, wait = moment(machines.scene)
        seconds = machines.scene.rng.choice((0.5, 1.5, 3)) * machines.timeout
        machines.looked_after = True
        machines.scene.said = f"SIGSTOP to every process of machine {machine} for {seconds:g} s {when}"

        def strike() -> None:
            wait(machines.attempts[0])
            pids = [machines.attempts[machine].pid, *machines.attempts[machine].processes()]
            machines.strike()
            send(signal.SIGSTOP, pids)
            machines.later(seconds, lambda: send(signal.SIGCONT, pids))

        return strike

    return fault


def cut_link(machines: Machines) -> Callable[[], None]:
    """For less than it takes to be lost. For longer, machines need networks of their own: this one's loopback is also
    the way from machine 0 to itself."""
    machines.scene.mounts()
    when, wait = moment(machines.scene)
    seconds = machines.scene.rng.uniform(0.1, 0.4) * machines.timeout
    machines.scene.said = f"the network between all processes is down for {seconds:.1f} s {when}"

    def strike() -> None:
        wait(machines.attempts[0])
        machines.strike()
        machinery.set_loopback(up=False)
        machines.later(seconds, lambda: machinery.set_loopback(up=True))

    machines.scene.undo_by(lambda: machinery.set_loopback(up=True))
    return strike


def skew_clock(machines: Machines) -> Callable[[], None]:
    """The clock of machine 1 is an hour ahead, or behind; and a rank is killed, so that there is something to do."""
    hours = machines.scene.rng.choice((1, -1))
    strike = kill_rank(machines)
    machines.scene.said = f"the clock of one machine is off by {hours} h, and {machines.scene.said}"
    machines.scene.environment["CHAOS_CLOCK"] = str(3600 * hours)
    return strike


def stop(machines: Machines) -> Callable[[], None]:
    number = machines.scene.rng.choice((signal.SIGTERM, signal.SIGHUP))
    machine = machines.scene.rng.randrange(2)
    step = machines.scene.rng.randrange(1, STEPS - 2)
    machines.scene.said = f"{number.name} to the launcher of machine {machine} after step {step}"

    def strike() -> None:
        machines.scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        machines.attempts[machine].signal(number)

    return strike


def full_disk(machines: Machines) -> Callable[[], None]:
    scene = machines.scene
    scene.mounts()
    size = scene.rng.choice((200, 600, 1500, 2500)) << 10
    scene.said = f"a disk of {size >> 10} kB for the run, until it has failed for it"
    scene.run_dir.mkdir(parents=True)
    machinery.mount_memory(scene.run_dir, size)
    scene.undo_by(lambda: machinery.resize_memory(scene.run_dir, DISK))
    return machines.strike


def damage_all(machines: Machines) -> Callable[[], None]:
    """Something that no run survives: for trying whether a campaign sees it."""
    machines.scene.said = "a changed byte in every checkpoint, and SIGKILL to rank 1"

    def strike() -> None:
        machines.scene.wait_for_step(machines.attempts[0], EVERY + 1)
        machines.strike()
        machines.kill(*machines.attempts[1].ranks()[:1])
        for place in machines.scene.run_dir.glob("checkpoints/step-*"):
            change_a_byte(place)

    return strike


def change_a_byte(checkpoint: Path) -> None:
    for file in checkpoint.glob("*.safetensors"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)


def damage(machines: Machines) -> Callable[[], None]:
    scene = machines.scene
    step = scene.rng.randrange(EVERY + 1, STEPS - 2)
    scene.said = f"a changed byte in the newest checkpoint, and SIGKILL to rank 1 after step {step}"

    def strike() -> None:
        scene.wait_for_step(machines.attempts[0], step)
        machines.strike()
        machines.kill(*machines.attempts[1].ranks()[:1])
        newest = sorted(scene.run_dir.glob("checkpoints/step-*"))[-1]
        change_a_byte(newest)
        # Whoever looks after the run takes the damaged one away: the error names it.
        scene.undo_by(lambda: shutil.rmtree(newest))

    return strike


PLANTED: dict[str, Fault] = {"damaged_run": damage_all}
KINDS: dict[str, Fault] = {
    "kill_rank": kill_rank,
    "kill_launcher_1": kill_launcher(1),
    "kill_launcher_0": kill_launcher(0),
    "kill_store": kill_store,
    "kill_machine_0": kill_machine_0,
    "freeze_machine_1": freeze(1),
    "freeze_machine_0": freeze(0),
    "cut_link": cut_link,
    "skew_clock": skew_clock,
    "stop": stop,
    "full_disk": full_disk,
    "damaged_checkpoint": damage,
}


class Campaign:
    """Faults by their number: kind, moment and size follow from (seed, number) alone."""

    def __init__(self, root: Path, seed: int, kinds: list[str], timeout: float, patience: float) -> None:
        self._root, self._seed, self._kinds = root, seed, kinds
        self._timeout, self._patience = timeout, patience
        self._undisturbed: object = None

    def prepare(self) -> None:
        """Two runs without a fault: the first prepares the data."""
        for name in ("first", "undisturbed"):
            machines = self._machines(0, self._root / name)
            verdict = Verdict(0, "none", "")
            self._run(machines, verdict)
            if verdict.codes != [0, 0]:
                raise SystemExit(f"a run without a fault ended with {verdict.codes}:\n{machines.text()}")
            self._undisturbed = numbers(machines.scene.run_dir)

    def fault(self, number: int) -> Verdict:
        kind = self._kinds[number % len(self._kinds)]
        machines = self._machines(number, self._root / f"fault-{number}")
        scene, verdict = machines.scene, Verdict(number, kind, "")
        try:
            strike = (KINDS | PLANTED)[kind](machines)
        except Skipped as reason:
            return Verdict(number, kind, str(reason), "skipped")
        try:
            for machine in (0, 1):
                machines.prepare = skewed if "CHAOS_CLOCK" in scene.environment and machine == 1 else lambda: None
                machines.start(machine)
            strike()
            verdict.fault = scene.said
            machines.watch(verdict, self._patience)
        finally:
            scene.undo()
        verdict.codes = [machines.attempts[machine].code for machine in (0, 1)]
        verdict.attempts = len(list(scene.run_dir.glob("attempts/*")))
        self._judge(verdict, machines)
        self._finish(verdict, machines)
        if verdict.outcome != "lost":
            if os.path.ismount(scene.run_dir):
                machinery.unmount(scene.run_dir)
            shutil.rmtree(scene.folder, ignore_errors=True)
        return verdict

    def _run(self, machines: Machines, verdict: Verdict) -> None:
        machines.strike()
        for machine in (0, 1):
            machines.start(machine)
        machines.watch(verdict, self._patience)
        verdict.codes = [machines.attempts[machine].code for machine in (0, 1)]

    def _judge(self, verdict: Verdict, machines: Machines) -> None:
        for machine, attempt in machines.attempts.items():
            code, text = attempt.code, attempt.text()
            was_killed = verdict.kind == "kill_machine_0" and machine == 0
            if code not in CODES and not was_killed:
                verdict.wrong.append(f"machine {machine} ended with {code}")
            if re.search(r"^Traceback \(most recent call last\)", text, re.MULTILINE) or code == 1:
                last = next((line for line in reversed(text.splitlines()) if line), "")
                verdict.wrong.append(f"machine {machine}, a traceback: {last}")
            if code in range(1, 8) and "error: " not in text:
                verdict.wrong.append(f"machine {machine} ended with {code}, and no word about it")
        deadline = time.monotonic() + SECONDS_TO_GO + self._timeout
        while (alive := machines.everybody()) and time.monotonic() < deadline:
            time.sleep(0.05)
        if alive:
            verdict.wrong.append(f"processes {alive} were left behind")
            machines.kill(*alive)

    def _finish(self, verdict: Verdict, machines: Machines) -> None:
        """Start it again without a fault, if it did not come to its end: to the same losses."""
        is_done = verdict.codes == [0, 0]
        if not is_done:
            machines.scene.environment.pop("CHAOS_CLOCK", None)
            again = Verdict(0, "none", "")
            self._run(machines, again)
            if again.codes != [0, 0]:
                verdict.wrong.append(f"it cannot go on: {again.codes}: {machines.text()[-500:]}")
        if numbers(machines.scene.run_dir) != self._undisturbed:
            verdict.wrong.append("its losses differ")
        recovered = "recovered" if verdict.attempts > 1 else "unaffected"
        by_itself = is_done and not machines.started_again
        verdict.outcome = "lost" if verdict.wrong else recovered if by_itself else "resumed"

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
        scene = Scene(number, rng, 2, folder, environment, cannot_mount, {})
        return Machines(scene, self._timeout, machinery.free_port())


def skewed() -> None:
    """In a launcher, which is not begun anew, what Python runs first in what it starts."""
    from sitecustomize import skew

    skew()


def main() -> int:
    options = parse()
    if unknown := set(options.kinds) - set(KINDS) - set(PLANTED):
        raise SystemExit(f"there is no kind {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    warm_up()
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.keep))
    campaign = Campaign(root, options.seed, options.kinds or list(KINDS), options.timeout, options.patience)
    verdicts: list[Verdict] = []
    try:
        campaign.prepare()
        for number in (
            [options.only] if options.only is not None else range(options.first, options.first + options.faults)
        ):
            verdicts.append(campaign.fault(number))
            tell(verdicts[-1])
            if options.csv:
                write_csv(verdicts, Path(options.csv))
    finally:
        if any(verdict.outcome == "lost" for verdict in verdicts):
            print(f"what these runs left is in {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)
    print("\n".join(summary(verdicts, options.timeout)))
    return 1 if any(verdict.outcome == "lost" for verdict in verdicts) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/chaos/cluster.py", description=__doc__)
    parser.add_argument("--faults", type=int, default=len(KINDS), help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with fault K: parts of a campaign")
    parser.add_argument("--only", type=int, metavar="K", help="fault K alone (with the same --kinds)")
    parser.add_argument("--seed", type=int, default=0, help="decides moments and sizes")
    parser.add_argument("--kinds", nargs="*", default=[], help=f"only these, in this order: {', '.join(KINDS)}")
    parser.add_argument("--timeout", type=float, default=5, help="seconds: the --node-timeout of the jobs")
    parser.add_argument("--patience", type=float, default=600, help="seconds until a job counts as hung")
    parser.add_argument("--keep", type=Path, help="where runs are, and stay if something was wrong (default: $TMPDIR)")
    parser.add_argument("--csv", help="write a row for each fault, such as benchmarks/results/chaos-cluster.csv")
    return parser.parse_args()


def tell(verdict: Verdict) -> None:
    times = ", ".join(
        f"{name} {value:.1f} s"
        for name, value in (("known after", verdict.detected), ("first step after", verdict.first_step))
        if value is not None
    )
    print(f"{verdict.number:>3}  {verdict.outcome:<10} {verdict.kind}: {verdict.fault}; {verdict.codes}; {times}")
    for line in verdict.wrong:
        print(f"     {line}", flush=True)


def write_csv(verdicts: list[Verdict], path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        rows = [asdict(verdict) for verdict in verdicts]
        for row in rows:
            row["codes"], row["wrong"] = " ".join(map(str, row["codes"])), "; ".join(row["wrong"])
            row |= {name: round(row[name], 2) for name in ("detected", "first_step") if row[name] is not None}
        writer = csv.DictWriter(stream, list(asdict(Verdict(0, "", ""))), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def summary(verdicts: list[Verdict], timeout: float) -> Iterator[str]:
    """Outcomes by kind, and the times in which jobs knew and were at work again."""
    for kind in dict.fromkeys(verdict.kind for verdict in verdicts):
        outcomes = [verdict.outcome for verdict in verdicts if verdict.kind == kind]
        counts = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
        yield f"{kind:<20} {counts}"
    for name, attribute in (("fault to knowing", "detected"), ("fault to first step", "first_step")):
        seconds = [value for one in verdicts if (value := getattr(one, attribute)) is not None]
        if seconds:
            median, most = statistics.median(seconds), max(seconds)
            yield f"{name:<20} median {median:.1f} s, at most {most:.1f} s, of {len(seconds)}"
    late = [one.number for one in verdicts if one.detected is not None and one.detected > 2 * timeout]
    yield f"later than twice the timeout of {timeout:g} s: {late or 'none'}"


if __name__ == "__main__":
    sys.exit(main())
