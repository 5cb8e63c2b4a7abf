"""GPT-2 against transformers: the same weights give the same logits and loss, in both directions."""

from __future__ import annotations

import json
import weakref
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.activations import ACT2FN

from paddock.checkpoint.foreign.huggingface import (
    is_huggingface_folder,
    load_weights,
    read_config,
    save_folder,
    stored_weights,
)
from paddock.errors import ConfigError, DataError
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.huggingface import from_huggingface_config, tensors, to_huggingface_config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.basic import ACTIVATIONS

SHAPES: list[dict[str, Any]] = [
    {},
    {"n_head": 2, "n_inner": 50, "activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    {"n_head": 8, "n_layer": 3, "activation_function": "relu", "vocab_size": 61},
    {"n_head": 1, "n_layer": 1, "n_embd": 20, "vocab_size": 7, "activation_function": "gelu_pytorch_tanh"},
]


def reference(**changes: Any) -> transformers.GPT2LMHeadModel:
    """Theirs, with every number random: biases of zero and norms of one would hide a mistake."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 97, "n_positions": 24}
    special = {"bos_token_id": None, "eos_token_id": None}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **special, **changes})).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3, 0.3, generator=generator)
    return model


def random_model(config: GPT2Config) -> GPT2:
    model = GPT2(config).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.3, 0.3, generator=generator)
    return model


def imported(folder: Path) -> GPT2:
    config = read_config(folder)
    assert isinstance(config, GPT2Config)
    model = GPT2(config).eval()
    load_weights(model, folder)
    return model


def assert_same(ours: GPT2, theirs: transformers.GPT2LMHeadModel) -> None:
    config = ours.config
    assert theirs.config.vocab_size == config.vocab
    tokens = torch.randint(config.vocab, (3, config.context), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = theirs(tokens, labels=tokens)
        logits = ours(tokens)
        labels = torch.cat([tokens[:, 1:], torch.full((3, 1), -100)], dim=1)
        loss = ours(tokens, labels=labels) / (labels != -100).sum()
    assert expected.logits.std() > 0.1
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss, expected.loss, atol=1e-4, rtol=1e-4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good folder, for tests that spoil it."""
    reference().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("changes", SHAPES)
def test_import_gives_their_logits(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = reference(**changes)
    theirs.save_pretrained(tmp_path)
    assert is_huggingface_folder(tmp_path)
    assert_same(imported(tmp_path), theirs)


def test_import_of_shards(tmp_path: Path) -> None:
    theirs = reference()
    theirs.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_same(imported(tmp_path), theirs)


@pytest.mark.parametrize("zipped", [True, False])
def test_import_of_torch_files(tmp_path: Path, zipped: bool) -> None:
    theirs = reference()
    theirs.config.save_pretrained(tmp_path)
    weights = tmp_path / "pytorch_model.bin"
    torch.save(theirs.state_dict(), weights, _use_new_zipfile_serialization=zipped)
    assert_same(imported(tmp_path), theirs)


def test_import_of_sharded_torch_files(tmp_path: Path) -> None:
    theirs = reference()
    theirs.config.save_pretrained(tmp_path)
    weights = dict(theirs.state_dict())
    files = {name: f"pytorch_model-{number % 3}.bin" for number, name in enumerate(weights)}
    for file in set(files.values()):
        torch.save({name: weights[name] for name in weights if files[name] == file}, tmp_path / file)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    assert_same(imported(tmp_path), theirs)


def test_import_of_the_bare_model_with_masks(tmp_path: Path) -> None:
    """The files of the original GPT-2: no prefix, and causal masks among the weights."""
    theirs = reference()
    theirs.config.save_pretrained(tmp_path)
    weights = {name: value.contiguous() for name, value in theirs.transformer.state_dict().items()}
    weights["h.0.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
    weights["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, tmp_path / "model.safetensors")
    assert_same(imported(tmp_path), theirs)


def test_import_of_a_repeated_head(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["transformer.wte.weight"].clone()
    save_file(weights, folder / "model.safetensors")
    assert_same(imported(folder), reference())


def test_import_of_half_precision(tmp_path: Path) -> None:
    theirs = reference().to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    ours = imported(tmp_path)
    assert ours.embedding.token.weight.dtype == torch.float32
    assert_same(ours, theirs.float())


def test_a_part_of_the_model_takes_its_part(folder: Path) -> None:
    """As a pipeline stage does, which holds some blocks under their names."""
    whole = imported(folder)
    stage = GPT2(whole.config)
    del stage.layers["0"], stage.embedding
    load_weights(stage, folder)
    for name, parameter in stage.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name)), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"heads": 8, "feed_forward": 50, "activation": "relu", "norm_eps": 1e-3},
        {"heads": 1, "layers": 1, "vocab": 7, "activation": "gelu", "attention_dropout": 0.0},
    ],
)
@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000, 1])
def test_export_is_what_transformers_loads(changes: dict[str, Any], max_shard_bytes: int, tmp_path: Path) -> None:
    sizes = {"hidden": 32, "layers": 2, "heads": 4, "vocab": 97, "context": 24}
    ours = random_model(GPT2Config(**{**sizes, **changes}))
    place = tmp_path / "new" / "export"
    save_folder(ours.state_dict(), ours.config, place, max_shard_bytes=max_shard_bytes)
    sharded = (place / "model.safetensors.index.json").exists()
    assert sharded == (max_shard_bytes < 10**9)
    if sharded:
        sizes_on_disk = [len(load_file(file)) for file in place.glob("*.safetensors")]
        assert min(sizes_on_disk) == 1 or max_shard_bytes > 1, "nothing fits: one tensor to a file"
        assert min(sizes_on_disk) > 0 and len(sizes_on_disk) > 1
        assert sum(sizes_on_disk) == len(ours.state_dict())
    theirs, report = transformers.GPT2LMHeadModel.from_pretrained(place, output_loading_info=True)
    assert not any(report.values()), report
    assert_same(ours, theirs.eval())
    again = imported(place)
    assert again.config == ours.config
    for name, value in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_export_in_half_precision(dtype: str, tmp_path: Path) -> None:
    ours = random_model(GPT2Config(hidden=32, layers=2, heads=4, vocab=97, context=24))
    save_folder(ours.state_dict(), ours.config, tmp_path / "export", dtype=dtype)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "export")
    assert theirs.dtype == getattr(torch, dtype)
    assert_same(ours.to(theirs.dtype).float(), theirs.float().eval())


