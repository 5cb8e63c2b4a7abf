"""JSON of files: whatever is wrong with it is an error that names the file."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from paddock.documents import Document, Parser, parse_document, parse_json, read_document, uncollected
from paddock.errors import DataError


class Recorded(Document):
    step: int
    names: list[str] = []  # noqa: RUF012 - pydantic copies defaults


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "expecting property name"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "too many digits"),
        (b'{"step": 1, "names": ["\\ud800"]}', "half of a character"),
        (b'{"\\uDC12": 1}', "half of a character"),
        (b'{"step": 1, "names": ["\xed\xbb\x98"]}', "byte 23 is not UTF-8"),
        (b"{}", "step: field required"),
        (b"[]", "the whole: "),
        (b'{"step": "1"}', "step: input should be a valid integer"),
        (b'{"step": true}', "step: input should be a valid integer"),
        (b'{"step": 1, "names": [1, 2]}', "names.0: input should be a valid string (and 1 more)"),
    ],
)
def test_damage_is_named(text: bytes, why: str) -> None:
    with pytest.raises(DataError, match="a.json") as caught:
        parse_document(text, Recorded, "a.json")
    assert why in caught.value.why


def test_what_fits_is_read_and_what_is_more_is_let_pass(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"step": 3, "names": ["a"], "later": {}}')
    assert read_document(path, Recorded) == Recorded(step=3, names=["a"])
    assert parse_document(r'{"step": 3, "names": ["\ud83d\ude00"]}', Recorded, "a").names == ["😀"]
    with pytest.raises(DataError, match="cannot read"):
        read_document(tmp_path / "b.json", Recorded)


def test_what_is_said_twice_and_what_is_too_long(tmp_path: Path) -> None:
    text = '{"step": 3, "more": [{"a": 1, "a": 2}]}'
    assert parse_document(text, Recorded, "a.json").step == 3
    with pytest.raises(DataError, match="it says a twice"):
        parse_document(text, Recorded, "a.json", unique=True)
    path = tmp_path / "a.json"
    path.write_text(text)
    assert read_document(path, Recorded, max_bytes=len(text)).step == 3
    with pytest.raises(DataError, match="39 bytes, where 38 are plenty"):
        read_document(path, Recorded, max_bytes=len(text) - 1)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    for path, what in ((tmp_path / "a.json", "a pipe"), (tmp_path, "a folder"), (Path("/dev/zero"), "a device")):
        with pytest.raises(DataError, match="cannot read") as caught:
            read_document(path, Recorded)
        assert caught.value.why == f"it is {what}, not a file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "a.json:3 is not valid JSON"),
        (b"\xff", "a.json:3 is not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "too many digits"),
        (b'{"step": 1, "names": ["\\ud800"]}', "a.json:3 is not valid JSON"),
        (b'{"step": 1, "more": ' + b"[" * 300 + b"]" * 300 + b"}", "a.json:3 is not valid JSON"),
        (b"{}", "step: field required"),
        (b'{"step": "1"}', "step: input should be a valid integer"),
    ],
)
def test_a_parser_of_many_lines_says_the_same(text: bytes, said: str) -> None:
    parse = Parser(Recorded)
    assert parse(b'{"step": 3, "later": {}}', "a.json:1") == Recorded(step=3)
    with pytest.raises(DataError) as caught:
        parse(text, "a.json:3")
    assert said in str(caught.value)


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_rests_while_something_is_read(collects: bool) -> None:
    """And is afterwards as it was, whatever was read."""

    @uncollected()
    def read(text: str) -> object:
        assert not gc.isenabled()
        return parse_json(text, "here")

    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert read("[1]") == [1]
        assert gc.isenabled() == collects
        with pytest.raises(DataError):
            read("[1")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
