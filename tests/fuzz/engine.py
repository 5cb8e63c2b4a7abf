"""The fuzzer: readers are given damaged inputs, each in a process with limits, and what they make of them is judged.

An input is refused (a `UserError`), accepted, or a finding: any other exception, the death of the process, more time
or memory than an input may take, or (where a format is checked as a whole) damage that was taken for the truth.
Input number k of a reader follows from (reader, seed, k) alone.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import hashlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NoReturn

from mutation import Files, Mutator, mutate_files

import paddock
from paddock.errors import UserError

SECONDS = 5
"""Of processor time that an input may take: a busy machine is no finding."""
PATIENCE = 20
"""Seconds that a process may sleep over an input: one that waits for its turn to compute is not asleep."""
LOOK = 0.25
"""Seconds between two looks at what a process does."""
MEMORY = 1 << 30
"""Bytes by which a process may grow for an input."""
LONGEST_MESSAGE = 1 << 16
"""Characters of an error: what nobody can read tells nothing."""
REFRESH = 512
"""Inputs after which the limit on memory follows what the process has grown by in all."""
BROKEN = 70
"""The exit code of a worker whose own code failed, not the reader's."""
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
CORPUS = Path(__file__).with_name("corpus")
FINDINGS = Path(__file__).with_name("findings")


@dataclass(frozen=True, eq=False)
class Reader:
    """Something that reads what others wrote."""

    name: str
    seeds: Callable[[], list[Files]]
    """Valid inputs, small, made by the project's own writers."""
    read: Callable[[Path], object]
    """Reads an input's folder; what it returns can be compared."""
    mutators: Mapping[str, Mutator] = field(default_factory=dict)
    """How files are damaged, by the end of their names."""
    exact: bool = False
    """Whether damage shows: it must be refused, or change nothing."""
    forge: Callable[[Random, Files], Files] | None = None
    """Damage with its checksums made to fit, of which only refusals are asked that are errors for users."""
    fresh: bool = False
    """Whether reading writes into the folder."""
    share: float = 1.0
    """Of the time, or of the inputs, of a usual reader."""


class TooLong(BaseException):
    """An input took more processor time than it may."""


@dataclass(frozen=True)
class Outcome:
    """What a reader made of an input."""

    kind: str
    """refused, accepted or finding"""
    what: str = ""
    trace: str = ""


@dataclass
class Tally:
    """What came of a reader's inputs."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0
    """Seconds of processor time that an input took, at most."""
    memory: int = 0
    """Bytes by which a process grew, at most."""
    seconds: float = 0.0
    """Of processor time."""
    findings: dict[str, int] = field(default_factory=dict)
    """By what it was, the number of the first input."""

    def to_dict(self, reader: str) -> dict[str, Any]:
        return {
            "reader": reader,
            "inputs": self.inputs,
            "user_errors": self.refused,
            "accepted": self.accepted,
            "findings": len(self.findings),
            "slowest_cpu_ms": round(1000 * self.slowest, 1),
            "peak_mb": round(self.memory / 2**20, 1),
            "inputs_per_cpu_second": round(self.inputs / self.seconds) if self.seconds else 0,
        }


@cache
def seeds_of(reader: Reader) -> tuple[Files, ...]:
    """A reader's valid inputs, made once."""
    return tuple(reader.seeds())


@cache
def truths_of(reader: Reader) -> tuple[object, ...]:
    """What a reader makes of its valid inputs."""
    found = []
    for seed in seeds_of(reader):
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_folder()) as place:
            _put(Path(place), seed)
            found.append(reader.read(Path(place)))
    return tuple(found)


def prepare(reader: Reader) -> None:
    """What all workers of a reader need, made before they are: they begin as copies of this process."""
    seeds_of(reader)
    if reader.exact:
        truths_of(reader)