def test_export_adds_files_before_it_appears(tmp_path: Path) -> None:
    model = random_model(GPT2Config(hidden=8, layers=1, heads=2, vocab=11, context=4))
    place = tmp_path / "export"

    def add_files(folder: Path) -> None:
        assert not place.exists()
        (folder / "vocab.json").write_text("{}")

    save_folder(model.state_dict(), model.config, place, bos_token_id=9, eos_token_id=10, add_files=add_files)
    assert (place / "vocab.json").exists()
    config = transformers.AutoConfig.from_pretrained(place)
    assert (config.bos_token_id, config.eos_token_id) == (9, 10)
    assert transformers.GenerationConfig.from_pretrained(place).eos_token_id == 10


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    model = random_model(GPT2Config(hidden=8, layers=1, heads=2, vocab=11, context=4))

    def fail(folder: Path) -> None:
        assert (folder / "model.safetensors").exists()
        raise RuntimeError("the tokenizer broke")

    with pytest.raises(RuntimeError, match="tokenizer"):
        save_folder(model.state_dict(), model.config, tmp_path / "export", add_files=fail)
    assert not list(tmp_path.iterdir())


def test_export_refuses(tmp_path: Path) -> None:
    model = random_model(GPT2Config(hidden=8, layers=1, heads=2, vocab=11, context=4))
    state = dict(model.state_dict())
    with pytest.raises(ConfigError, match="exists already"):
        save_folder({}, model.config, tmp_path)  # before anything else is looked at
    with pytest.raises(ConfigError, match="dtype = float61"):
        save_folder(state, model.config, tmp_path / "export", dtype="float61")
    large = state | {"final_norm.weight": torch.full((8,), 1e6)}
    with pytest.raises(DataError, match=r"final_norm\.weight does not fit float16"):
        save_folder(large, model.config, tmp_path / "export", dtype="float16")
    with pytest.raises(DataError, match="shape"):
        save_folder(state | {"final_norm.weight": torch.ones(9)}, model.config, tmp_path / "export")
    del state["final_norm.weight"]
    with pytest.raises(DataError, match=r"1 missing: final_norm\.weight"):
        save_folder(state, model.config, tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_one_tensor_is_in_flight_at_a_time(tmp_path: Path) -> None:
    model = random_model(GPT2Config(hidden=8, layers=6, heads=2, vocab=11, context=4))
    handed_out: list[weakref.ref[torch.Tensor]] = []

    def watched(value: torch.Tensor) -> torch.Tensor:
        handed_out.append(weakref.ref(value))
        assert sum(reference() is not None for reference in handed_out) <= 2
        return value

    class Lazy(UserDict[str, torch.Tensor]):
        def __getitem__(self, name: str) -> torch.Tensor:
            return watched(super().__getitem__(name).clone())

    save_folder(Lazy(model.state_dict()), model.config, tmp_path / "export")
    assert len(handed_out) == len(model.state_dict())
    handed_out.clear()
    for weight in stored_weights(tmp_path / "export", model.config).values():
        watched(weight.read())
    assert len(handed_out) == len(model.state_dict())


def test_rules_cover_the_model_and_invert() -> None:
    config = GPT2Config(hidden=12, layers=2, heads=3, vocab=11, context=4, feed_forward=7)
    state = random_model(config).state_dict()
    rules = {rule.ours: rule for rule in tensors(config)}
    assert set(rules) == set(state)
    for name, value in state.items():
        theirs = rules[name].to_theirs(value)
        assert value.shape == rules[name].our_shape and theirs.shape == rules[name].their_shape
        assert torch.equal(rules[name].to_ours(theirs), value), name


@pytest.mark.parametrize("name", ["gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_python"])
def test_activations_by_other_names(name: str) -> None:
    config = from_huggingface_config({"model_type": "gpt2", "activation_function": name})
    x = torch.linspace(-6, 6, 500, dtype=torch.float64)
    expected = ACT2FN[name](x)
    torch.testing.assert_close(ACTIVATIONS[config.activation](x), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("attention_dropout", [None, 0.0])
def test_config_survives_the_round_trip(attention_dropout: float | None) -> None:
    config = GPT2Config(
        layers=3, hidden=20, heads=5, feed_forward=17, vocab=13, context=9, dropout=0.2,
        attention_dropout=attention_dropout, activation="gelu", norm_eps=1e-6, init_std=0.01,
    )  # fmt: skip
    values = to_huggingface_config(config)
    assert from_huggingface_config(json.loads(json.dumps(values))) == config
    theirs = transformers.GPT2Config(**values)
    assert (theirs.attn_pdrop, theirs.resid_pdrop) == (config.attention_dropout_rate, 0.2)
    assert from_huggingface_config(transformers.GPT2Config().to_dict()) == GPT2Config()
