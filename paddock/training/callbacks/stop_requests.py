"""A process that only follows a run asks it to stop, by a file in the run's directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.files import atomic_write
from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun

REQUEST = "stop-request.txt"
"""Why the run is to end, while somebody wants it to."""


@contextmanager
def stop_requests(run_dir: Path) -> Iterator[Callable[[str], None]]:
    """A function that asks the run to stop, and says why. What was asked of an earlier run is forgotten."""
    file = run_dir / REQUEST

    def ask(reason: str) -> None:
        with atomic_write(file) as stream:
            stream.write(reason)

    file.unlink(missing_ok=True)
    try:
        yield ask
    finally:
        file.unlink(missing_ok=True)


class StopRequests(Callback):
    """Makes a step the last one when somebody has asked for that."""

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        file = run.run_dir / REQUEST
        if run.world.is_main and file.exists():
            run.stop(file.read_text(encoding="utf-8"))
