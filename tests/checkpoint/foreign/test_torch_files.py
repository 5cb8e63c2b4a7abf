"""Files of torch's own that are not what they should be: each is an error that names the file, and runs nothing."""

from __future__ import annotations

import io
import tracemalloc
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.checkpoint.foreign.huggingface import load_weights
from paddock.checkpoint.foreign.imagenet_example import read_imagenet_example
from paddock.checkpoint.foreign.weight_files import open_weights
from paddock.errors import DataError
from paddock.models.layers.initialization import initialize
from paddock.models.resnet.config import ResNetConfig
from paddock.models.resnet.model import ResNet

CONFIG = ResNetConfig(arch="resnet18", width=8, classes=4)


def drawn() -> ResNet:
    model = ResNet(CONFIG)
    initialize(model, seed=0)
    return model


def example(**changes: Any) -> dict[str, Any]:
    """What the ImageNet example saves, with something else in it."""
    model = drawn()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    weights = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    content = {"epoch": 2, "arch": "resnet18", "state_dict": weights, "best_acc1": torch.tensor(50.0)}
    return {**content, "optimizer": optimizer.state_dict()} | changes


def odd_tensors() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weight = torch.zeros(4, 64)
        return {
            "sparse": weight.to_sparse(),
            "sparse_csr": weight.to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
            "meta": torch.empty(4, 64, device="meta"),
            "complex": torch.zeros(4, 64, dtype=torch.complex64),
            "integer": torch.zeros(4, 64, dtype=torch.int64),
            "eight bits": torch.zeros(4, 64).to(torch.float8_e4m3fn),
            "bool": torch.zeros(4, 64, dtype=torch.bool),
            "one number as many": torch.zeros(1, 1).expand(4, 64),
            "of another rank": torch.zeros(4, 64, 1, 1),
            "number": 3,
            "nothing": None,
            "list": [torch.zeros(64)] * 4,
        }


