"""Anybody's log: read in every form, with remarks on what is left out, and errors where a number would be lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import DataError
from paddock.telemetry.logs import LONGEST_LINE, LogFile
from paddock.telemetry.records import LONGEST_DICT, metrics_of, parse_record

VALUES = [(0, 1, 3.5), (0, 2, 3.25), (1, 3, 3.0)]


def plain(epoch: int, step: int, loss: float) -> str:
    return json.dumps({"type": "LOG", "step": [epoch, step], "data": {"train.loss": loss}})


def nvidia(epoch: int, step: int, loss: float) -> str:
    return f"DLLL {plain(epoch, step, loss)}"


def tecorigin(epoch: int, step: int, loss: float) -> str:
    data = str({"train.loss": str(loss)})
    record = {"timestamp": "1.5", "elapsedtime": "2.5", "type": "LOG", "step": [epoch, step], "data": data}
    return f"TCAPPDLL {json.dumps(record)}"


def row(epoch: int, step: int, loss: float) -> str:
    return f"{epoch},{step},{loss}"


FORMS = {"plain": plain, "nvidia": nvidia, "tecorigin": tecorigin, "table": row}


def write(path: Path, form: str, values: list[tuple[int, int, float]] = VALUES) -> Path:
    head = "epoch,step,train.loss\n" if form == "table" else ""
    path.write_text(head + "".join(FORMS[form](*value) + "\n" for value in values))
    return path


def read(path: Path) -> tuple[list[Any], list[str]]:
    log = LogFile(path)
    found = [(*record["step"], metrics_of(record)["train.loss"]) for record in log if record["type"] == "LOG"]
    return found, log.remarks


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(tmp_path: Path, form: str) -> None:
    assert read(write(tmp_path / "log", form)) == (VALUES, [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [3, 6, 11])
def test_a_last_line_that_was_cut_is_left_out_and_remarked_on(tmp_path: Path, form: str, cut: int) -> None:
    path = write(tmp_path / "log", form)
    last = len(path.read_text().splitlines()[-1]) + 1
    os.truncate(path, path.stat().st_size - min(cut, last - 2))
    found, (remark,) = read(path)
    if form == "table" and cut == 3:  # 1,3,3 is a whole row; nobody can know
        assert found[-1] == (1, 3, 3.0) and "does not end" in remark
    else:
        assert found == VALUES[:2] and "is cut off" in remark


@pytest.mark.parametrize("form", ["nvidia", "tecorigin"])
def test_broken_lines_of_others_are_counted(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "log", form)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    glued = second[:30] + second  # a process that was killed in mid-line, and started again
    odd = [b"Epoch 1 begins\n", b"\xff\xfe no text\n", first[:12] + b"\xff}\n", b'DLLL {"type": 5}\n', b"\n"]
    path.write_bytes(first + glued + b"".join(odd) + third)
    found, (remark,) = read(path)
    assert found == [VALUES[0], VALUES[2]]
    assert remark.startswith(f"lines of {path} that are no records, and are left out: 5 (the first is line 2: ")


def test_a_broken_line_of_our_own_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "log", "plain")
    lines = path.read_bytes().splitlines(keepends=True)
    for damage in (lines[1][:20] + b"\n", b'{"\xff"}\n', b'{"type": "LOG", "data": 7}\n'):
        path.write_bytes(lines[0] + damage + lines[2])
        with pytest.raises(DataError, match="line 2 is not a metric record"):
            read(path)


def test_a_huge_line_is_counted_or_refused_without_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as stream:
        stream.write(tecorigin(*VALUES[0]).encode() + b"\n")
        stream.truncate(2**26)  # zeros without an end
    found, remarks = read(path)
    assert found == VALUES[:1] and "that are no records" in remarks[-1]
    path.write_text("step,train.loss\n" + "1" * (LONGEST_LINE + 5) + "\n")
    with pytest.raises(DataError, match="line 2 has more than"):
        read(path)


@pytest.mark.parametrize(
    "literal",
    [
        "{'a': __import__('os').system('touch touched')}",
        "__import__('pathlib').Path('touched').write_text('')",
        "{'a': open('touched', 'w')}",
        "{**{'a': 1}}",
        "{'a': [x for x in (1,)]}",
        "{'a': 'x' * 10**10}",
        "{'a': 9**9**9}",
        "{'a': " + "[" * 150 + "]" * 150 + "}",
        "{'a': " + "(" * 40 + "1," + "),".join([""] * 40) + ")}",
        "{'a': " + "-" * 20_000 + "1}",
        "{'a': " + "9" * 5000 + "}",
        "{'a': '" + "x" * LONGEST_DICT + "'}",
        "{'a': lambda: 1}",
        "{'a'",
        "",
        "\0",
    ],
)
def test_a_crafted_dict_is_never_run_and_stays_text(
    literal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "TCAPPDLL " + json.dumps({"type": "LOG", "step": [0, 1], "data": literal})
    assert parse_record(line)["data"] == literal
    assert list(tmp_path.iterdir()) == []


def test_what_a_script_logged_as_a_tensor_is_a_number(tmp_path: Path) -> None:
    data = str({"a": "tensor(3.0512, device='sdaa:0', grad_fn=<NllLossBackward0>)", "b": "tensor(nan)", "c": "tensor"})
    found = parse_record("TCAPPDLL " + json.dumps({"type": "LOG", "step": [0, 1], "data": data}))["data"]
    assert isinstance(found, dict)
    assert found["a"] == 3.0512 and found["b"] != found["b"] and found["c"] == "tensor"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"\t\t\n,\n", "neither records"),
        (b"hello\nworld\n", "neither records in JSON nor a line of column names"),
        (b"\xff\xfe\x00\x01,\x02", "neither records"),
        (b"loss,accuracy\n1,2\n", "has no column of steps"),
        (b"DLL 2026-01-01 - Epoch: 0 Iteration: 1  train.loss : 3.5\n", "printed for people"),
        (b"TCAPPDLL 2026-01-01 - Epoch: 0 Iteration: 1 train.loss : 3.5\n", "printed for people"),
        (b"step,train.loss\n1,2,3\n4,5\n", "line 2 is no row of the table\n  why: it has 3 cells"),
        (b"step,train.loss\none,2\n4,5\n", "'one', which is no number of steps"),
        (b"step,train.loss\n-1,2\n4,5\n", "no number of steps"),
        (b"step,train.loss\n1.5,2\n4,5\n", "no number of steps"),
        (b"step,train.loss\n" + b"9" * 39 + b",2\n4,5\n", "no number of steps"),
        (b"step,train.loss\n1,\xff\n4,5\n", "line 2 is not UTF-8"),
        (b'step,train.loss\n1,"' + b"x" * 200_000 + b'"\n', "is no row of a table"),
        (b"step," + b",".join(b"c%d" % number for number in range(20_000)) + b"\n", "has no column of steps"),
    ],
)
def test_what_is_no_log(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        read(path)
    assert said in str(refused.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, tmp_path / "nothing", tmp_path / "pipe" / "in"):
        with pytest.raises(DataError):
            LogFile(place)


@pytest.mark.parametrize(
    "content",
    [
        "step,train.loss\n1,3.5\n2,3.25\n",
        "Step;train.loss;note\n1;3.5;\n2;3.25;good\n",
        "\ufeffiteration\ttrain.loss\n1\t3.5\n2\t3.25\n",
        '"global_step","train.loss"\r\n"1","3.5"\r\n"2","3.25"\r\n',
        "train.loss,step\n3.5,1.0\n\n3.25,2\n",
        "Wall time,Step,train.loss\n1.5e9,1,3.5\n1.5e9,2,3.25",
    ],
)
def test_tables_of_many_kinds(content: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content, encoding="utf-8")
    found, remarks = read(path)
    assert found == [(1, 3.5), (2, 3.25)]
    assert bool(remarks) == (not content.endswith("\n"))


def test_empty_cells_and_words_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,train.loss,val.loss,note\n1,3.5,,a\n2,nan,2.0,\n")
    first, second = LogFile(tmp_path / "log.csv")
    assert first["data"] == {"train.loss": 3.5, "note": "a"}
    assert metrics_of(second)["train.loss"] != 3 and metrics_of(second)["val.loss"] == 2.0


def test_the_later_attempt_of_a_resumed_run_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "log", "plain")
    begins = '{"type": "METADATA", "metric": "attempt", "metadata": {"number": 2, "after_step": 2}}\n'
    path.write_text(path.read_text() + begins + plain(1, 3, 2.75) + "\n")
    found, (remark,) = read(path)
    assert found == [*VALUES[:2], (1, 3, 2.75)]
    assert remark.endswith("a later attempt made again, which counts: 1")