def memory_folder() -> str | None:
    """Where files cost no disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@cache
def scratch() -> Path:
    """A folder for what harnesses need beside their inputs; it goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def files_in(folder: Path) -> Files:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make_input(reader: Reader, seed: int, number: int) -> tuple[int | None, Files]:
    """Input `number`, and the valid one whose result it may still have; None where it may have any.

    The first ones are the valid ones themselves.
    """
    if number < len(seeds_of(reader)):
        return (number if reader.exact else None), dict(seeds_of(reader)[number])
    rng = Random(f"{reader.name}/{seed}/{number}")
    if reader.forge is not None and rng.random() < 0.5:
        return None, reader.forge(rng, dict(rng.choice(seeds_of(reader))))
    origin, files = mutate_files(rng, seeds_of(reader), reader.mutators)
    return (origin if reader.exact else None), files


def _put(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = os.path.join(folder, name)
        if "/" in name:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, content)
        os.close(descriptor)


class Workshop:
    """A folder in which one input after the other is put and read."""

    def __init__(self, reader: Reader, root: Path) -> None:
        self._reader, self._root = reader, root
        self._number = 0
        self._files: Files = {}
        self._folder = self._begin()

    def judge(self, files: Files, origin: int | None) -> Outcome:
        """What the reader makes of an input."""
        self._lay_out(files)
        return judge(self._reader, self._folder, None if origin is None else truths_of(self._reader)[origin])

    def _begin(self) -> Path:
        self._number += 1
        folder = self._root / str(self._number)
        folder.mkdir()
        self._files = {}
        return folder

    def _lay_out(self, files: Files) -> None:
        """Only what differs is written. Nothing is written over: an earlier input may still be mapped."""
        if self._reader.fresh and self._files:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._begin()
        for name in [name for name, content in self._files.items() if files.get(name) != content]:
            os.unlink(self._folder / name)
            del self._files[name]
        _put(self._folder, {name: content for name, content in files.items() if name not in self._files})
        self._files = dict(files)


def judge(reader: Reader, folder: Path, truth: object) -> Outcome:
    """Read an input; `truth` is what it must give if it is taken, or None."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        result = reader.read(folder)
    except UserError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return _judge_refusal(error)
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return Outcome("finding", _name(error), "".join(traceback.format_exception(error)))
    signal.setitimer(signal.ITIMER_PROF, 0)
    if truth is not None and result != truth:
        return Outcome("finding", "damage was accepted", f"read {str(result)[:2000]}\ninstead of {str(truth)[:2000]}\n")
    return Outcome("accepted")


def _judge_refusal(error: UserError) -> Outcome:
    """A refusal that says what is wrong, before it cost the memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
            return Outcome("finding", f"{_name(cause)}, then refused", "".join(traceback.format_exception(error)))
        cause = cause.__cause__ or cause.__context__
    if len(str(error)) > LONGEST_MESSAGE:
        return Outcome("finding", f"{_name(error)}: a message of {len(str(error))} characters", str(error)[:2000])
    return Outcome("refused", str(error))


PACKAGE = Path(paddock.__file__).parent


def _name(error: BaseException) -> str:
    """The error, and the last of our own lines that it passed: one finding has one name."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if file.is_relative_to(PACKAGE):
            place = f" in {file.relative_to(PACKAGE).as_posix()}:{frame.name}"
    return f"{type(error).__name__}{place}"


class Slot:
    """Memory that a worker shares with its parent: a worker that dies cannot tell how far it was."""

    _layout = struct.Struct("QdQQQdQ")

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, self._layout.size)

    def write(self, number: int, began: float, tally: Tally) -> None:
        numbers = (tally.inputs, tally.refused, tally.accepted, tally.slowest, tally.memory)
        self._layout.pack_into(self._map, 0, number, began, *numbers)

    def read(self) -> tuple[int, float, Tally]:
        number, began, *numbers = self._layout.unpack_from(self._map, 0)
        return number, began, Tally(*numbers)


@dataclass(frozen=True)
class Portion:
    """A part of a reader's inputs: from a number on, until there are enough or the time is over."""

    first: int
    end: int | None
    seconds: float | None


