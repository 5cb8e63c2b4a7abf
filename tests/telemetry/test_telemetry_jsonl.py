"""The metrics file: its records, who writes it and who reads it."""

from __future__ import annotations

import errno
import json
import math
import os
import tracemalloc
from pathlib import Path

import pytest

from paddock.errors import DataError, MachineError
from paddock.telemetry.jsonl import JsonLinesSink, encode_record, metrics_of, parse_record, read_metrics


def test_not_finite_values_are_valid_json_and_come_back() -> None:
    data = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5, "e": "text"}
    line = encode_record({"type": "LOG", "step": [0, 1], "data": data})

    def forbid(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(line, parse_constant=forbid)["data"] == {
        "a": "nan",
        "b": "inf",
        "c": "-inf",
        "d": 1.5,
        "e": "text",
    }
    back = parse_record(line)["data"]
    assert math.isnan(back["a"])
    assert (back["b"], back["c"], back["d"], back["e"]) == (math.inf, -math.inf, 1.5, "text")


def test_a_record_is_one_line() -> None:
    assert encode_record({"type": "LOG", "data": {"note": "one\ntwo"}}).count(b"\n") == 1


def test_nvidia_spelling() -> None:
    line = (
        'DLLL {"timestamp": "1591877452.12", "datetime": "2020-06-11", "elapsedtime": "0.5", "type": "LOG",'
        ' "step": [2, 79], "data": {"train.loss": 3.05, "val.loss": NaN}}'
    )
    record = parse_record(line)
    assert (record["timestamp"], record["elapsedtime"]) == (1591877452.12, 0.5)
    assert record["step"] == [2, 79]
    assert record["data"]["train.loss"] == 3.05
    assert math.isnan(record["data"]["val.loss"])


def test_tecorigin_spelling() -> None:
    record = parse_record(
        'TCAPPDLL {"timestamp": "1.5", "type": "LOG", "step": [0, 3],'
        " \"data\": \"{'train.loss': '3.05', 'rank': '0', 'name': 'resnet', 'val.loss': 'nan'}\"}"
    )
    assert record["data"].pop("val.loss") != record["data"].get("val.loss")
    assert record["data"] == {"train.loss": 3.05, "rank": 0, "name": "resnet"}


def test_tecorigin_data_is_never_executed(capsys: pytest.CaptureFixture[str]) -> None:
    record = parse_record('TCAPPDLL {"type": "LOG", "step": [], "data": "{\'a\': print(1)}"}')
    assert record["data"] == "{'a': print(1)}"
    assert capsys.readouterr().out == ""


def test_information_lines_are_records_too() -> None:
    assert parse_record('INFO {"type": "INFO", "data": {"lr": 0.1}}')["data"] == {"lr": 0.1}


@pytest.mark.parametrize(
    "line",
    [
        *("", "hello", '{"type": "LOG"', "[1]", "3", '{"step": []}', b"\x00\x00", b"\xff"),
        *("[" * 100_000, '{"type": "LOG", "step": [' + "1" * 5000 + "]}", '{"type": 1}', '{"type": null}'),
        *('{"type": "LOG", "step": [1, "2"]}', '{"type": "LOG", "step": [1, -2]}', '{"type": "LOG", "step": {}}'),
        *('{"type": "LOG", "data": [1]}', '{"type": "LOG", "data": 7}', '{"type": "LOG", "attempt": "1"}'),
        *(
            '{"type": "LOG", "timestamp": "x"}',
            '{"type": "LOG", "elapsedtime": []}',
            '{"type": "LOG", "timestamp": NaN}',
        ),
        *('{"type": "METADATA"}', '{"type": "METADATA", "metric": "a"}', '{"type": "METADATA", "metadata": {}}'),
        *(
            '{"type": "METADATA", "metric": ["a"], "metadata": {}}',
            '{"type": "METADATA", "metric": "a", "metadata": 1}',
        ),
    ],
)
def test_anything_else_is_refused(line: str | bytes) -> None:
    with pytest.raises(DataError):
        parse_record(line)


def test_foreign_steps() -> None:
    for spelled, step in (('"PARAMETER"', []), ("7", [7]), ("null", []), ("[1, 2, 3]", [1, 2, 3])):
        assert parse_record(f'DLLL {{"type": "LOG", "step": {spelled}, "data": {{}}}}')["step"] == step


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "LOG", "step": "ab", "data": {}}',
        b'INFO {"type": "LOG", "step": 5, "data": "text"}',
        b'TCAPPDLL {"type": "LOG", "step": [0, 3], "data": "{1: 2, (3,): 4}"}',
    ],
)
def test_odd_records_are_read_and_gone_on_behind(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 3))
    path.write_bytes(path.read_bytes() + line + b"\n")
    for record in read_metrics(path):
        assert all(isinstance(name, str) for name in metrics_of(record))
    JsonLinesSink(path, attempt=2, resume_step=2).close()


