"""What `paddock predict --input` and `paddock generate --prompt-file` read, and what they refuse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import DataError
from paddock.jobs import predict as module
from paddock.jobs.generate import read_prompts
from paddock.jobs.predict import read_inputs


class TextsOnly:
    """A predictor whose inputs are no files."""

    suffixes = ()


def read(path: Path | str) -> list[tuple[str, Any]]:
    predictor: Any = TextsOnly()
    return [(given.name, given.value) for given in read_inputs(predictor, str(path))]


def test_lines(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('"a text"\n\n{"id": "x", "text": "b", "more": [1]}\n{"id": 7}\n{}\n')
    expected = [("1", "a text"), ("x", {"id": "x", "text": "b", "more": [1]}), ("7", {"id": 7}), ("5", {})]
    assert read(tmp_path / "in.jsonl") == expected
    (tmp_path / "in.txt").write_text("one\r\n\n{two\n")
    assert read(tmp_path / "in.txt") == [("1", "one"), ("3", "{two")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"id": ' + b"1" * 5000 + b"}", "too many digits"),
        (b'{"id": {}}', "does not have the expected form"),
        (b"7", "does not have the expected form"),
        (b"null", "does not have the expected form"),
        (b'["a"]', "does not have the expected form"),
        (b'"\\ud800"', "is not valid JSON"),
        (b"\xff", "is not text in UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'"fine"\n' + line + b"\n")
    with pytest.raises(DataError, match=r"in\.jsonl") as caught:
        read(tmp_path / "in.jsonl")
    assert why in str(caught.value)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,0123abc\\ud', max_size=40).map(str.encode))
def test_any_line_is_an_input_or_an_error(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(line)
    try:
        read(path)
    except DataError as error:
        assert "any.jsonl" in str(error)


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 100)
    (tmp_path / "in.txt").write_text("x" * 99 + "\n")
    with pytest.raises(DataError, match=r"in\.txt:1 has more than 100 characters"):
        read(tmp_path / "in.txt")


def test_a_pipe_that_nobody_writes_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="it is a pipe, not a file"):
        read(tmp_path / "pipe")
    with pytest.raises(DataError, match="it is a pipe, not a file"):
        list(read_prompts(str(tmp_path / "pipe")))
    with pytest.raises(DataError, match="it is a device, not a file"):
        list(read_prompts("/dev/zero"))


def test_what_a_shell_puts_in_place_of_a_command() -> None:
    for reader in (
        lambda name: [value for _, value in read(name)],
        lambda name: [line for _, line in read_prompts(name)],
    ):
        source, sink = os.pipe()
        os.write(sink, b'"one"\n')
        os.close(sink)
        assert reader(f"/dev/fd/{source}") in (["one"], ['"one"'])
        os.close(source)
