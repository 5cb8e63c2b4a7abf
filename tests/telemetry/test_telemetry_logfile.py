import errno
from datetime import datetime
from pathlib import Path

import pytest

from paddock.errors import MachineError
from paddock.telemetry.logfile import LogFileSink


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
