"""Texts with labels: both forms of files, rows of tokens, and bad files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.labels.config import LabelledTextData
from paddock.data.labels.text import LabelledFile, class_names, encode_rows, load_rows
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.texts import word_tokenizer

LINES = [
    {"text": "the capital", "label": 1, "other": "is in Berlin"},
    {"text": 'Berlin, "the" capital', "label": 0, "other": "is"},
    {"text": "中国", "label": 10, "other": "Germany"},
]


def data_in(folder: Path, source: str, **settings: Any) -> LabelledTextData:
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n\n" for line in LINES), encoding="utf-8")
    table = [list(LINES[0]), *(list(line.values()) for line in LINES)]
    (folder / "train.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in table), encoding="utf-8")
    named = {"train": str(folder / f"train.{source}"), "cache": str(folder / "cache")}
    return LabelledTextData(source=source, **{**named, **settings})


@pytest.mark.parametrize("source", ["jsonl", "tsv"])
def test_rows(tmp_path: Path, source: str) -> None:
    tokenizer = word_tokenizer(tmp_path)
    data = data_in(tmp_path, source, pair="other")
    for _ in range(2):  # made, then found
        rows = load_rows(LabelledFile.read(data, "train"), tokenizer, data)
        assert rows.classes == ("0", "1", "10") and rows.labels.tolist() == [1, 0, 2]
        tokens, token_types = rows.row(0)
        words = [tokenizer.token_at(int(token)) for token in tokens]
        assert words == ["[CLS]", "the", "capital", "[SEP]", "is", "in", "berlin", "[SEP]"]
        assert token_types.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
        assert list(rows.lengths) == [len(rows.row(index)[0]) for index in range(3)]
    alone = data_in(tmp_path, source)
    assert load_rows(LabelledFile.read(alone, "train"), tokenizer, alone).row(0)[1].tolist() == [0] * 4


@pytest.mark.parametrize("source", ["jsonl", "tsv"])
def test_texts_of_the_web(tmp_path: Path, source: str) -> None:
    """What other programs write: a mark at the beginning, long texts, and characters that end a line for Unicode."""
    texts = ["one\u2028two\x85three", "x " * 100_000, '"quoted" half"']
    data = data_in(tmp_path, source)
    lines = [json.dumps({"text": text, "label": 1}, ensure_ascii=False) for text in texts]
    if source == "tsv":
        lines = ["text\tlabel", *(f"{text}\t1" for text in texts)]
    content = "\ufeff" + "\r\n".join(lines) + "\r\n"
    (tmp_path / f"train.{source}").write_bytes(content.encode())
    examples = LabelledFile.read(data, "train").examples(data)
    assert [example.text for example in examples] == texts and {example.label for example in examples} == {"1"}


@given(one=st.integers(0, 40), other=st.integers(0, 40), longest=st.integers(4, 40))
def test_the_longer_text_gives_way(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int, longest: int
) -> None:
    tokenizer = word_tokenizer(tmp_path_factory.getbasetemp())
    (row, first), *_ = encode_rows(["the " * one], ["is " * other], tokenizer, longest)
    kept, kept_other = row.count(tokenizer.encode("the")[0]), row.count(tokenizer.encode("is")[0])
    room = longest - 3
    assert len(row) == kept + kept_other + 3 and first == kept + 2
    assert kept + kept_other == min(room, one + other)
    if kept < one:
        assert kept >= kept_other - 1
    if kept_other < other:
        assert kept_other >= kept
    (alone, end), *_ = encode_rows(["the " * one], None, tokenizer, longest)
    assert len(alone) == end == min(one, longest - 2) + 2


def test_labels_in_order() -> None:
    assert class_names(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert class_names(["pos", "neg", "10"]) == ["10", "neg", "pos"]
    assert class_names(["1", "01", "001"]) == ["001", "01", "1"]  # the same number, and always the same order
    assert class_names(["--1", "2"]) == ["--1", "2"] and class_names(["9" * 5000, "1"]) == ["1", "9" * 5000]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "has no lines"),
        (b"\xff", "is not text in UTF-8"),
        (b'{"text": "x", "label": 1}\n{', "train.jsonl:2 is not valid JSON"),
        (b"[1]", "train.jsonl:1 does not have the expected form"),
        (b'{"text": "x"}', "label: field required"),
        (b'{"sentence": "x", "label": 1}', "name the columns with --data.text"),
        (b'{"text": ["x"], "label": 1}', "text.str: input should be a valid string"),
        (b'{"text": "x", "label": null}', "label.str: input should be a valid string"),
        (b'{"text": "\\ud800", "label": 1}', "train.jsonl:1 is not valid JSON"),
        (b'{"text": "x", "label": ' + b"1" * 5000 + b"}", "too many digits"),
        (b'{"text": "x", "label": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_lines(tmp_path: Path, content: bytes, message: str) -> None:
    data = data_in(tmp_path, "jsonl")
    (tmp_path / "train.jsonl").write_bytes(content)
    with pytest.raises(DataError) as error:
        LabelledFile.read(data, "train").examples(data)
    assert message in str(error.value)


def test_bad_tables_and_missing_files(tmp_path: Path) -> None:
    data = data_in(tmp_path, "tsv")
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\t1\textra\n")
    with pytest.raises(DataError, match="train.tsv:2 has more columns"):
        LabelledFile.read(data, "train").examples(data)
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\n")
    with pytest.raises(DataError, match="train.tsv:2 does not have the expected form"):
        LabelledFile.read(data, "train").examples(data)
    (tmp_path / "train.tsv").unlink()
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(DataError, match="it is a pipe, not a file"):
        LabelledFile.read(data, "train")
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(DataError, match="cannot read"):
        LabelledFile.read(data, "train")
    with pytest.raises(ConfigError, match="data.validation is not set"):
        LabelledFile.read(data, "validation")
    with pytest.raises(ConfigError, match="data.source = synthetic would ignore it"):
        LabelledTextData(source="synthetic", train="x")