class Watch:
    """Tells whether a process hangs over an input: asleep, or in a loop that hears no alarm."""

    def __init__(self) -> None:
        self._number, self._asleep, self._computed, self._looked = -1, 0.0, 0.0, 0.0

    def is_hung(self, pid: int, number: int, patience: float) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK:
            return False
        self._looked = now
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        computed = (int(values[10]) + int(values[11])) / os.sysconf("SC_CLK_TCK")
        if number != self._number:
            self._number, self._asleep, self._computed = number, 0.0, computed
        self._asleep += LOOK if state == "S" else 0
        return self._asleep > patience or computed - self._computed > 3 * SECONDS


@dataclass
class Worker:
    """A process that goes through a portion."""

    reader: Reader
    portion: Portion
    pid: int
    slot: Slot
    folder: Path
    began: float = field(default_factory=time.monotonic)
    watch: Watch = field(default_factory=lambda: Watch())

    def is_hung(self, patience: float) -> bool:
        number, began, _ = self.slot.read()
        return began > 0 and self.watch.is_hung(self.pid, number, patience)


Work = Callable[[Reader, Portion, int, Slot, Path], None]
"""What a worker does: a reader's portion, for a seed, in a folder, telling through a slot how far it is."""


@dataclass(frozen=True)
class Finding:
    """An input that a reader did not take as it should."""

    reader: Reader
    outcome: Outcome
    files: Files
    origin: int | None
    """The valid input whose result it should have had."""
    number: int | None
    """By which it can be made again; None where coverage led to it."""


class Campaign:
    """Gives every reader its inputs, in so many processes at once, and collects what comes of them."""

    def __init__(
        self,
        readers: Sequence[Reader],
        seed: int,
        jobs: int,
        found: Callable[[Finding], None],
        patience: float = PATIENCE,
        work: Work | None = None,
    ) -> None:
        """`found` hears of every finding, once, as soon as it is known. `work` is what a worker does."""
        self._readers, self._seed, self._jobs, self._patience = readers, seed, jobs, patience
        self._found, self._work = found, work or go_through
        self.tallies = {reader.name: Tally() for reader in readers}
        self._stack: list[tuple[Reader, Portion]] = []
        self._workers: list[Worker] = []

    def run(self, inputs: int | None, seconds: float | None, progress: Callable[[str], None]) -> None:
        """Every reader gets so many inputs, or its part of the time; by its share."""
        shares = sum(reader.share for reader in self._readers)
        for reader in self._readers:
            prepare(reader)
            end = None if inputs is None else max(1, int(inputs * reader.share))
            part = None if seconds is None else seconds * self._jobs * reader.share / shares
            self._stack.append((reader, Portion(0, end, part)))
        # The longest first: the last worker should not work alone for long.
        self._stack.sort(key=lambda entry: entry[0].share)
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_folder()) as place:
            try:
                self._loop(Path(place), progress)
            finally:
                for worker in self._workers:
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)

    def _loop(self, root: Path, progress: Callable[[str], None]) -> None:
        number = 0
        while self._stack or self._workers:
            while self._stack and len(self._workers) < self._jobs:
                reader, portion = self._stack.pop()
                number += 1
                self._workers.append(start(reader, portion, self._seed, root / str(number), self._work))
            time.sleep(0.01)
            for worker in list(self._workers):
                self._look_after(worker, progress)

    def _look_after(self, worker: Worker, progress: Callable[[str], None]) -> None:
        hung = worker.is_hung(self._patience)
        if hung:
            os.kill(worker.pid, signal.SIGKILL)
        pid, status, used = os.wait4(worker.pid, 0 if hung else os.WNOHANG)
        if pid:
            self._workers.remove(worker)
            self.tallies[worker.reader.name].seconds += used.ru_utime + used.ru_stime
            self._collect(worker, hung, status)
            self._tell(worker, progress)

    def _tell(self, worker: Worker, progress: Callable[[str], None]) -> None:
        tally = self.tallies[worker.reader.name]
        state = f"{tally.inputs} inputs, {len(tally.findings)} findings"
        progress(f"{worker.reader.name}: {state}")

    def _collect(self, worker: Worker, hung: bool, status: int) -> None:
        tally, spent = self.tallies[worker.reader.name], time.monotonic() - worker.began
        number, _, done = worker.slot.read()
        tally.inputs += done.inputs
        tally.refused += done.refused
        tally.accepted += done.accepted
        tally.slowest, tally.memory = max(tally.slowest, done.slowest), max(tally.memory, done.memory)
        for line in _lines(worker.folder / "findings.jsonl"):
            files = unpacked(line["files"]) if "files" in line else None
            self._note(worker.reader, line["number"], Outcome("finding", line["what"], line["trace"]), files)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN:
            raise SystemExit(
                f"the harness of {worker.reader.name} failed:\n{(worker.folder / 'fault.txt').read_text()}"
            )
        if hung or status:
            what = "it hung" if hung else _death(status)
            fault = worker.folder / "fault.txt"
            trace = fault.read_text(errors="replace") if fault.is_file() else ""
            tally.inputs += 1
            current = worker.folder / "current"
            files = decode(current.read_bytes()) if current.exists() else None
            self._note(worker.reader, number, Outcome("finding", what + _place_in(trace), trace), files)
            self._go_on(worker, number + 1, spent)
        shutil.rmtree(worker.folder, ignore_errors=True)

    def _note(self, reader: Reader, number: int, outcome: Outcome, files: Files | None) -> None:
        findings = self.tallies[reader.name].findings
        if outcome.what not in findings:
            findings[outcome.what] = number
            origin, numbered = make_input(reader, self._seed, number) if files is None else (None, files)
            self._found(Finding(reader, outcome, numbered, origin, number if files is None else None))

    def _go_on(self, worker: Worker, first: int, spent: float) -> None:
        portion = worker.portion
        left = None if portion.seconds is None else portion.seconds - spent
        if (portion.end is None or first < portion.end) and (left is None or left > 0):
            self._stack.append((worker.reader, Portion(first, portion.end, left)))


