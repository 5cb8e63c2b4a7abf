"""The calls of NVIDIA's dllogger and Tecorigin's tcap_dllogger, so that a ported script changes only its import:

    from paddock.telemetry.dllogger import Logger, StdOutBackend, JSONStreamBackend, Verbosity

    logger = Logger([StdOutBackend(Verbosity.DEFAULT), JSONStreamBackend(Verbosity.VERBOSE, "log.json")])
    logger.metadata("train.ips", {"unit": "imgs/s", "format": ":.3f", "GOAL": "MAXIMIZE", "STAGE": "TRAIN"})
    logger.log(step=(epoch, iteration), data={"train.loss": loss, "train.ips": ips}, verbosity=Verbosity.DEFAULT)

What differs from theirs: the file is valid JSON, one record a line, in the form of a run's `metrics.jsonl`; every
process has a file of its own; a file that exists is never written over; `format` counts on standard output. The calls
of NVIDIA's module itself (`dllogger.init(backends)`, `dllogger.log(…)`) are here, too.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from paddock.errors import ConfigError, MachineError, bad_value
from paddock.files import new_file, user_path
from paddock.telemetry.jsonl import JsonLinesSink
from paddock.telemetry.records import plain

Ranks = Literal["all", "main"]
"""Whether every process writes, or the one of rank 0 alone."""
RANK_VARIABLES = ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "LOCAL_RANK")
"""Where launchers say which process this is; the first that is set counts."""


class Verbosity:
    """How much is said. A backend takes what is not above its own."""

    OFF = -1
    DEFAULT = 0
    VERBOSE = 1


class Backend(ABC):
    """Where a logger's records go."""

    def __init__(self, verbosity: int) -> None:
        self._verbosity = verbosity

    @property
    def verbosity(self) -> int:
        return self._verbosity

    @abstractmethod
    def log(self, timestamp: datetime, elapsedtime: float, step: Any, data: Mapping[str, Any]) -> None:
        """Record values at a step."""

    @abstractmethod
    def metadata(self, timestamp: datetime, elapsedtime: float, metric: str, metadata: Mapping[str, Any]) -> None:
        """Describe a metric."""

    def info(self, timestamp: datetime, data: Any) -> None:  # noqa: B027 - a backend may have no use for it
        """Record what belongs to no step, such as a script's arguments."""

    def flush(self) -> None:  # noqa: B027 - most hold nothing back
        """Hand everything to the operating system."""


class Logger:
    """Passes what it is told to every backend that wants as much; flushes them when it goes, or the process ends."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.backends = list(backends)
        self.starttime = datetime.now()
        self._began = time.monotonic()
        weakref.finalize(self, _flush, self.backends)

    def metadata(self, metric: str, metadata: Mapping[str, Any]) -> None:
        """Describe a metric: `unit`, `format`, `GOAL`, `STAGE`."""
        for backend in self.backends:
            backend.metadata(*self._now(), metric, metadata)

    def metadata_batch(self, metrics: Sequence[str], metadata: Mapping[str, Any]) -> None:
        """Describe several metrics alike."""
        for metric in metrics:
            self.metadata(metric, metadata)

    def log(self, step: Any, data: Mapping[str, Any], verbosity: int = Verbosity.VERBOSE) -> None:
        """Record values at a step: `(epoch, iteration)`, `(epoch,)`, `()` for the whole run, or a word."""
        for backend in self.backends:
            if backend.verbosity >= verbosity:
                backend.log(*self._now(), step, data)

    def info(self, data: Any) -> None:
        """Record what belongs to no step, such as a script's arguments."""
        for backend in self.backends:
            backend.info(self._now()[0], data)

    def flush(self) -> None:
        _flush(self.backends)

    def _now(self) -> tuple[datetime, float]:
        return datetime.now(), time.monotonic() - self._began


def _flush(backends: Sequence[Backend]) -> None:
    for backend in backends:
        backend.flush()


def default_step_format(step: Any) -> str:
    """`Epoch: 0 Iteration: 3`; a word as it is."""
    if isinstance(step, str):
        return step
    names = ("Epoch", "Iteration", "Validation Iteration")
    numbers = list(step) if isinstance(step, tuple | list) else [step]
    return " ".join(f"{name}: {plain(number)}" for name, number in zip(names, numbers, strict=False))


def default_metric_format(metric: str, metadata: Mapping[str, Any], value: Any) -> str:
    """`train.ips : 812.500 imgs/s`. The format is a format string's, such as `:.3f`; what it does not fit is printed
    as it is."""
    form = str(metadata.get("format", "")).strip("{}").removeprefix(":")
    number = plain(value)
    if isinstance(number, str) and not isinstance(value, str):  # nan and infinity
        number = value
    try:
        text = format(number, form)
    except (ValueError, TypeError):
        text = str(number)
    return f"{metric} : {text} {metadata.get('unit') or ''}".rstrip()


def default_prefix_format(timestamp: datetime) -> str:
    return f"DLL {timestamp} - "


