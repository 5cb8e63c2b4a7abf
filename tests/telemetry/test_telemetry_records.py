import json
import math

import pytest

from paddock.telemetry.records import encode_record, parse_record


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


@pytest.mark.parametrize("line", ["", "hello", '{"type": "LOG"', "[1]", "3", '{"step": []}', b"\x00\x00", b"\xff"])
def test_anything_else_is_refused(line: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_record(line)


def test_our_own_strings_stay_strings() -> None:
    assert parse_record('{"type": "LOG", "data": {"version": "3.05"}}')["data"] == {"version": "3.05"}
