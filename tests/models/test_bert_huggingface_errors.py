"""BERT folders that must not be loaded: each is an error that names what is wrong and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from paddock.checkpoint.foreign.huggingface import load_weights, read_config, save_folder
from paddock.errors import ConfigError, DataError
from paddock.models.bert.config import BertConfig
from paddock.models.bert.model import Bert
from paddock.models.layers.initialization import initialize

CONFIG = BertConfig(hidden=8, layers=2, heads=2, vocab=11, context=4)
ANSWERS = CONFIG.model_copy(update={"head": "question_answering"})
Weights = dict[str, torch.Tensor]
LAYER = "bert.encoder.layer.1"


def drawn(config: BertConfig = CONFIG) -> Bert:
    model = Bert(config)
    initialize(model, seed=0)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(drawn().state_dict(), CONFIG, tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, *words: str, config: BertConfig = CONFIG, new_heads: bool = True) -> None:
    """Loading fails with these words, and not one number of the model has changed."""
    model = drawn(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(DataError) as caught:
        load_weights(model, folder, new_heads=new_heads)
    for word in words:
        assert word in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def change_weights(folder: Path, change: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def change_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize("config", [CONFIG, ANSWERS])
@pytest.mark.parametrize("part", ["attention.self.key.bias", "output.LayerNorm.weight"])
def test_a_missing_tensor_of_the_encoder(folder: Path, part: str, config: BertConfig) -> None:
    change_weights(folder, lambda weights: weights.pop(f"{LAYER}.{part}"))
    refused(folder, f"1 missing: {LAYER}.{part}", "the folder is incomplete", config=config)


def test_a_missing_head_where_nothing_trains_one(folder: Path) -> None:
    words = ("2 missing: qa_outputs.bias, qa_outputs.weight", "it has no head for this task")
    refused(folder, *words, config=ANSWERS, new_heads=False)


def test_half_a_head(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.pop("cls.predictions.transform.dense.bias"))
    refused(folder, "1 missing: cls.predictions.transform.dense.bias", "its head is not whole")


def test_a_head_for_other_classes(tmp_path: Path) -> None:
    three = CONFIG.model_copy(update={"head": "sequence_classification", "classes": 3})
    save_folder(drawn(three).state_dict(), three, tmp_path / "three")
    two = three.model_copy(update={"classes": 2})
    refused(tmp_path / "three", "classifier.weight [3, 8], not [2, 8]", "--model.reset-head", config=two)


def test_unknown(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"bert.encoder.layer.2.output.dense.bias": torch.zeros(8)}))
    refused(folder, "1 unknown: bert.encoder.layer.2.output.dense.bias")


def test_unknown_part_of_our_own_head(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"cls.predictions.more": torch.zeros(8)}))
    refused(folder, "1 unknown: cls.predictions.more")


def test_misshapen(folder: Path) -> None:
    name = f"{LAYER}.attention.self.query.weight"
    change_weights(folder, lambda weights: weights.update({name: torch.zeros(4, 8)}))
    refused(folder, f"1 of another shape: {name} [4, 8], not [8, 8]")


def test_integers(folder: Path) -> None:
    name = f"{LAYER}.attention.self.value.bias"
    change_weights(folder, lambda weights: weights.update({name: weights[name].to(torch.int8)}))
    refused(folder, f"1 not floating point: {name} I8")


def test_the_same_weight_under_two_names(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"embeddings.LayerNorm.gamma": torch.ones(8)}))
    refused(folder, "bert.embeddings.LayerNorm.weight twice")


@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_an_untied_head(folder: Path, name: str) -> None:
    shape = (11, 8) if name.endswith("weight") else (11,)
    change_weights(folder, lambda weights: weights.update({name: torch.randn(shape)}))
    refused(folder, f"{name} differs from", "untied")
    # An encoder for another task leaves that head out, and may take the rest.
    assert any(name in remark for remark in load_weights(drawn(ANSWERS), folder, new_heads=True))


@pytest.mark.parametrize("kept", [4, 3000, -1])
def test_truncated(folder: Path, kept: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(folder, str(file), "truncated")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "both directions"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"tie_word_embeddings": False}, "tied"),
        ({"hidden_act": "silu"}, "gelu_new"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_attention_heads": 3}, "heads"),
        ({"architectures": ["BertForSequenceClassification"], "classifier_dropout": 0.5}, "classifier_dropout = 0.5"),
    ],
)
def test_configs_we_cannot_represent(folder: Path, changes: dict[str, Any], word: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(DataError) as caught:
        read_config(folder)
    assert "config.json" in str(caught.value) and word in str(caught.value)


@pytest.mark.parametrize("changes", [{"num_attention_heads": 4}, {"hidden_act": "relu"}, {"layer_norm_eps": 1e-6}])
def test_settings_that_no_shape_shows(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    with pytest.raises(ConfigError, match="trained with"):
        load_weights(drawn(), folder)


def test_regression_is_no_head_of_ours(folder: Path) -> None:
    """One label is a number; the encoder below it can still be used."""
    change_config(folder, architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})
    config = read_config(folder)
    assert isinstance(config, BertConfig) and config.head == "masked_language_modeling"


def test_another_family(folder: Path) -> None:
    from paddock.models.gpt2.config import GPT2Config
    from paddock.models.gpt2.model import GPT2

    with pytest.raises(DataError, match="holds a bert"):
        load_weights(GPT2(GPT2Config(hidden=8, layers=2, heads=2, vocab=11, context=4)), folder)