class StdOutBackend(Backend):
    """Prints a line for every record on standard output, in one piece."""

    def __init__(
        self,
        verbosity: int,
        step_format: Callable[[Any], str] = default_step_format,
        metric_format: Callable[[str, Mapping[str, Any], Any], str] = default_metric_format,
        prefix_format: Callable[[datetime], str] = default_prefix_format,
        ranks: Ranks = "all",
    ) -> None:
        super().__init__(verbosity)
        self._ranks = _checked(ranks)
        self._formats = step_format, metric_format, prefix_format
        self._metadata: dict[str, dict[str, Any]] = {}

    def metadata(self, timestamp: datetime, elapsedtime: float, metric: str, metadata: Mapping[str, Any]) -> None:
        self._metadata.setdefault(metric, {}).update(metadata)

    def log(self, timestamp: datetime, elapsedtime: float, step: Any, data: Mapping[str, Any]) -> None:
        show_step, show_metric, show_prefix = self._formats
        metrics = "  ".join(show_metric(name, self._metadata.get(name, {}), value) for name, value in data.items())
        self._print(f"{show_prefix(timestamp)}{show_step(step)}  {metrics}")

    def info(self, timestamp: datetime, data: Any) -> None:
        self._print(str(data))

    def flush(self) -> None:
        sys.stdout.flush()

    def _print(self, line: str) -> None:
        if _writes(self._ranks):
            sys.stdout.write(line + "\n")


class JSONStreamBackend(Backend):
    """Writes every record to a file, as a line of JSON.

    Rank 0 writes to the file that is named, others to one beside it (`log.rank1.json`), or nobody else does (`ranks`).
    If it exists already it stays as it is, and `log-2.json` is written, which standard error says; with `append` the
    records go behind those that are there. The file is made when there is something to write: a process that only
    imports a script, or starts others, leaves none.
    """

    def __init__(self, verbosity: int, filename: str | Path, append: bool = False, ranks: Ranks = "all") -> None:
        super().__init__(verbosity)
        self._named, self._append, self._ranks = user_path(filename), append, _checked(ranks)
        self._described: dict[str, dict[str, Any]] = {}
        self._sink: JsonLinesSink | None = None
        self._pid = 0
        _check_place(self._named)

    @property
    def path(self) -> Path | None:
        """The file, once there is one."""
        return None if self._sink is None else self._sink.path

    def metadata(self, timestamp: datetime, elapsedtime: float, metric: str, metadata: Mapping[str, Any]) -> None:
        self._described[metric] = dict(metadata)
        if self._sink is not None:
            self._write({"type": "METADATA", "metric": metric, "metadata": self._described[metric]})

    def log(self, timestamp: datetime, elapsedtime: float, step: Any, data: Mapping[str, Any]) -> None:
        self._write({"type": "LOG", "step": _steps(step), "data": dict(data)})

    def info(self, timestamp: datetime, data: Any) -> None:
        if isinstance(data, Namespace):
            data = vars(data)
        told = dict(data) if isinstance(data, Mapping) else {"info": data}
        self._write({"type": "INFO", "data": told})

    def _write(self, record: Mapping[str, Any]) -> None:
        if not _writes(self._ranks):
            return
        if self._sink is None or self._pid != os.getpid():  # a process that was forked has a file of its own
            self._open()
        assert self._sink is not None
        self._sink.write(record)

    def _open(self) -> None:
        rank, named = rank_of_process(), self._named
        wanted = named if rank == 0 else named.with_name(f"{named.stem}.rank{rank}{named.suffix}")
        path = wanted if self._append else new_file(wanted)
        if path != wanted:
            print(f"note: {wanted} exists and stays as it is; this log is {path}", file=sys.stderr)
        self._sink, self._pid = JsonLinesSink(path), os.getpid()
        for metric, metadata in self._described.items():
            self._sink.write({"type": "METADATA", "metric": metric, "metadata": metadata})


def rank_of_process() -> int:
    """Which process of its job this is, as its launcher says; 0 if none does."""
    for name in RANK_VARIABLES:
        value = os.environ.get(name, "").strip()
        if value.isascii() and value.isdecimal() and len(value) < 10:
            return int(value)
    return 0


def _writes(ranks: Ranks) -> bool:
    return ranks == "all" or rank_of_process() == 0


def _checked(ranks: Ranks) -> Ranks:
    if ranks not in ("all", "main"):
        raise bad_value("ranks", ranks, "either all processes write, or rank 0 alone", "all or main")
    return ranks


def _check_place(path: Path) -> None:
    """An error now rather than at the first record, where no file can be made."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)) or path.is_dir():
        what = "it is a folder" if path.is_dir() else f"{folder} is no folder that you may write in"
        raise MachineError(f"cannot write {path}", why=what, fix="choose another place")


def _steps(step: Any) -> list[int] | str:
    """Counts, as a reader of records wants them; anything else as a word."""
    numbers = plain(list(step) if isinstance(step, tuple | list) else step)
    numbers = numbers if isinstance(numbers, list) else [numbers]
    whole = [int(one) for one in numbers if isinstance(one, int | float) and one == int(one) and 0 <= one < 2**63]
    return whole if len(whole) == len(numbers) else str(step)


_global_logger: Logger | None = None


def init(backends: Sequence[Backend]) -> None:
    """Make the logger behind this module's own `log`, `metadata`, `info` and `flush`."""
    global _global_logger
    if _global_logger is not None:
        raise ConfigError("dllogger.init was called twice", why="there is one logger of the module", fix="use Logger")
    _global_logger = Logger(backends)


def _logger() -> Logger:
    if _global_logger is None:
        raise ConfigError("dllogger has no backends yet", fix="call dllogger.init(backends=[…]) first")
    return _global_logger


def log(step: Any, data: Mapping[str, Any], verbosity: int = Verbosity.DEFAULT) -> None:
    _logger().log(step, data, verbosity)


def metadata(metric: str, metadata: Mapping[str, Any]) -> None:
    _logger().metadata(metric, metadata)


def info(data: Any) -> None:
    _logger().info(data)


def flush() -> None:
    _logger().flush()