def start(reader: Reader, portion: Portion, seed: int, folder: Path, work: Work) -> Worker:
    """Begin a portion in a process of its own."""
    folder.mkdir()
    slot = Slot()
    pid = os.fork()
    if not pid:
        code = BROKEN
        try:
            work(reader, portion, seed, slot, folder)
            code = 0
        except BaseException:
            (folder / "fault.txt").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return Worker(reader, portion, pid, slot, folder)


def go_through(reader: Reader, portion: Portion, seed: int, slot: Slot, folder: Path) -> None:
    """The inputs of a portion, one after the other."""
    tally, limits, seen = Tally(), Limits(), set()
    deadline = None if portion.seconds is None else time.monotonic() + portion.seconds
    number = portion.first
    with alone(folder), open(folder / "findings.jsonl", "w", encoding="utf-8") as findings:
        workshop = Workshop(reader, folder)
        while (portion.end is None or number < portion.end) and (deadline is None or time.monotonic() < deadline):
            origin, files = make_input(reader, seed, number)
            began = time.process_time()
            slot.write(number, began, tally)
            outcome = limits.checked(workshop.judge(files, origin))
            if number < len(seeds_of(reader)) and outcome.kind == "refused":
                outcome = Outcome("finding", "a valid input is refused", outcome.what)
            tally.slowest = max(tally.slowest, time.process_time() - began)
            tally.memory = max(tally.memory, limits.growth)
            tally.inputs += 1
            tally.refused += outcome.kind == "refused"
            tally.accepted += outcome.kind == "accepted"
            if outcome.kind == "finding" and outcome.what not in seen:
                seen.add(outcome.what)
                line = {"number": number, "what": outcome.what, "trace": outcome.trace}
                findings.write(json.dumps(line) + "\n")
                findings.flush()
            number += 1
            if tally.inputs % REFRESH == 0:
                limits.refresh()
        slot.write(number, 0.0, tally)


class Limits:
    """What a process may take for an input, beside the time."""

    def __init__(self) -> None:
        self._begin = self._peak = _peak_memory()
        self.refresh()

    @property
    def growth(self) -> int:
        return self._peak - self._begin

    def refresh(self) -> None:
        """As much as it has now, and what one input may take."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))

    def checked(self, outcome: Outcome) -> Outcome:
        """The outcome, or that it took too much."""
        before, self._peak = self._peak, _peak_memory()
        if self._peak - before > MEMORY:
            return Outcome("finding", f"{(self._peak - before) >> 20} MB of memory")
        return outcome


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """As readers run in a worker: silent, with an alarm, in a folder of their own; gone with their parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _too_long)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.chdir(folder)
    gc.freeze()
    with open(folder / "fault.txt", "w") as fault:
        faulthandler.enable(fault)
        yield
        faulthandler.disable()


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise TooLong(f"more than {SECONDS} s of processor time")


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"it died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it left with {os.WEXITSTATUS(status)}"


