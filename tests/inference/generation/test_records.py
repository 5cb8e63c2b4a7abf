"""Results of generation, written block by block: what a stopped job left is read as far as it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.errors import DataError
from paddock.inference.generation.records import Records, read_records

SETTINGS = {"seed": 1}
RECORDS = [{"index": number // 2, "text": f"é{number}"} for number in range(6)]


def left(folder: Path, tail: bytes, before: int = 6) -> Path:
    """What a job left that was stopped, and what happened to its last lines."""
    path = folder / "out.jsonl"
    records = Records(path, SETTINGS, copies=2)
    assert list(records.begin()) == []
    records.add(RECORDS[:before])
    with open(f"{path}.partial", "ab") as stream:
        stream.write(tail)
    return path


@pytest.mark.parametrize(
    "tail",
    [b"", b'{"index": 3, "te', b"[" * 100_000 + b"\n", b"[1]\n", b"9" * 5000 + b"\n", b'{"text": "\xff"}\n', b"{}\n"],
    ids=["nothing", "cut off", "nested", "a list", "digits", "no UTF-8", "half of an input"],
)
def test_whole_inputs_are_gone_on_with(tail: bytes, tmp_path: Path) -> None:
    path = left(tmp_path, tail)
    again = Records(path, SETTINGS, copies=2)
    assert list(again.begin()) == RECORDS
    again.add(RECORDS[:2])
    again.finish()
    assert list(read_records(path)) == RECORDS + RECORDS[:2]


def test_half_a_character_is_kept(tmp_path: Path) -> None:
    path = left(tmp_path, b"", before=0)
    records = Records(path, SETTINGS, copies=1)
    records.add([{"text": "\ud83d"}])
    assert list(Records(path, SETTINGS, copies=1).begin()) == [{"text": "\ud83d"}]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(json.dumps(RECORDS[0]).encode() + b"\n" + b"[" * 100_000 + b"\n")
    with pytest.raises(DataError, match=r"out\.jsonl:2 is not a result"):
        list(read_records(path))
