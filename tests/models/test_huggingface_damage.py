"""Folders that somebody made or a disk damaged: an error for users, or the same weights; soon, and in little memory."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from paddock.checkpoint.foreign.huggingface import load_weights, read_config, read_labels, save_folder
from paddock.cli.main import run
from paddock.errors import DataError, MachineError, UserError
from paddock.inference.trained import open_trained
from paddock.models.bert.config import BertConfig
from paddock.models.config import ModelConfig
from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.initialization import initialize
from paddock.models.model import allocate
from paddock.models.registry import build_model
from paddock.models.resnet.config import ResNetConfig

FAST = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CONFIGS: dict[str, ModelConfig] = {
    "gpt2": GPT2Config(hidden=8, layers=2, heads=2, vocab=11, context=4),
    "bert": BertConfig(hidden=8, layers=1, heads=2, vocab=11, context=4, head="sequence_classification", classes=3),
    "resnet": ResNetConfig(arch="resnet18", width=8, classes=4),
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([10**9, 9999, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("folders")
    for family, config in CONFIGS.items():
        model = build_model(config)
        initialize(model, seed=0)
        save_folder(model.state_dict(), config, place / family)
    return {family: place / family for family in CONFIGS}


def change_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


SIZES = {
    "gpt2": ["n_layer", "n_embd", "n_head", "n_inner", "n_positions", "vocab_size"],
    "bert": [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "vocab_size",
        "type_vocab_size",
        "num_labels",
    ],
    "resnet": ["embedding_size", "num_labels", "num_channels"],
}


@pytest.mark.parametrize("value", [10**9, 2**31, 2**63, 10**30, 9_999, -1, 0, 2.5, "12", None, [12], {"a": 1}, True])
@pytest.mark.parametrize("family", SIZES)
def test_sizes_that_are_only_claimed(folders: dict[str, Path], tmp_path: Path, family: str, value: object) -> None:
    """10⁹ layers ran on, and 10⁹ tokens took gigabytes. Where the model could be, its weights are looked at first."""
    folder = Path(shutil.copytree(folders[family], tmp_path / "folder"))
    for field in SIZES[family]:
        shutil.copy(folders[family] / "config.json", folder)
        change_config(folder, **{field: value})
        if value is None and field in ("n_inner", "num_labels"):
            continue  # the usual width; as many classes as there are names
        with pytest.raises(DataError):
            open_trained(str(folder), torch.device("cpu"))


@pytest.mark.parametrize(("family", "layers"), [("gpt2", {"n_layer": 9_999}), ("bert", {"num_hidden_layers": 9_999})])
def test_layers_that_are_not_there_are_not_built(
    folders: dict[str, Path], tmp_path: Path, family: str, layers: dict[str, int]
) -> None:
    folder = Path(shutil.copytree(folders[family], tmp_path / "folder"))
    change_config(folder, **layers)
    with pytest.raises(DataError, match=r"parameters, and its tensors have \d+ numbers"):
        open_trained(str(folder), torch.device("cpu"))


@pytest.mark.parametrize(
    "flags",
    [
        ["--model.layers", "1000000000"],
        ["--model.layers", "1000000000", "--dry-run"],
        ["--model.hidden", "1000000000"],
        ["--model.heads", "1000000000"],
        ["--model.vocab", "1000000000000"],
        ["--model.context", "1000000000000"],
        ["--model.feed-forward", "1000000000000"],
        ["--model.norm-eps", "inf"],
        ["--model.init-std", "nan"],
    ],
)
def test_recipes_of_sizes_beyond_sense(flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["train", "gpt2/tiny", "--run-dir", str(tmp_path / "run"), *flags]) == 2
    assert "it should be" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_that_no_memory_holds() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(2**30, 2**30)
    with pytest.raises(MachineError, match="take 46116") as caught:
        allocate(model, torch.device("cpu"))
    assert "--parallel.shard" in caught.value.fix


@pytest.mark.parametrize("family", CONFIGS)
@FAST
@given(data=st.data())
def test_any_field_of_a_config(folders: dict[str, Path], family: str, data: st.DataObject) -> None:
    values = json.loads((folders[family] / "config.json").read_text())
    field = data.draw(st.sampled_from(sorted({*values, *SIZES[family], "problem_type", "pruned_heads", "is_decoder"})))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in folders[family].iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(values | {field: data.draw(JSON_VALUES)}))
        try:
            config = read_config(folder)
            read_labels(folder)
            load_weights(build_model(CONFIGS[family]), folder)
        except UserError:
            return
        assert isinstance(config, ModelConfig)


@FAST
@given(data=st.data())
def test_any_bytes_of_the_header(folders: dict[str, Path], data: st.DataObject) -> None:
    original = folders["gpt2"] / "model.safetensors"
    content = bytearray(original.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, end - 1))
        content[at] = data.draw(st.integers(0, 255) | st.sampled_from(b'0123456789[]{},:"-. '))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(folders["gpt2"] / "config.json", folder)
        (folder / "model.safetensors").write_bytes(content)
        model = build_model(CONFIGS["gpt2"])
        try:
            load_weights(model, folder)
        except DataError:
            return
        weights = load_file(original)
        assert torch.equal(model.get_parameter("embedding.token.weight"), weights["transformer.wte.weight"])
        assert torch.equal(model.get_parameter("final_norm.bias"), weights["transformer.ln_f.bias"])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer.ln_f.bias", {"data_offsets": [0, 32]}),
        ("transformer.ln_f.bias", {"dtype": "F31"}),
        ("transformer.ln_f.bias", {"dtype": None}),
        ("transformer.ln_f.bias", {"shape": [-8]}),
        ("transformer.ln_f.bias", {"shape": [2**62]}),
        ("transformer.ln_f.bias", {"shape": "8"}),
    ],
)
def test_what_the_header_says_of_a_tensor(
    folders: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(folders["gpt2"], tmp_path / "folder"))
    content = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header[name] |= changes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[end:])
    with pytest.raises(DataError, match=r"model\.safetensors"):
        load_weights(build_model(CONFIGS["gpt2"]), folder)


def test_a_tensor_that_is_there_twice(folders: dict[str, Path], tmp_path: Path) -> None:
    """The library takes the last; others the first."""
    folder = Path(shutil.copytree(folders["gpt2"], tmp_path / "folder"))
    content = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    bias, weight = (json.dumps(header[f"transformer.ln_f.{part}"]) for part in ("bias", "weight"))
    text = json.dumps(header)[:-1] + f', "transformer.ln_f.weight": {bias}, "transformer.ln_f.bias": {weight}}}'
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text.encode() + content[end:])
    with pytest.raises(DataError, match="twice"):
        load_weights(build_model(CONFIGS["gpt2"]), folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "..", "a/b", "\x00", "é" * 200, ""])
def test_an_index_names_files_beside_it(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(folders["gpt2"], tmp_path / "folder"))
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"weight_map": {"transformer.wte.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="weight_map"):
        load_weights(build_model(CONFIGS["gpt2"]), folder)


def test_what_is_no_config(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["gpt2"], tmp_path / "folder"))
    for text in (
        b"[" * 50_000,
        b'{"model_type": "' + b"x" * 10**6 + b'"}',
        b"[]",
        b'{"model_type": ["gpt2"]}',
        b"\xff",
    ):
        (folder / "config.json").write_bytes(text)
        with pytest.raises(DataError) as caught:
            read_config(folder)
        assert len(str(caught.value)) < 1000
    with (folder / "config.json").open("wb") as stream:
        stream.truncate(2**34)  # 16 GB that take no room
    with pytest.raises(DataError, match="bytes"):
        read_config(folder)
