"""LAMBADA's files: both data sets, both spellings, and everything that a line can be instead of a passage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.data.language.embedded import embedded_documents
from paddock.data.measuring.config import LambadaData
from paddock.data.measuring.lambada import LambadaExamples, load_examples, split_passage
from paddock.data.tokenizers.load import Tokenizer, train_tokenizer
from paddock.errors import DataError
from paddock.testing.measuring import passages, write_passages

OPENAI = 'I look at him.\n\n"What sign?" But as I stare at Harlin, I don\'t care about signs'
STANDARD = "he shook his head , took a step back and smiled . `` yes you can , '' julia said in a reassuring voice"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(embedded_documents()[:30], 512)


def load(path: Path, tokenizer: Tokenizer, cache: Path, **settings: object) -> LambadaExamples:
    return load_examples(LambadaData(path=str(path), cache=str(cache), **settings), tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "form", "parts"),
    [
        (OPENAI, "strict", (OPENAI.removesuffix(" signs"), " signs")),
        (OPENAI, "harness", (OPENAI.removesuffix(" signs"), " signs")),
        (STANDARD, "strict", (STANDARD.removesuffix(" voice"), " voice")),
        (STANDARD, "harness", (STANDARD.removesuffix(" voice"), " voice")),
        # A line break before the last word: OneFlow-GPT's word, and the harness's.
        ("some kind of\n\nPower", "strict", ("some kind of", " Power")),
        ("some kind of\n\nPower", "harness", ("some kind", " of\n\nPower")),
        ("and saw the \n\nrecorder", "strict", ("and saw the", " recorder")),
        ("and saw the \n\nrecorder", "harness", ("and saw the", " \n\nrecorder")),
        ("two  blanks", "harness", ("two", "  blanks")),
        ("two  blanks \n", "strict", ("two", " blanks")),
        ("one", "strict", ("", "one")),
        ("one", "harness", ("", " one")),
    ],
)
def test_where_a_passage_is_cut(text: str, form: str, parts: tuple[str, str]) -> None:
    assert split_passage(text, form) == parts


def test_both_data_sets_are_read(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = [{"text": OPENAI}, {"text": STANDARD, "domain": "Romance"}, {"domain": 1, "text": "the list is a list"}]
    file = tmp_path / "both.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")  # no line feed at the end
    found = load(file, tokenizer, tmp_path / "cache")
    assert len(found) == 3 and found.truncated == 0
    for number, row in enumerate(rows):
        context, target = found.parts(number)
        assert tokenizer.decode(context + target) == row["text"]
        assert tokenizer.decode(target) == f" {str(row['text']).split()[-1]}"
        assert found.lengths[number] == len(context) + len(target) - 1
    last = load(file, tokenizer, tmp_path / "cache", form="last_token")
    assert [last.parts(number)[1] for number in range(3)] == [found.parts(number)[1][-1:] for number in range(3)]


def test_a_passage_a_line(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text(f"{STANDARD}\nthe list is a list\n", encoding="utf-8")
    write_passages(tmp_path / "same.jsonl", [STANDARD, "the list is a list"])
    plain = load(tmp_path / "plain.txt", tokenizer, tmp_path, source="lines")
    same = load(tmp_path / "same.jsonl", tokenizer, tmp_path)
    assert [plain.parts(number) for number in range(2)] == [same.parts(number) for number in range(2)]


def test_a_long_passage_loses_its_beginning(tokenizer: Tokenizer, tmp_path: Path) -> None:
    texts = passages(20)
    whole = load(write_passages(tmp_path / "a.jsonl", texts), tokenizer, tmp_path)
    cut = load(tmp_path / "a.jsonl", tokenizer, tmp_path, sequence_length=60)
    assert cut.truncated == sum(length > 60 for length in whole.lengths) and 0 < cut.truncated < 20
    for number in range(20):
        assert cut.tokens(number).tolist() == whole.tokens(number).tolist()[-61:]
        assert cut.parts(number)[1] == whole.parts(number)[1]


def test_examples_are_kept_until_the_file_changes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = write_passages(tmp_path / "a.jsonl", passages(4))
    first = load(file, tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache" / "lambada").rglob("*.arrays"))
    assert load(file, tokenizer, tmp_path / "cache").digest == first.digest
    write_passages(file, passages(5, seed=1))
    second = load(file, tokenizer, tmp_path / "cache")
    assert len(second) == 5 and second.digest != first.digest


@pytest.mark.parametrize(
    ("lines", "where", "message"),
    [
        (['{"text": "one two"}', "", '{"text": "three four"}'], ":2", "is blank"),
        (['{"text": "one two"}', "  \t"], ":2", "is blank"),
        (['{"text": "one two"}', "", ""], ":2", "is blank"),
        (['{"text": "one two"}', '{"texts": "one two"}'], ":2", "text: field required"),
        (['{"text": ["one", "two"]}'], ":1", "text: input should be a valid string"),
        (['"one two"'], ":1", "should be an object"),
        (['{"text": "one two"}', '{"text": "one'], ":2", "is not valid JSON"),
        (['{"text": "one\\ud800 two"}'], ":1", "half of a character"),
        (['{"text": "word"}'], ":1", "one word only"),
        (['{"text": "  word "}'], ":1", "one word only"),
        (['{"text": ""}'], ":1", "one word only, or none"),
        (['{"text": "one ' + "东" * 99 + '"}'], ":1", "has a last word of"),
        ([], "", "has no lines"),
    ],
)
def test_a_line_that_is_no_passage(
    lines: list[str], where: str, message: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load(file, tokenizer, tmp_path / "cache", sequence_length=64)
    assert f"{file}{where}" in str(caught.value) and message in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.arrays"))


def test_the_harness_finds_no_word_behind_a_blank(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = write_passages(tmp_path / "bad.jsonl", ["one two "])
    with pytest.raises(DataError, match="has no last word to find"):
        load(file, tokenizer, tmp_path, form="harness")
    assert len(load(file, tokenizer, tmp_path)) == 1


@pytest.mark.parametrize("content", [b'{"text": "one two"}\n\xff\xfe\n', b'{"text": "one tw\xc3'])
def test_bytes_that_are_no_text(content: bytes, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="is not text in UTF-8"):
        load(tmp_path / "bad.jsonl", tokenizer, tmp_path)


def test_a_file_that_is_not_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load(tmp_path / "nowhere.jsonl", tokenizer, tmp_path)
    with pytest.raises(DataError, match="a folder, not a file"):
        load(tmp_path, tokenizer, tmp_path)
