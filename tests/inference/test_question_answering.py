"""Answers of a model that knows, by its nature, which words it likes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paddock.data.questions.config import QuestionAnsweringData
from paddock.errors import ConfigError, DataError
from paddock.inference.predictors import PredictorSetup, predictor_of
from paddock.inference.question_answering import AnswerPredictor, AskedQuestion
from paddock.models.bert.config import BertConfig
from paddock.testing.samples.texts import word_tokenizer


class Taste(nn.Module):
    """Scores a token, as a beginning and as an end, by what it is; and sees every batch that comes by."""

    def __init__(self, config: BertConfig, likes: dict[int, float]) -> None:
        super().__init__()
        self.config, self.likes = config, likes
        self.shapes: list[tuple[int, int]] = []

    def forward(self, tokens: Tensor, token_types: Tensor, lengths: Tensor) -> Tensor:
        self.shapes.append((tokens.shape[0], tokens.shape[1]))
        scores = torch.zeros(tokens.shape)
        for token, liking in self.likes.items():
            scores[tokens == token] = liking
        return torch.stack([scores, scores], dim=-1)


def predictor(
    folder: Path, likes: dict[str, float], context: int = 24, **settings: Any
) -> tuple[AnswerPredictor, Taste]:
    tokenizer = word_tokenizer(folder)
    config = BertConfig(vocab=tokenizer.vocab_size, context=context, head="question_answering")
    model = Taste(config, {tokenizer.encode(word)[0]: liking for word, liking in likes.items()})
    lengths = {"sequence_length": 24, "question_length": 6, "stride": 4}
    data = QuestionAnsweringData(**{**lengths, **settings})
    setup = PredictorSetup(model, tokenizer, (), data, torch.device("cpu"), 3, folder)
    found = predictor_of("question_answering", setup)
    assert isinstance(found, AnswerPredictor)
    return found, model


def test_the_likeliest_answers(tmp_path: Path) -> None:
    asking, _ = predictor(tmp_path, {"berlin": 3.0, "germany": 1.0}, n_best=4)
    context = "the capital of Germany is BERLIN ."
    (answers,) = asking.predict([AskedQuestion(context, "where ?")], top_k=3)
    # Berlin 6; "Germany is Berlin" 1 + 3; then "is Berlin" and "Berlin ." 0 + 3, equal
    weights = [math.exp(score) for score in (6, 4, 3, 3)]
    assert answers[0] == {"text": "BERLIN", "score": round(weights[0] / sum(weights), 4), "start": 26, "end": 32}
    assert answers[1]["text"] == "Germany is BERLIN"
    assert answers[1]["score"] == round(weights[1] / sum(weights), 4)
    assert all(context[answer["start"] : answer["end"]] == answer["text"] for answer in answers)
    assert json.loads(asking.show("1", answers)) == answers


def test_the_best_over_all_windows(tmp_path: Path) -> None:
    asking, model = predictor(tmp_path, {"berlin": 3.0, "germany": 4.0})
    context = "in Germany " + "x " * 200 + "in Berlin " + "x " * 50000
    questions = [AskedQuestion(context, "where ?"), AskedQuestion("Berlin is big", "who is in the capital ?")]
    first, second = asking.predict(questions, top_k=20)
    assert first[0]["text"] == "Germany" and second[0]["text"] == "Berlin"
    assert [answer["text"] for answer in first].count("Berlin") == 1  # two windows saw it
    assert len(first) == 20 and sum(answer["score"] for answer in first) == pytest.approx(1, abs=2e-3)
    assert max(time for _, time in model.shapes) == 24


def test_questions_of_like_length_go_together(tmp_path: Path) -> None:
    asking, model = predictor(tmp_path, {"berlin": 3.0})
    contexts = ["Berlin", "Berlin " + "x " * 15] * 3
    found = asking.predict([AskedQuestion(context, "who ?") for context in contexts], top_k=1)
    assert model.shapes == [(3, 24), (3, 8)]
    assert [answers[0]["text"] for answers in found] == ["Berlin"] * 6


def test_an_answer_has_a_length(tmp_path: Path) -> None:
    likes = {"capital": 3.0, "germany": 3.0}
    for longest, expected in ((3, "capital of Germany"), (2, "capital")):
        asking, _ = predictor(tmp_path, {**likes, "of": -9.0}, answer_length=longest)
        outputs = asking.predict([AskedQuestion("the capital of Germany", "who ?")], top_k=9)[0]
        assert max(len(answer["text"].split()) for answer in outputs) == longest
        assert expected in [answer["text"] for answer in outputs[:3]]


@pytest.mark.parametrize("liking, threshold, first", [(2.5, 0.0, ""), (1.5, 0.0, "Berlin"), (2.5, 2.0, "Berlin")])
def test_no_answer(tmp_path: Path, liking: float, threshold: float, first: str) -> None:
    likes = {"berlin": 2.0, "[CLS]": liking}
    asking, _ = predictor(tmp_path, likes, unanswerable=True, null_threshold=threshold)
    answers = asking.predict([AskedQuestion("Berlin is big", "who ?")], top_k=2)[0]
    assert answers[0]["text"] == first and {answers[0]["text"], answers[1]["text"]} == {"", "Berlin"}
    none = next(answer for answer in answers if not answer["text"])
    assert (none["start"], none["end"]) == (0, 0)
    certain, _ = predictor(tmp_path, likes)  # every question has an answer
    assert certain.predict([AskedQuestion("Berlin is big", "who ?")], top_k=1)[0][0]["text"] == "Berlin"


def test_a_context_without_tokens(tmp_path: Path) -> None:
    asking, _ = predictor(tmp_path, {})
    found = asking.predict([AskedQuestion("\x07", "who ?")], top_k=2)
    assert found == [[{"text": "", "score": 0.0, "start": 0, "end": 0}]]
    assert asking.predict([], top_k=1) == []


def test_fewer_positions_than_the_recipe_has(tmp_path: Path) -> None:
    asking, model = predictor(
        tmp_path, {"berlin": 1.0}, context=16, sequence_length=384, stride=128, question_length=64
    )
    asking.predict([AskedQuestion("x " * 30 + "Berlin", "who is " * 9)], top_k=1)
    assert max(time for _, time in model.shapes) == 16


def test_forms_of_a_question(tmp_path: Path) -> None:
    asking, _ = predictor(tmp_path, {})
    asked = AskedQuestion("2 - 1 = 1, and 3 - 2 = 1", "How much - exactly?")
    assert asking.query({"context": asked.context, "question": asked.question}, "x") == asked
    split = asking.query("2 - 1 = 1, and 3 - 2 = 1 - How much?", "x")
    assert split == AskedQuestion("2 - 1 = 1, and 3 - 2 = 1", "How much?")
    assert asking.query("state-of-the-art - What?", "x") == AskedQuestion("state-of-the-art", "What?")


@pytest.mark.parametrize(
    "value, message",
    [
        ("no question here", "has no question"),
        ("context - ", "the question is empty"),
        (" - question", "the context is empty"),
        ({"context": "x", "question": "  "}, "the question is empty"),
        ({"context": "x"}, "has no question"),
        ({"context": 3, "question": "x"}, "has no context"),
        (["x"], "has no context"),
        ({"context": "\ud800", "question": "x"}, "not text in UTF-8"),
    ],
)
def test_bad_questions(tmp_path: Path, value: Any, message: str) -> None:
    asking, _ = predictor(tmp_path, {})
    with pytest.raises(DataError) as error:
        asking.query(value, "line 7")
    assert message in str(error.value) and "line 7" in str(error.value)


def test_models_without_a_tokenizer_or_a_predictor(tmp_path: Path) -> None:
    _, model = predictor(tmp_path, {})
    data = QuestionAnsweringData()
    setup = PredictorSetup(model, None, (), data, torch.device("cpu"), 1, tmp_path)
    with pytest.raises(DataError, match="has no tokenizer"):
        predictor_of("question_answering", setup)
    with pytest.raises(ConfigError, match="was trained for language_modeling") as error:
        predictor_of("language_modeling", setup)
    assert "paddock generate" in str(error.value)