@pytest.mark.parametrize("begins", [b"{}", b'{"number": "1", "after_step": 0}', b'{"number": 1, "after_step": -1}'])
def test_an_attempt_that_does_not_say_where_it_begins(tmp_path: Path, begins: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    line = b'{"type": "METADATA", "metric": "attempt", "metadata": ' + begins + b"}\n"
    path.write_bytes(line + b'{"type": "LOG", "step": [0, 1], "data": {}}\n')
    with pytest.raises(DataError, match="line 1 does not have the expected form"):
        list(read_metrics(path))


def test_a_file_without_lines_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with open(path, "wb") as stream:
        stream.truncate(3 * 2**30)
    tracemalloc.start()
    with pytest.raises(DataError, match="line 1 is not a metric record"):
        list(read_metrics(path, rewound=True))
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


def test_our_own_strings_stay_strings() -> None:
    assert parse_record('{"type": "LOG", "data": {"version": "3.05"}}')["data"] == {"version": "3.05"}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def write_run(path: Path, steps: range) -> None:
    sink = JsonLinesSink(path)
    sink.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")
    for step in steps:
        sink.log((0, step), {"train.loss": 10.0 - step})
    sink.close()


def steps_of(path: Path) -> list[int]:
    return [record["step"][1] for record in read_metrics(path) if record["type"] == "LOG" and record["step"]]


def test_records_have_the_dllogger_schema(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    clock = Clock(1000.0)
    sink = JsonLinesSink(path, clock=clock)
    sink.metadata("train.ips", unit="samples/s", goal="MAXIMIZE", stage="TRAIN")
    clock.now = 1002.5
    sink.log((1, 20), {"train.loss": 3.05, "train.ips": 812})
    sink.log((), {"summary.best_metric": math.nan})
    metadata, log, summary = [json.loads(line) for line in path.read_text().splitlines()]  # before close
    sink.close()
    assert metadata["type"] == "METADATA"
    assert metadata["metric"] == "train.ips"
    assert metadata["metadata"] == {"unit": "samples/s", "GOAL": "MAXIMIZE", "STAGE": "TRAIN"}
    assert log["type"] == "LOG"
    assert log["step"] == [1, 20]
    assert log["data"] == {"train.loss": 3.05, "train.ips": 812}
    assert (log["timestamp"], log["elapsedtime"]) == (1002.5, 2.5)
    assert log["datetime"][10] == " "
    assert summary["step"] == []
    assert summary["data"] == {"summary.best_metric": "nan"}


def test_each_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    raw, writes = sink._file, []

    class Counting:
        def write(self, data: bytes) -> int:
            writes.append(data)
            return raw.write(data)

    monkeypatch.setattr(sink, "_file", Counting())
    sink.log((0, 1), {"train.loss": 1.0})
    raw.close()
    assert len(writes) == 1
    assert writes[0].endswith(b"}\n")


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_dropped_by_reader_and_writer(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 4))
    os.truncate(path, path.stat().st_size - 1 - cut)
    assert steps_of(path) == [1, 2]
    sink = JsonLinesSink(path)
    sink.log((0, 3), {"train.loss": 7.5})
    sink.close()
    assert steps_of(path) == [1, 2, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 4))
    os.truncate(path, path.stat().st_size - 1)
    sink = JsonLinesSink(path)
    sink.log((0, 4), {"train.loss": 6.0})
    sink.close()
    assert steps_of(path) == [1, 2, 3, 4]


def test_zeros_left_by_a_power_cut_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 3))
    with open(path, "ab") as stream:
        stream.write(b"\x00" * 512)
    assert steps_of(path) == [1, 2]


