"""Every reader takes damaged inputs, and those that were findings once, as it should; the fuzzer finds what it should.

How many inputs there are, and which, is the same on every machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FUZZ = Path(__file__).parent
INPUTS = 250
"""For a reader of a usual share: about a minute for all of them, on two idle cores."""


def fuzz(*arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, FUZZ, "--json", "--quiet", *arguments], capture_output=True, text=True)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(report["findings"] or report["corpus"]), done.stderr
    return report


def test_damaged_inputs_are_refused_or_make_no_difference(tmp_path: Path) -> None:
    report = fuzz("--inputs", str(INPUTS), "--seed", "0", "--findings", tmp_path)
    assert report["corpus"] == []
    assert report["findings"] == []
    assert all(row["inputs"] == row["user_errors"] + row["accepted"] for row in report["readers"])


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    limits = ("--patience", "1", "--processor-seconds", "0.3")
    report = fuzz("--module", "planted", "--inputs", "5", "--findings", tmp_path, *limits)
    found = {name: [one["what"] for one in report["findings"] if one["reader"] == name] for name in PLANTED}
    missed = {name: found[name] for name, said in PLANTED.items() if not any(said in what for what in found[name])}
    assert missed == {}
    assert [one["what"] for one in report["findings"] if one["reader"] == "checks"] == []
    (small,) = (path for path in (tmp_path / "raises").rglob("file.json"))
    assert json.loads(small.read_bytes()) == {}


PLANTED = {
    "raises": "KeyError",
    "sleeps": "it hung",
    "loops": "TooLong",
    "eats": "MemoryError",
    "eats_and_refuses": "MemoryError, then refused",
    "dies": "it died of SIGABRT",
    "rambles": "a message of 100000 characters",
    "believes": "damage was accepted",
}


def test_an_input_is_known_by_its_number(tmp_path: Path) -> None:
    def one(number: int) -> str:
        command = [sys.executable, FUZZ, "--module", "planted", "--reader", "checks", "--only", str(number)]
        return subprocess.run(command, capture_output=True, text=True).stdout

    assert one(3) == one(3) != one(4)


def test_the_report_has_a_row_for_every_reader_and_seed(tmp_path: Path) -> None:
    report = tmp_path / "fuzz.csv"
    for seed in ("0", "1", "1"):
        fuzz("--module", "planted", "--reader", "checks", "--inputs", "3", "--seed", seed, "--csv", report)
    header, *rows = report.read_text(encoding="utf-8").splitlines()
    assert header.startswith("seed,reader,inputs,")
    assert [row.split(",")[:2] for row in rows] == [["0", "checks"], ["1", "checks"]]