def _place_in(trace: str) -> str:
    """The first line of our own in what the fault handler wrote."""
    for line in trace.splitlines():
        if f"{os.sep}paddock{os.sep}" in line:
            return " in " + line.rpartition(f"{os.sep}paddock{os.sep}")[2].replace('"', "")
    return ""


def _lines(path: Path) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return []


def in_a_process(work: Callable[[Path], Any], watch: Watch | None = None, patience: float = PATIENCE) -> Any:
    """What `work` returns, done in a process like a worker; an Outcome that says so if it died or hung."""
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_folder()) as place:
        folder = Path(place)
        pid = os.fork()
        if not pid:
            code = BROKEN
            try:
                with alone(folder):
                    Limits()
                    (folder / "result.json").write_text(json.dumps(work(folder)))
                code = 0
            except BaseException:
                (folder / "fault.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if watch is not None and watch.is_hung(pid, 0, patience):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return Outcome("finding", "it hung")
            time.sleep(0.005)
        if ended[1]:
            return Outcome("finding", _death(ended[1]), (folder / "fault.txt").read_text(errors="replace"))
        return json.loads((folder / "result.json").read_text())


def outcome_of(reader: Reader, files: Files, origin: int | None, patience: float = PATIENCE) -> Outcome:
    """What a reader makes of one input, in a process of its own."""
    prepare(reader)

    def work(folder: Path) -> list[str]:
        outcome = Workshop(reader, folder).judge(files, origin)
        return [outcome.kind, outcome.what, outcome.trace]

    found = in_a_process(work, Watch(), patience)
    return found if isinstance(found, Outcome) else Outcome(*found)


def encode(files: Files) -> bytes:
    """An input as one run of bytes: a line that lists its files, and their contents."""
    line = json.dumps([[name, len(content)] for name, content in files.items()])
    return line.encode() + b"\n" + b"".join(files.values())


def decode(data: bytes) -> Files | None:
    """What `encode` made; None if that is not what it is."""
    line, _, rest = data.partition(b"\n")
    try:
        entries = [(str(name), int(size)) for name, size in json.loads(line)]
    except (ValueError, TypeError, RecursionError):
        return None
    files, at = {}, 0
    for name, size in entries:
        files[name] = rest[at : at + size]
        at += size
    return files


def packed(files: Files) -> dict[str, str]:
    """An input as JSON can hold it."""
    return {name: content.hex() for name, content in files.items()}


def unpacked(values: dict[str, str]) -> Files:
    return {name: bytes.fromhex(content) for name, content in values.items()}


def read_corpus(reader: Reader) -> dict[str, Files]:
    """The inputs that were findings once: a folder each, or a file where a reader has one only."""
    found: dict[str, Files] = {}
    (only, *others) = list(seeds_of(reader)[0])
    for entry in sorted((CORPUS / reader.name).glob("*")):
        if entry.is_dir():
            found[entry.name] = files_in(entry)
        else:
            assert not others, f"{entry} should be a folder: the reader {reader.name} takes several files"
            found[entry.name] = {only: entry.read_bytes()}
    return found


def save_input(place: Path, files: Files, note: str) -> None:
    """Write an input as the corpus has them, with a note beside it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    _put(place, files)
    place.with_name(f"{place.name}.txt").write_text(note, encoding="utf-8", errors="backslashreplace")


def name_of(what: str, files: Files) -> str:
    """A file name for a finding."""
    word = "".join(letter if letter.isalnum() else "-" for letter in what)[:70].strip("-")
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:6]
    return f"{word}-{digest}"


def progress_line(text: str) -> None:
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n", file=sys.stderr)