def test_a_bad_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 4))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:20] + "\n" + "".join(lines[2:]))
    before = path.read_bytes()
    with pytest.raises(DataError, match="line 2"):
        list(read_metrics(path))
    with pytest.raises(DataError, match="line 2"):
        JsonLinesSink(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def go_on(path: Path, attempt: int, after: int, steps: range) -> None:
    sink = JsonLinesSink(path, attempt=attempt, resume_step=after)
    sink.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")  # a resumed run describes its metrics again
    for step in steps:
        sink.log((0, step), {"train.loss": 10.0 * attempt - step})
    sink.close()


def test_rewound_steps_stay_in_the_file_and_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 9))  # by a version that did not number its attempts
    before = path.read_bytes()
    go_on(path, 2, 5, range(6, 8))
    go_on(path, 3, 6, range(7, 10))
    assert path.read_bytes().startswith(before)
    logs = [record for record in read_metrics(path) if record["type"] == "LOG"]
    assert [record["step"][1] for record in logs] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [record.get("attempt") for record in logs] == [None] * 5 + [2, 3, 3, 3]
    every = [record for record in read_metrics(path, rewound=True) if record["type"] == "LOG"]
    assert [record["step"][1] for record in every] == [*range(1, 9), 6, 7, *range(7, 10)]
    described = [record["metric"] for record in read_metrics(path) if record["type"] == "METADATA"]
    assert described == ["train.loss", "attempt", "attempt"]


def test_an_attempt_that_begins_anew_leaves_nothing_of_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    go_on(path, 1, 0, range(1, 4))
    go_on(path, 2, 0, range(1, 3))
    found = [record["data"]["train.loss"] for record in read_metrics(path) if record["type"] == "LOG"]
    assert found == [19.0, 18.0]


def test_an_attempt_that_says_nonsense_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"type": "METADATA", "metric": "attempt", "metadata": {"number": "two"}}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl"):
        list(read_metrics(path))


@pytest.mark.parametrize(("resume_step", "summaries"), [(3, 1), (2, 0)])
def test_a_summary_stays_only_if_the_steps_it_sums_up_stay(tmp_path: Path, resume_step: int, summaries: int) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 4))
    sink = JsonLinesSink(path)
    sink.log((), {"summary.best_metric": 1.0})
    sink.close()
    JsonLinesSink(path, attempt=2, resume_step=resume_step).close()
    assert sum(record.get("step") == [] for record in read_metrics(path)) == summaries


def test_metadata_that_changed_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_run(path, range(1, 2))
    sink = JsonLinesSink(path)
    sink.metadata("train.loss", goal="MAXIMIZE", stage="TRAIN")
    sink.close()
    goals = [record["metadata"]["GOAL"] for record in read_metrics(path) if record["type"] == "METADATA"]
    assert goals == ["MINIMIZE", "MAXIMIZE"]


def test_elapsed_time_continues_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    clock = Clock(100.0)
    first = JsonLinesSink(path, clock=clock)
    for clock.now, step in ((130.0, 1), (160.0, 2)):
        first.log((0, step), {"train.loss": 1.0})
    first.close()
    clock.now = 5000.0
    second = JsonLinesSink(path, attempt=2, resume_step=1, clock=clock)
    clock.now = 5004.0
    second.log((0, 2), {"train.loss": 1.0})
    second.close()
    assert [record["elapsedtime"] for record in read_metrics(path, rewound=True)] == [30.0, 60.0, 60.0, 64.0]


@pytest.mark.parametrize("inside", ["metrics.jsonl", "deeper/metrics.jsonl"])
def test_a_path_through_a_file_is_a_machine_error(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        JsonLinesSink(tmp_path / "file" / inside)


def test_a_full_disk_is_a_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")

    class Full:
        """Takes ten bytes, then nothing more, as a disk does that fills up in mid-line."""

        taken = 0

        def write(self, data: bytes) -> int:
            if self.taken:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.taken = 10
            return 10

    sink.close()
    monkeypatch.setattr(sink, "_file", Full())
    with pytest.raises(MachineError, match="free some space"):
        sink.log((0, 1), {"train.loss": 1.0})


def test_reading_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_metrics(tmp_path / "metrics.jsonl")
