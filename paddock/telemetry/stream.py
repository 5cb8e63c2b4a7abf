"""The metric stream: one place to report to, any number of sinks that show or store what is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

Step = tuple[int, int] | tuple[()]
"""`(epoch, step)`, the step counted over the whole run; `()` for what belongs to no step: a summary"""

Value = float | int | str
NOTHING: Mapping[str, Value] = {}


class Sink(Protocol):
    """What a stream writes to. A sink ignores what it has no use for."""

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        """Describe a metric: its unit, `MINIMIZE` or `MAXIMIZE`, `TRAIN` or `VAL`."""

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        """Record values at a step."""

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        """Hear that a step has ended, and what is known of it already; before the first one, where the run begins, of
        which nothing is known. Called at every step, so it must cost nothing."""

    def message(self, text: str) -> None:
        """Show a line of text that is not a metric."""

    def flush(self) -> None:
        """Hand everything to the operating system."""

    def close(self) -> None:
        """Release files and the terminal. May be called twice."""


class MetricStream:
    """Passes everything to each of its sinks, in their order. Without sinks (ranks other than 0) it is mute.

    An error of a sink, such as a full disk, is the run's error; but `close` closes every sink even then, so
    that no failure leaves a terminal behind in a bad state.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.sinks = tuple(sinks)

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        for sink in self.sinks:
            sink.metadata(name, unit=unit, goal=goal, stage=stage)

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        for sink in self.sinks:
            sink.log(step, data)

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        for sink in self.sinks:
            sink.tick(step, latest)

    def message(self, text: str) -> None:
        for sink in self.sinks:
            sink.message(text)

    def flush(self) -> None:
        for sink in self.sinks:
            sink.flush()

    def close(self) -> None:
        with ExitStack() as stack:
            for sink in reversed(self.sinks):
                stack.callback(sink.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
