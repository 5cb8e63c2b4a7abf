"""Labels of texts and masked words, by models that only count words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paddock.data.config import DataConfig, MaskedConfig
from paddock.data.labels.config import LabelledTextData
from paddock.errors import DataError
from paddock.inference.predictors import Predictor, PredictorSetup, predictor_of
from paddock.models.bert.config import BertConfig
from paddock.testing.samples.texts import word_tokenizer


class Counting(nn.Module):
    """The score of a class, or of a token, is how often the token of that number occurs in the text's own places."""

    def __init__(self, config: BertConfig, tokens: list[int], everywhere: bool) -> None:
        super().__init__()
        self.config, self._tokens, self._everywhere = config, tokens, everywhere

    def forward(self, tokens: Tensor, token_types: Tensor, lengths: Tensor) -> Tensor:
        here = torch.arange(tokens.shape[1]) < lengths[:, None]
        weight = here * (1 + 2 * token_types)
        counts = torch.stack([((tokens == token) * weight).sum(1) for token in self._tokens], dim=-1).float()
        return counts[:, None].expand(-1, tokens.shape[1], -1) if self._everywhere else counts


def open_as(task: str, folder: Path, data: DataConfig, classes: tuple[str, ...] = ()) -> Predictor:
    tokenizer = word_tokenizer(folder)
    masked = task == "masked_language_modeling"
    shape: dict[str, Any] = {"vocab": tokenizer.vocab_size, "context": 32, "head": task}
    config = BertConfig(**shape) if masked else BertConfig(**shape, classes=3)
    words = [int(tokenizer.encode(word)[0]) for word in ("berlin", "germany", "capital")]
    model = Counting(config, list(range(tokenizer.vocab_size)) if masked else words, masked)
    return predictor_of(task, PredictorSetup(model, tokenizer, classes, data, torch.device("cpu"), 2, folder))


def test_labels(tmp_path: Path) -> None:
    telling = open_as("sequence_classification", tmp_path, LabelledTextData(), ("town", "country", "seat"))
    values = ["Germany " * 3, {"text": "Berlin Berlin capital"}, "the " * 100 + "Berlin"]
    queries = [telling.query(value, "x") for value in values]
    first, second, cut = telling.predict(queries, top_k=2)
    assert [answer["label"] for answer in second] == ["town", "seat"]
    chances = torch.tensor([2.0, 0.0, 1.0]).softmax(-1)
    assert [answer["score"] for answer in second] == [round(float(chances[index]), 4) for index in (0, 2)]
    assert first[0]["label"] == "country"
    assert cut[0]["score"] == round(1 / 3, 4)  # Berlin stands behind what the model can see
    unnamed = open_as("sequence_classification", tmp_path, LabelledTextData())
    assert unnamed.predict(queries[:1], top_k=1)[0][0]["label"] == "1"


def test_pairs(tmp_path: Path) -> None:
    data = LabelledTextData(text="premise", pair="claim")
    telling = open_as("sequence_classification", tmp_path, data, ("town", "country", "seat"))
    query = telling.query({"premise": "Berlin Berlin", "claim": "Germany"}, "x")
    assert query == telling.query({"text": "Berlin Berlin", "pair": "Germany"}, "x")
    assert telling.predict([query], top_k=1)[0][0]["label"] == "country"  # the second text counts thrice
    with pytest.raises(DataError, match="line 3 has no second text"):
        telling.query("Berlin", "line 3")
    with pytest.raises(DataError, match="line 3 has no text"):
        telling.query({"claim": "x"}, "line 3")


def test_hidden_words(tmp_path: Path) -> None:
    finding = open_as("masked_language_modeling", tmp_path, MaskedConfig())
    texts = ["berlin berlin berlin is [MASK]", "the the the the [MASK]", {"text": "[MASK] germany germany germany"}]
    found = finding.predict([finding.query(text, "x") for text in texts], top_k=2)
    assert [answers[0]["token"] for answers in found] == ["berlin", "the", "germany"]
    assert all(len(answers) == 2 and answers[0]["score"] > answers[1]["score"] for answers in found)


@pytest.mark.parametrize(
    "text, message",
    [
        ("nothing hidden", "line 3 has 0 masked words"),
        ("[MASK] [MASK]", "line 3 has 2 masked words"),
        ("[MASK]" + " the" * 40, "the model has only 32 positions"),
        (3, "line 3 has no text"),
    ],
)
def test_bad_hidden_words(tmp_path: Path, text: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        open_as("masked_language_modeling", tmp_path, MaskedConfig()).query(text, "line 3")
    assert message in str(error.value)