@pytest.mark.parametrize("name", odd_tensors())
@pytest.mark.parametrize("place", ["alone", "state_dict"])
def test_odd_tensors(tmp_path: Path, name: str, place: str) -> None:
    weights = drawn().state_dict() | {"fc.weight": odd_tensors()[name]}
    torch.save(weights if place == "alone" else example(state_dict=weights), tmp_path / "w.pth")
    before = drawn()
    model = drawn()
    with pytest.raises(DataError) as caught:
        load_weights(model, tmp_path / "w.pth")
    assert "fc.weight" in str(caught.value) and "w.pth" in str(caught.value)
    assert all(torch.equal(value, before.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "content",
    [
        None,
        3,
        "text",
        [],
        {},
        torch.zeros(3),
        {1: torch.zeros(3)},
        {(1, 2): torch.zeros(3)},
        {None: torch.zeros(3)},
        {b"fc.weight": torch.zeros(3)},
        {"state_dict": {}},
        {"state_dict": {3: torch.zeros(3)}},
        {"state_dict": {"model": {"fc.weight": torch.zeros(3)}}},
        {"state_dict": OrderedDict()},
        defaultdict(list),
        {"model": [torch.zeros(3)], "state_dict": 3},
        {"x" * 100_000: 3},
    ],
)
def test_odd_structures(tmp_path: Path, content: object) -> None:
    for file in ("w.pth", "w.pt", "w.bin", "checkpoint.pth.tar"):
        torch.save(content, tmp_path / file)
        with pytest.raises(DataError, match=r"w\.|checkpoint\.pth\.tar") as caught:
            open_weights(tmp_path / file)
        assert len(str(caught.value)) < 1000
        with pytest.raises(DataError):
            read_imagenet_example(tmp_path / file, CONFIG)


def group(**changes: Any) -> dict[str, Any]:
    state = example()["optimizer"]
    return {**state, "param_groups": [{**state["param_groups"][0], **changes}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": None},
        {"epoch": -1},
        {"epoch": float("nan")},
        {"epoch": float("inf")},
        {"epoch": torch.zeros(3)},
        {"epoch": "2"},
        {"epoch": 10**30},
        {"best_acc1": None},
        {"best_acc1": torch.zeros(2)},
        {"best_acc1": float("nan")},
        {"best_acc1": 10**400},
        {"best_acc1": "99"},
        {"state_dict": 3},
        {"state_dict": {1: 2}},
        {"state_dict": {"module.fc.weight": 3}},
        {"optimizer": None},
        {"optimizer": {"param_groups": [], "state": {}}},
        {"optimizer": {"param_groups": [3], "state": {}}},
        {"optimizer": {"param_groups": {}, "state": {}}},
        {"optimizer": {"param_groups": [{"params": None}], "state": {}}},
        {"optimizer": {"param_groups": [{"params": ["0"]}], "state": {}}},
        {"optimizer": {"param_groups": [{"params": [0] * 62}], "state": {}}},
        {"optimizer": group(lr="much")},
        {"optimizer": group(lr=None)},
        {"optimizer": group(lr=torch.zeros(2))},
        {"optimizer": group(momentum=[0.9])},
        {"optimizer": group(weight_decay=float("nan"))},
        {"optimizer": {**group(), "state": None}},
        {"optimizer": {**group(), "state": {number: 3 for number in range(62)}}},
        {"optimizer": {**group(), "state": {"a": {}}}},
        {"optimizer": {**group(), "state": {number: {"momentum_buffer": 3} for number in range(62)}}},
        {
            "optimizer": {
                **group(),
                "state": {number: {"momentum_buffer": torch.zeros(2, 2).to_sparse()} for number in range(62)},
            }
        },
    ],
)
def test_odd_states_of_the_imagenet_example(tmp_path: Path, changes: dict[str, Any]) -> None:
    torch.save(example(**changes), tmp_path / "checkpoint.pth.tar")
    with pytest.raises(DataError, match=r"checkpoint\.pth\.tar"):
        read_imagenet_example(tmp_path / "checkpoint.pth.tar", CONFIG)


def test_the_example_itself_is_read(tmp_path: Path) -> None:
    torch.save(example(), tmp_path / "checkpoint.pth.tar")
    state = read_imagenet_example(tmp_path / "checkpoint.pth.tar", CONFIG)
    assert (state.epochs, state.best, len(state.momentum)) == (2, 50.0, 62)
    assert state.settings == {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    number = example(best_acc1=51, epoch=3, optimizer=group(lr=torch.tensor(0.25)))
    torch.save(number, tmp_path / "checkpoint.pth.tar")
    state = read_imagenet_example(tmp_path / "checkpoint.pth.tar", CONFIG)
    assert (state.epochs, state.best, state.settings["lr"]) == (3, 51.0, 0.25)


def test_files_from_before_archives(tmp_path: Path) -> None:
    """They are read too; and a text in one that is said to be long is no reason to make room for it."""
    file, weights = tmp_path / "w.pth", {"a": torch.randn(3, 4), "b": torch.randn(2).bfloat16()}
    torch.save(weights | {"c": weights["a"][1:]}, file, _use_new_zipfile_serialization=False)
    found = open_weights(file)
    assert torch.equal(found["c"].read(), weights["a"][1:]) and torch.equal(found["b"].read(), weights["b"])
    content = file.read_bytes()
    at = content.index(b"X\x01\x00\x00\x00a")
    file.write_bytes(content[: at + 1] + (1 << 30).to_bytes(4, "little") + content[at + 5 :])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"w\.pth"):
            open_weights(file)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_broken_archives(tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/version", b"3")
    for content in (b"", b"PK", b"PK\x03\x04" + bytes(50), b"\x80\x02}", b"\x80\x05" + bytes(50), buffer.getvalue()):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"w\.pth"):
            open_weights(file)


@pytest.fixture(scope="module")
def saved() -> bytes:
    buffer = io.BytesIO()
    torch.save({"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.zeros(2)}, buffer)
    return buffer.getvalue()


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_bytes_of_an_archive(saved: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Torch's files have no checksums that are looked at: what is read is a tensor under its name, or an error."""
    content = bytearray(saved)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "w.pth").write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = open_weights(tmp_path / "w.pth")
            for tensor in found.values():
                assert tensor.read().shape == tensor.shape
    except DataError:
        pass
