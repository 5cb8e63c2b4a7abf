"""TensorBoard event files, for those who have it: `pip install "paddock[tensorboard]"`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paddock.errors import MachineError
from paddock.files import disk_errors
from paddock.telemetry.stream import NOTHING, Step, Value


class TensorBoardSink:
    """Writes each number as a scalar; `train.loss` becomes `train/loss`, so that groups share a section.

    `resume_step` hides what an earlier process wrote after that step, as in `JsonLinesSink`.
    """

    def __init__(self, directory: str | Path, *, resume_step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MachineError(
                "log.tensorboard = true, but TensorBoard cannot be imported",
                why=str(error),
                fix='pip install "paddock[tensorboard]", or set log.tensorboard to false',
            ) from error
        self.directory = Path(directory)
        self._last_step = 0
        with disk_errors(self.directory):
            self._writer = SummaryWriter(str(directory), purge_step=None if resume_step is None else resume_step + 1)

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        """Scalars have no unit there."""

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        if step:
            self._last_step = step[1]
        with disk_errors(self.directory):
            for name, value in data.items():
                tag = name.replace(".", "/", 1)
                add = self._writer.add_text if isinstance(value, str) else self._writer.add_scalar
                add(tag, value, self._last_step)

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        """Only records are drawn."""

    def message(self, text: str) -> None:
        """Messages go to `log.txt`."""

    def flush(self) -> None:
        with disk_errors(self.directory):
            self._writer.flush()

    def close(self) -> None:
        with disk_errors(self.directory):
            self._writer.close()
