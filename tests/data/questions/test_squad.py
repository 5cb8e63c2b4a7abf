"""Reading SQuAD's form: what is accepted, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.questions.features import QuestionFile
from paddock.data.questions.squad import find_file, parse_squad
from paddock.data.questions.synthetic import synthetic_squad
from paddock.errors import ConfigError, DataError, UserError


def squad(context: str = "Berlin is big.", **entry: Any) -> bytes:
    """A file with one question."""
    answers = [{"text": "Berlin", "answer_start": 0}]
    question = {"id": "q1", "question": "What is big?", "answers": answers, **entry}
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}).encode()


def test_a_question() -> None:
    found = parse_squad(squad(), "f.json", unanswerable=False)
    assert found.contexts == ["Berlin is big."]
    (question,) = found.questions
    assert (question.id, question.text, question.context) == ("q1", "What is big?", 0)
    assert question.answers == (("Berlin", 0),)


def test_an_unanswerable_question() -> None:
    entry = {"answers": [], "is_impossible": True, "plausible_answers": [{"text": "Berlin", "answer_start": 0}]}
    (question,) = parse_squad(squad(**entry), "f.json", unanswerable=True).questions
    assert question.answers == ()
    with pytest.raises(DataError, match="question q1 has no answer") as error:
        parse_squad(squad(**entry), "f.json", unanswerable=False)
    assert "--data.unanswerable true" in str(error.value)


BAD_FILES = {
    b"{": "is not valid JSON",
    b"\xff\xfe": "is not valid JSON",
    b"[" * 100_000: "nested too deeply",
    b'{"data": [' + b"1" * 5000 + b"]}": "too many digits",
    b"[]": "the whole: input should be",
    b'{"data": {}}': "data: input should be a valid ",
    b'{"data": [{"title": "x"}]}': "data.0.paragraphs: field required",
    b'{"data": [{"paragraphs": [{"qas": []}]}]}': "data.0.paragraphs.0.context: field required",
    b'{"data": [{"paragraphs": [{"context": "x"}]}]}': "data.0.paragraphs.0.qas: field required",
    b'{"data": []}': "has no questions",
    b'{"data": [{"paragraphs": [{"context": "\\ud800", "qas": []}]}]}': "is not valid JSON",
    squad(question="  "): "question q1 is empty",
    squad(question=None): "question: input should be a valid string",
    squad(id=None): "a question about 'Berlin is big.' does not have the expected form",
    squad(id=True): "id.str: input should be a valid string",
    squad(answers=[]): "question q1 has no answer",
    squad(answers="Berlin"): "answers: input should be a valid list",
    squad(answers=[{"text": "Berlin"}]): "answers.0.answer_start: field required",
    squad(answers=[{"text": "", "answer_start": 0}]): "answers.0.text: string should have at least 1 character",
    squad(answers=[{"text": "Berlin", "answer_start": -6}]): "answers.0.answer_start: input should be greater",
    squad(answers=[{"text": "Berlin", "answer_start": "0"}]): "answers.0.answer_start: input should be a valid integer",
    squad(is_impossible="no"): "is_impossible: input should be a valid boolean",
}


@pytest.mark.parametrize("raw", BAD_FILES)
def test_bad_files(raw: bytes) -> None:
    with pytest.raises(DataError) as error:
        parse_squad(raw, "folder/f.json", unanswerable=False)
    assert BAD_FILES[raw] in str(error.value) and "folder/f.json" in str(error.value)


def test_an_answer_that_is_elsewhere() -> None:
    with pytest.raises(DataError) as error:
        parse_squad(squad(answers=[{"text": "Berlin", "answer_start": 3}]), "f.json", unanswerable=False)
    for part in ("f.json", "q1", "'Berlin'", "'lin is'", "character 3"):
        assert part in str(error.value)


def test_bad_questions_can_be_left_out() -> None:
    content = json.loads(squad())
    entries = content["data"][0]["paragraphs"][0]["qas"]
    entries += [{**entries[0], "id": "q2", "question": ""}, {**entries[0], "id": "q3", "answers": []}, dict(entries[0])]
    entries += [{**entries[0], "id": []}, {"id": "q4"}, 7, None]
    found = parse_squad(json.dumps(content).encode(), "f.json", unanswerable=False, skip=True)
    assert [question.id for question in found.questions] == ["q1"] and found.skipped == 7
    with pytest.raises(DataError, match="has no questions"):
        parse_squad(squad(question=""), "f.json", unanswerable=False, skip=True)


def test_finding_files(tmp_path: Path) -> None:
    def found(part: str, **fields: Any) -> str:
        return find_file(QuestionAnsweringData(**{"path": str(tmp_path), **fields}), part).name

    with pytest.raises(DataError, match="has no train-v1.1.json") as error:
        found("train")
    assert "it holds nothing" in str(error.value)
    (tmp_path / "training.json").touch()
    assert found("train") == "training.json"
    (tmp_path / "train-other.json").touch()
    with pytest.raises(DataError, match="cannot be told"):
        found("train")
    for name in ("train-v1.1.json", "train-v2.0.json", "dev-v1.1.json", "val.json", "x.json"):
        (tmp_path / name).touch()
    assert found("train") == "train-v1.1.json"
    assert found("train", unanswerable=True) == "train-v2.0.json"
    assert found("validation") == "dev-v1.1.json"
    assert found("validation", validation=str(tmp_path / "x.json")) == "x.json"
    with pytest.raises(DataError, match="cannot be told"):
        found("validation", unanswerable=True)
    with pytest.raises(DataError, match="there is no file or folder"):
        found("train", train=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="data.train is not set"):
        found("train", path=None)


@pytest.mark.parametrize("unanswerable", [False, True])
def test_synthetic_questions_are_squad(unanswerable: bool) -> None:
    raw = json.dumps(synthetic_squad(100, 7, unanswerable)).encode()
    found = parse_squad(raw, "synthetic", unanswerable)
    assert len(found.questions) == 100
    without = sum(not question.answers for question in found.questions)
    assert (20 < without < 60) if unanswerable else without == 0
    data = QuestionAnsweringData(source="synthetic", unanswerable=unanswerable)
    parts = [QuestionFile.read(data, part).parse(data) for part in ("train", "validation")]
    assert not set(parts[0].contexts) & set(parts[1].contexts)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"source": "synthetic", "path": "x"}, "data.source = synthetic would ignore it"),
        ({"sequence_length": 100, "question_length": 40, "stride": 57}, "leaves 57 for the context"),
        ({"null_threshold": 1.0}, "every question has an answer"),
    ],
)
def test_bad_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        QuestionAnsweringData(**fields)
    assert message in str(error.value)
