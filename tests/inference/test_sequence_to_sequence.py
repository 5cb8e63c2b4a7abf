"""Sources that a model writes about, one by one: what is refused, and what is cut where that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.errors import DataError
from paddock.inference.predictors import PredictorSetup, predictor_of
from paddock.inference.sequence_to_sequence import TargetPredictor
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5
from paddock.testing.samples.texts import word_tokenizer


def predictor(folder: Path, **settings: Any) -> TargetPredictor:
    tokenizer = word_tokenizer(folder)
    config = T5Config(layers=1, hidden=8, heads=1, head_size=8, feed_forward=8, vocab=tokenizer.vocab_size)
    data = SequencePairsData(**{"sequence_length": 4, "target_length": 4, **settings})
    setup = PredictorSetup(T5(config), tokenizer, (), data, torch.device("cpu"), 3, folder)
    found = predictor_of("sequence_to_sequence", setup)
    assert isinstance(found, TargetPredictor)
    return found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", r'line 3 has no source\n  fix: give a string, or {"source"'),
        (" \n", "line 3 has no source"),
        ({"target": "berlin"}, "line 3 has no source"),
        ({"source": 7}, "line 3 has no source"),
        ("the capital of germany", r"line 3 has a source of 5 tokens(.|\n)*data\.sequence_length = 4"),
    ],
)
def test_sources_that_are_refused(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        predictor(tmp_path).query(value, "line 3")


def test_a_source_is_cut_where_training_cut_them(tmp_path: Path) -> None:
    whole, cutting = predictor(tmp_path), predictor(tmp_path, truncate=True)
    fits = whole.query("the capital of", "line 3")
    assert len(fits) == 4
    assert cutting.query("the capital of germany", "line 3") == fits, "it still ends as a source does"
