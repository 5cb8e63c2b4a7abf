"""What a campaign over several machines writes down: it goes on where it was interrupted, and judges times."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # a script's modules find each other beside it
records = importlib.import_module("cluster_records")
ledgers = importlib.import_module("ledger")


def fault(number: int) -> Any:
    """As if a fault had been made."""
    kind = "kill_rank" if number % 2 == 0 else "stop"
    verdict = records.Verdict(number, kind, "a fault", "recovered", [0, 0], 2, 1.5 + number, 4.0 + number)
    verdict.seed, verdict.timeout, verdict.seconds, verdict.torch = 7, 5.0, 9.876, "2"
    return verdict


def part(path: Path, *numbers: int, seed: int = 7) -> list[int]:
    """The faults that are made when a part of a campaign is asked for."""
    return [
        verdict.number for verdict in ledgers.run_faults(numbers, seed, fault, ledgers.Ledger(path, records.COLUMNS))
    ]


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_parts_of_a_campaign_add_up(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    assert part(path, 0) == [0]
    assert part(path, 0, 1) == [1]
    assert part(path, 1) == []
    first, second = rows(path)
    assert (first["number"], second["number"]) == ("0", "1")
    assert first["codes"] == "0 0" and (first["seed"], first["timeout"], first["seconds"]) == ("7", "5.0", "9.88")
    assert part(path, 0, seed=8) == [0]  # another campaign's


def test_a_row_is_on_the_disk_before_the_next_fault(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    seen = []

    def watched(number: int) -> Any:
        seen.append(len(rows(path)) if path.exists() else 0)
        return fault(number)

    list(ledgers.run_faults(range(3), 7, watched, ledgers.Ledger(path, records.COLUMNS)))
    assert seen == [0, 1, 2]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="of another campaign"):
        ledgers.Ledger(path, records.COLUMNS)
    assert path.read_text() == "a,b\n1,2\n"


def test_times_are_told_by_kind(tmp_path: Path) -> None:
    ledger = ledgers.Ledger(None, records.COLUMNS)
    list(ledgers.run_faults(range(10), 7, fault, ledger))
    times = {(row["what"], row["kind"]): row for row in records.distribution(ledger.of(7))}
    assert times["detected", "all"] == {
        **{"what": "detected", "kind": "all", "count": 10},
        **{"p50": 5.5, "p90": 9.5, "max": 10.5},
    }
    assert [times["first_step", "stop"][name] for name in ("count", "p50", "p90", "max")] == [5, 9.0, 13.0, 13.0]


@pytest.mark.parametrize(
    ("detected", "first_step", "outcome"), [(10.0, 60.0, "recovered"), (10.5, 20.0, "late"), (1.0, 61.0, "late")]
)
def test_what_comes_too_late_is_seen(detected: float, first_step: float, outcome: str) -> None:
    verdict = fault(0)
    verdict.detected, verdict.first_step = detected, first_step
    verdict.judge_times(60)
    assert verdict.outcome == outcome
    assert (verdict.outcome in records.BAD) == (outcome == "late")


def test_how_long_a_job_took_to_end_is_told_apart_from_its_first_step() -> None:
    verdict = fault(0)
    assert verdict.row()["ended_seconds"] is None
    verdict.ended_seconds = 12.345
    assert verdict.row()["ended_seconds"] == 12.35 and verdict.row()["first_step"] == 4.0
    told = [{name: "" if value is None else str(value) for name, value in verdict.row().items()}]
    assert {row["what"]: row["max"] for row in records.distribution(told) if row["kind"] == "all"} == {
        **{"detected": 1.5, "first_step": 4.0, "ended_seconds": 12.35},
    }


def test_a_campaign_goes_on_with_rows_of_before_there_were_so_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    of_old = [name for name in records.COLUMNS if name not in records.NEWER]
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, of_old, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerow(fault(0).row())
    ledger = ledgers.Ledger(path, records.COLUMNS, records.NEWER)
    (old,) = ledger.of(7)
    assert (old["first_step"], old["ended_seconds"]) == ("4.0", "")
    list(ledgers.run_faults([0, 1], 7, fault, ledger))
    assert [row["number"] for row in rows(path)] == ["0", "1"] and list(rows(path)[0]) == list(records.COLUMNS)
    assert rows(path) == ledger.rows == ledgers.Ledger(path, records.COLUMNS, records.NEWER).rows


def test_the_rows_that_are_kept_can_be_read() -> None:
    kept = Path(__file__).parents[2] / "benchmarks" / "results" / "chaos-cluster.csv"
    ledger = ledgers.Ledger(kept, records.COLUMNS, records.NEWER)
    assert ledger.rows and records.distribution(ledger.rows)
