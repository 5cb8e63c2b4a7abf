"""Lines of JSON: which are documents, and what is said about the others."""

from __future__ import annotations

import json

import pytest

from paddock.data.preprocess.parsing import BadLine, parse_lines


def only(line: bytes) -> BadLine | str:
    documents = parse_lines(line, 7, ["text"])
    return documents.bad[0] if documents.bad else documents.texts[0][0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "invalid JSON: Expecting ',' delimiter (column 13)"),
        (b"hello", "invalid JSON: Expecting value (column 1)"),
        (b'{"text": "a"} {"text": "b"}', "invalid JSON: Extra data (column 15)"),
        (b'{"text": "a\xff"}', "invalid UTF-8: byte 12 of the line is 0xff"),
        (b'\xff\xfe{\x00"\x00', "invalid UTF-8: byte 1 of the line is 0xff"),
        (b'{"title": "a", "body": "b"}', 'it has no key "text" (it has: title, body)'),
        (b"{}", 'it has no key "text" (it has: none)'),
        (b'{"text": null}', '"text" is null, not a string'),
        (b'{"text": 3}', '"text" is a number, not a string'),
        (b'{"text": true}', '"text" is true or false, not a string'),
        (b'{"text": ["a"]}', '"text" is a list, not a string'),
        (b'{"text": {"a": 1}}', '"text" is an object, not a string'),
        (b'["text"]', "it holds a list, not a JSON object"),
        (b'"text"', "it holds a string, not a JSON object"),
        (b'{"text": "a \\ud83d b"}', r"invalid Unicode: \ud83d is half of a character"),
        (b"[" * 100_000, "invalid JSON: maximum recursion depth"),
        (b'{"text": ' + b"1" * 5000 + b"}", "invalid JSON: Exceeds the limit"),
    ],
    ids=range(17),
)
def test_a_bad_line(line: bytes, reason: str) -> None:
    bad = only(line)
    assert isinstance(bad, BadLine) and bad.line == 7
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text": "a"}\r', "a"),
        (b'  {"text": "a"}\t', "a"),
        (b'{"text": ""}', ""),
        (b'{"text": "\\u0000\\u2028\\n"}', "\0\u2028\n"),
        (b'{"text": "\\ud83d\\ude42"}', "🙂"),
        ('{"text": "对象\u2028"}'.encode(), "对象\u2028"),
        (b'{"text": "a", "text": "b"}', "b"),
        (b'{"x": NaN, "text": "a"}', "a"),
    ],
)
def test_a_good_line(line: bytes, text: str) -> None:
    assert only(line) == text


def test_lines_are_counted_and_blank_ones_are_nothing() -> None:
    data = b'\xef\xbb\xbf{"text": "a"}\r\n\r\n   \n\nnonsense\n{"text": "b"}'
    documents = parse_lines(data, 1, ["text"], begins_file=True)
    assert documents.texts == [["a", "b"]]
    assert [bad.line for bad in documents.bad] == [5]
    assert parse_lines(data, 1, ["text"]).bad[0].line == 1  # a byte order mark belongs at the beginning of a file


def test_several_keys_stay_together() -> None:
    lines = [{"a": "1", "b": "2"}, {"a": "3"}, {"a": "4", "b": 5}, {"b": "6", "a": "7"}]
    documents = parse_lines(b"\n".join(json.dumps(line).encode() for line in lines), 1, ["a", "b"])
    assert documents.texts == [["1", "7"], ["2", "6"]]
    assert [bad.line for bad in documents.bad] == [2, 3]
