"""Folders that must not be loaded: each is an error that names what is wrong and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from paddock.checkpoint.foreign.huggingface import is_huggingface_folder, load_weights, read_config, save_folder
from paddock.errors import ConfigError, DataError
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize

CONFIG = GPT2Config(hidden=8, layers=2, heads=2, vocab=11, context=4)
Weights = dict[str, torch.Tensor]


def drawn() -> GPT2:
    model = GPT2(CONFIG)
    initialize(model, seed=0)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(drawn().state_dict(), CONFIG, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    save_folder(drawn().state_dict(), CONFIG, tmp_path / "shards", max_shard_bytes=2000)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    return tmp_path / "shards"


def refused(folder: Path, *words: str) -> None:
    """Loading fails with these words, and not one number of the model has changed."""
    model = drawn()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(DataError) as caught:
        load_weights(model, folder)
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


def test_missing(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.pop("transformer.h.1.ln_2.bias"))
    refused(folder, "1 missing: transformer.h.1.ln_2.bias")


def test_many_missing_are_counted(folder: Path) -> None:
    def drop(weights: Weights) -> None:
        for name in [name for name in weights if ".h.1." in name]:
            del weights[name]

    change_weights(folder, drop)
    refused(folder, "12 missing: transformer.h.1.attn.c_attn.bias", "and 2 more")


def test_extra(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"transformer.h.2.ln_1.bias": torch.zeros(8)}))
    refused(folder, "1 unknown: transformer.h.2.ln_1.bias")


def test_misshapen(folder: Path) -> None:
    name = "transformer.h.0.mlp.c_fc.weight"
    change_weights(folder, lambda weights: weights.update({name: weights[name].t().contiguous()}))
    refused(folder, f"1 of another shape: {name} [32, 8], not [8, 32]")


def test_integers(folder: Path) -> None:
    name = "transformer.ln_f.bias"
    change_weights(folder, lambda weights: weights.update({name: weights[name].to(torch.int8)}))
    refused(folder, f"1 not floating point: {name} I8")


def test_the_same_weight_under_two_names(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"ln_f.bias": torch.ones(8)}))
    refused(folder, "transformer.ln_f.bias twice")


def test_untied_head(folder: Path) -> None:
    change_weights(folder, lambda weights: weights.update({"lm_head.weight": torch.randn(11, 8)}))
    refused(folder, "lm_head.weight differs from transformer.wte.weight", "untied")


@pytest.mark.parametrize("kept", [4, 60, 3000, -1])
def test_truncated_safetensors(folder: Path, kept: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(folder, str(file), "truncated")


@pytest.mark.parametrize("kept", [0, 500, -30])
def test_truncated_torch_file(folder: Path, kept: int) -> None:
    file = folder / "pytorch_model.bin"
    torch.save(load_file(folder / "model.safetensors"), file)
    (folder / "model.safetensors").unlink()
    load_weights(GPT2(CONFIG), folder)
    file.write_bytes(file.read_bytes()[:kept])
    refused(folder, str(file), "truncated")


@pytest.mark.parametrize("contents", [[1, 2], {"model": {"wte.weight": 1}}, {"a": Path("x")}])
def test_foreign_torch_file(folder: Path, contents: object) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(contents, folder / "pytorch_model.bin")
    refused(folder, str(folder / "pytorch_model.bin"))


def test_a_torch_file_runs_nothing(folder: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(folder / "attacked"),)

    (folder / "model.safetensors").unlink()
    torch.save({"wte.weight": Attack()}, folder / "pytorch_model.bin")
    refused(folder, str(folder / "pytorch_model.bin"))
    assert not (folder / "attacked").exists()


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "has no weights", "pytorch_model.bin")


def test_missing_shard(shards: Path) -> None:
    load_weights(GPT2(CONFIG), shards)
    shard = sorted(shards.glob("*.safetensors"))[1]
    shard.unlink()
    refused(shards, f"{shard} is missing")


def test_index_of_another_model(shards: Path) -> None:
    first = min(shards.glob("*.safetensors"))
    weights = load_file(first)
    name, value = weights.popitem()
    save_file(weights, first)
    refused(shards, f"{first} has no {name}")
    save_file(weights | {name: value, "transformer.ln_f.bias": torch.zeros(8)}, first)
    refused(shards, "repeats transformer.ln_f.bias")


def test_broken_index(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    for text, words in (
        ("{", "not valid JSON"),
        ("{}", "weight_map: field required"),
        ('{"weight_map": {"a": "../a"}}', "weight_map.a: string should match"),
    ):
        index.write_text(text)
        refused(shards, str(index), words)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"tie_word_embeddings": False}, "tied"),
        ({"activation_function": "silu"}, "gelu_new"),
        ({"embd_pdrop": 0.0}, "embd_pdrop = 0.0, resid_pdrop = 0.1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"n_head": 3}, "heads"),
        ({"model_type": "bart"}, "supported: bert, gpt2"),
        ({"model_type": None}, "supported: bert, gpt2"),
    ],
)
def test_configs_we_cannot_represent(folder: Path, changes: dict[str, Any], word: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(DataError) as caught:
        read_config(folder)
    assert "config.json" in str(caught.value) and word in str(caught.value)


def test_upcast_attention_is_the_same_model(folder: Path) -> None:
    change_config(folder, reorder_and_upcast_attn=True)
    assert read_config(folder) == CONFIG


@pytest.mark.parametrize("changes", [{"n_head": 4}, {"activation_function": "relu"}, {"layer_norm_epsilon": 1e-6}])
def test_settings_that_no_shape_shows(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    with pytest.raises(ConfigError, match="trained with"):
        load_weights(GPT2(CONFIG), folder)


def test_dropout_may_differ(folder: Path) -> None:
    load_weights(GPT2(CONFIG.model_copy(update={"dropout": 0.0, "init_std": 1.0})), folder)


def test_not_a_folder(tmp_path: Path, folder: Path) -> None:
    assert is_huggingface_folder(folder) and not is_huggingface_folder(tmp_path)
    assert not is_huggingface_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no config\.json"):
        read_config(tmp_path)
    (folder / "config.json").write_text('{"model_type": "gp')
    with pytest.raises(DataError, match="not valid JSON"):
        read_config(folder)
