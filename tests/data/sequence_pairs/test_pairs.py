"""Pairs of texts: three forms of files, rows of tokens, what is too long, and bad files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from paddock.data.sequence_pairs import text as pairs_text
from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.data.sequence_pairs.text import PairsFile, SequencePairs, load_pairs
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.texts import word_tokenizer

LINES = [
    ("the capital", "berlin"),
    ('berlin, "the" capital', "is in germany"),
    ("who\u2028is in\x85the capital", "中国"),  # with what ends a line for Unicode
    ("x " * 3000, "y"),
]


def write(folder: Path, form: str, lines: list[tuple[str, str]] = LINES) -> tuple[str, ...]:
    """A file of these pairs, or two, as programs on Windows write them; returns their names."""
    mark = "\ufeff"
    if form == "text":
        for name, column in zip(("source.txt", "target.txt"), zip(*lines, strict=True), strict=True):
            (folder / name).write_bytes((mark + "".join(f"{text}\r\n" for text in column)).encode())
        return str(folder / "source.txt"), str(folder / "target.txt")
    rows = [json.dumps({"source": one, "n": 1, "target": other}, ensure_ascii=False) for one, other in lines]
    if form == "tsv":
        rows = ["source\tn\ttarget", *(f"{one}\t1\t{other}" for one, other in lines)]
    (folder / f"pairs.{form}").write_bytes((mark + "\r\n".join(rows) + "\r\n").encode())
    return (str(folder / f"pairs.{form}"),)


def data_in(folder: Path, form: str = "jsonl", **settings: Any) -> SequencePairsData:
    lines = settings.pop("lines", LINES)
    lengths = {"sequence_length": 4000, "target_length": 16}
    named = {"train": write(folder, form, lines), "cache": str(folder / "cache")}
    return SequencePairsData(source=form, **{**named, **lengths, **settings})  # type: ignore[arg-type]


def load(data: SequencePairsData, tokenizer: EngineTokenizer) -> SequencePairs:
    return load_pairs(PairsFile(data, "train"), tokenizer)


@pytest.mark.parametrize("form", ["jsonl", "tsv", "text"])
def test_every_form_gives_the_same_pairs(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_text, "BLOCK", 3)
    tokenizer, data = word_tokenizer(tmp_path), data_in(tmp_path, form)
    expected = [[[*tokenizer.encode(text), tokenizer.sep_id] for text in pair] for pair in LINES]
    for found in ("made", "kept"):
        pairs = load(data, tokenizer)
        assert len(pairs) == 4 and pairs.cut_sources == pairs.cut_targets == 0
        assert [pairs.target_text(index) for index in range(4)] == [target for _, target in LINES]
        assert [[pairs.source(index).tolist(), pairs.target(index).tolist()] for index in range(4)] == expected
        assert pairs.source_lengths.tolist() == [len(pairs.source(index)) for index in range(4)], found
        # The second time nothing is tokenized.
        monkeypatch.setattr(EngineTokenizer, "encode_plain", None)


def test_a_prefix_is_part_of_the_source(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path)
    plain, data = data_in(tmp_path), data_in(tmp_path, prefix="who is: ")
    pairs = load(data, tokenizer)
    assert load(plain, tokenizer).source(0).tolist() == [*tokenizer.encode("the capital"), tokenizer.sep_id]
    assert pairs.source(0).tolist() == [*tokenizer.encode("who is: the capital"), tokenizer.sep_id]
    assert pairs.target(0).tolist() == [*tokenizer.encode("berlin"), tokenizer.sep_id]


def test_other_keys(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"en": "the capital", "de": 7}\n\n')
    data = SequencePairsData(train="x", cache=str(tmp_path), source_key="en", target_key="de")  # type: ignore[arg-type]
    data = data.model_copy(update={"train": (str(tmp_path / "x.jsonl"),)})
    (pair,) = PairsFile(data, "train").pairs()
    assert (pair.source, pair.target) == ("the capital", "7")


LONG = [("the", "is"), ("the " * 9, "is " * 3), ("the " * 12, "is"), ("the", "is " * 5)]


def test_what_is_too_long_is_an_error_that_counts(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path)
    assert len(load(data_in(tmp_path, lines=LONG, sequence_length=13, target_length=6), tokenizer)) == 4
    with pytest.raises(DataError) as error:
        load(data_in(tmp_path, lines=LONG, sequence_length=9), tokenizer)
    assert str(error.value).startswith(f"{tmp_path}/pairs.jsonl:2 has a source of 10 tokens")
    assert "2 of 4 sources are longer" in error.value.why and "--data.sequence-length 13" in error.value.fix
    with pytest.raises(DataError) as error:
        load(data_in(tmp_path, "text", lines=LONG, target_length=5), tokenizer)
    assert str(error.value).startswith(f"{tmp_path}/target.txt:4 has a target of 6 tokens")
    assert "1 of 4 targets" in error.value.why and "--data.truncate" in error.value.fix
    with pytest.raises(DataError, match="pairs.jsonl:1 has a source of 4 tokens"):  # a prefix takes room, too
        load(data_in(tmp_path, lines=LONG[:1], sequence_length=3, prefix="who is "), tokenizer)


def test_what_is_too_long_is_cut_and_counted(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path)
    pairs = load(data_in(tmp_path, lines=LONG, sequence_length=9, target_length=4, truncate=True), tokenizer)
    assert (pairs.cut_sources, pairs.cut_targets) == (2, 1)
    (the,), (is_,), end = tokenizer.encode("the"), tokenizer.encode("is"), tokenizer.sep_id
    assert pairs.source(2).tolist() == [the] * 8 + [end] and pairs.target(3).tolist() == [is_] * 3 + [end]
    assert pairs.target_text(3) == "is " * 5, "what is right stays whole"
    assert "2 sources and 1 targets cut" in pairs.describe()


BAD_LINES: list[tuple[bytes, str]] = [
    (b"", "there are no lines"),
    (b"\n \n", "there are no lines"),
    (b'{"source": "x", "target": "y"}\n\xff', "pairs.jsonl:2 is not text in UTF-8"),
    (b'{"source": "x", "target": "y"}\n{', "pairs.jsonl:2 is not valid JSON"),
    (b"[1]", "pairs.jsonl:1 does not have the expected form"),
    (b'{"source": "x"}', "target: field required"),
    (b'{"text": "x", "target": "y"}', "name the keys or columns with --data.source-key"),
    (b'{"source": ["x"], "target": "y"}', "pairs.jsonl:1 does not have the expected form"),
    (b'{"source": "", "target": "y"}', "pairs.jsonl:1 has an empty source"),
    (b'{"source": "x", "target": "y"}\n{"source": "x", "target": " \\n"}', "pairs.jsonl:2 has an empty target"),
    (b'{"source": "\\u0000", "target": "y"}', "pairs.jsonl:1 has a source without tokens"),
    (b'{"source": "\\ud800", "target": "y"}', "pairs.jsonl:1 is not valid JSON"),
]


@pytest.mark.parametrize("content, message", BAD_LINES)
def test_bad_lines(tmp_path: Path, content: bytes, message: str) -> None:
    data = data_in(tmp_path)
    (tmp_path / "pairs.jsonl").write_bytes(content)
    with pytest.raises(DataError) as error:
        load(data, word_tokenizer(tmp_path))
    assert message in str(error.value)


def test_two_files_must_fit(tmp_path: Path) -> None:
    data = data_in(tmp_path, "text")
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    target.write_text("a\nb")
    with pytest.raises(DataError, match="target.txt has 2 lines, and .*source.txt has 4"):
        list(PairsFile(data, "train").pairs())
    source.write_text("a\n")
    with pytest.raises(DataError, match="source.txt has 1 lines, and .*target.txt has 2"):
        list(PairsFile(data, "train").pairs())
    source.write_text("a\n\n")
    with pytest.raises(DataError, match="source.txt:2 has an empty source"):
        list(PairsFile(data, "train").pairs())
    source.write_text("a\nb\n")
    target.write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match="target.txt:2 is not text in UTF-8"):
        list(PairsFile(data, "train").pairs())


def test_bad_tables_and_missing_files(tmp_path: Path) -> None:
    data = data_in(tmp_path, "tsv")
    table = tmp_path / "pairs.tsv"
    table.write_text("source\ttarget\nx\ty\textra\n")
    with pytest.raises(DataError, match="pairs.tsv:2 has more columns"):
        list(PairsFile(data, "train").pairs())
    table.write_text("source\ttarget\nx\n")
    with pytest.raises(DataError, match="pairs.tsv:2 does not have the expected form"):
        list(PairsFile(data, "train").pairs())
    table.write_text("source\ttarget\nx\t\n")
    with pytest.raises(DataError, match="pairs.tsv:2 has an empty target"):
        list(PairsFile(data, "train").pairs())
    table.unlink()
    os.mkfifo(table)
    with pytest.raises(DataError, match="cannot read .*pairs.tsv\n  why: it is a pipe"):
        list(PairsFile(data, "train").pairs())
    table.unlink()
    with pytest.raises(DataError, match="cannot read .*pairs.tsv"):
        list(PairsFile(data, "train").pairs())
    with pytest.raises(ConfigError, match="data.validation is not set"):
        list(PairsFile(data, "validation").pairs())


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"source": "synthetic", "train": "x"}, "data.source = synthetic would ignore it"),
        ({"source": "text", "train": "x"}, "data.source = text reads 2 files"),
        ({"source": "jsonl", "validation": ("x", "y")}, "data.source = jsonl reads 1 file"),
        ({"source": "text", "source_key": "x"}, "has no keys or columns"),
        ({"target_key": "source"}, "data.source_key is the same"),
        ({"generate": "never", "num_beams": 2}, "it would be ignored"),
        ({"generate": "never", "max_new_tokens": 2}, "it would be ignored"),
        ({"language": "Chinese"}, "language"),
    ],
)
def test_settings_that_contradict_one_another(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        SequencePairsData(**settings)
    assert message in str(error.value)


def test_synthetic_words_are_reversed() -> None:
    data = SequencePairsData(source="synthetic")
    train, held_out = (list(PairsFile(data, part).pairs()) for part in ("train", "validation"))
    assert all(pair.target.split() == pair.source.split()[::-1] for pair in (*train, *held_out))
    assert len(train) == 5000 and len(held_out) == 200
