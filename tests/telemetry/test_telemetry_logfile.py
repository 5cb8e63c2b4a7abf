"""Records as lines of text, and the file of them."""

from __future__ import annotations

import errno
import math
import re
from datetime import datetime
from pathlib import Path

import pytest

from paddock.errors import MachineError
from paddock.telemetry.logfile import LineFormatter, LogFileSink
from paddock.telemetry.stream import Value


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


TRAIN: dict[str, Value] = {
    "train.step_time": 0.37,
    "train.loss": 5.81234,
    "train.lr": 3e-4,
    "train.grad_norm": 1.234,
    "train.ips": 21.34,
    "train.tokens_per_second": 2712.0,
    "train.compute_time": 0.3,
}


def test_a_training_line() -> None:
    assert LineFormatter(300, clock=Clock()).lines((0, 10), TRAIN) == [
        "step    10/300  loss 5.8123  lr 3.00e-04  grad_norm 1.23  samples/s 21.3  tokens/s 2.7k"
        "  step_time 0.37s  eta 1m47s"
    ]


def test_validation_has_its_own_line() -> None:
    lines = LineFormatter(300, clock=Clock()).lines(
        (0, 100), {"train.loss": 3.0, "val.loss": 4.21, "val.perplexity": 67.4}
    )
    assert lines == ["step   100/300  loss 3.0000", "step   100/300  val.loss 4.2100  val.perplexity 67.40"]


def test_a_summary_has_no_step() -> None:
    assert LineFormatter(300).lines((), {"summary.best_metric": 4.5}) == ["summary.best_metric 4.5000"]


def test_columns_stay_below_each_other() -> None:
    formatter = LineFormatter(300, clock=Clock())
    first, second = (
        formatter.lines((0, step), TRAIN | {"train.loss": loss})[0] for step, loss in ((9, 10.5), (200, 9.5))
    )
    assert first.index("lr ") == second.index("lr ")
    assert first.index("tokens/s") == second.index("tokens/s")


def test_a_line_splits_into_pairs_with_unique_labels() -> None:
    data = TRAIN | {"train.memory": 3.1e9, "train.achieved_flops": 2.55e11, "train.utilisation": 0.12}
    pairs = [cell.split(" ") for cell in re.split(r"\s{2,}", LineFormatter(300).lines((0, 10), data)[0])[1:]]
    assert all(len(pair) == 2 for pair in pairs[1:])
    labels = [pair[0] for pair in pairs]
    assert len(set(labels)) == len(labels)
    assert dict(pairs[1:])["memory"] == "3.1GB"
    assert dict(pairs[1:])["util"] == "12%"


def test_the_unit_of_a_rate_is_its_label() -> None:
    formatter = LineFormatter(300)
    formatter.metadata("train.ips", "images/s")
    assert "images/s 21.3" in formatter.lines((0, 10), {"train.ips": 21.34})[0]


def test_unknown_metrics_text_and_not_finite_values_are_shown() -> None:
    line = LineFormatter(300).lines((0, 1), {"train.loss": math.nan, "train.loss_scale": 65536, "train.phase": "two"})[
        0
    ]
    assert line.endswith("loss nan  loss_scale 65536  phase two")


def test_epoch_and_unknown_total() -> None:
    assert LineFormatter(show_epoch=True).lines((3, 7), {"train.loss": 1.0}) == ["step     7  epoch 3  loss 1.0000"]


def noon() -> datetime:
    return datetime(2026, 1, 1, 12, 0, 0)


def test_lines_and_messages_are_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / "log.txt"
    sink = LogFileSink(path, 300, now=noon)
    sink.metadata("train.ips", unit="images/s")
    sink.message("starting")
    sink.log((0, 10), {"train.loss": 3.0, "train.ips": 21.3})
    sink.log((0, 10), {"val.loss": 4.0})
    assert path.read_text().splitlines() == [
        "2026-01-01 12:00:00  starting",
        "2026-01-01 12:00:00  step    10/300  loss 3.0000  images/s 21.3",
        "2026-01-01 12:00:00  step    10/300  val.loss 4.0000",
    ]
    sink.close()
    sink.close()


def test_a_resumed_run_appends_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("whole\ntorn by a cra")
    sink = LogFileSink(path, now=noon)
    sink.message("résumé")
    sink.close()
    assert path.read_text(encoding="utf-8") == "whole\ntorn by a cra\n2026-01-01 12:00:00  résumé\n"


def test_a_path_through_a_file_is_a_machine_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        LogFileSink(tmp_path / "file" / "log.txt")


def test_a_full_disk_is_a_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = LogFileSink(tmp_path / "log.txt")

    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    sink.close()
    monkeypatch.setattr(sink, "_file", Full())
    with pytest.raises(MachineError, match="free some space"):
        sink.message("hello")
