"""Weights of others into ResNets and back out: the names that are public, wrappers, other classes, and bad files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from paddock.checkpoint.foreign.huggingface import load_weights, save_folder
from paddock.checkpoint.foreign.huggingface import save_file as save_public
from paddock.errors import ConfigError, DataError
from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.models.resnet.config import ResNetConfig
from paddock.models.resnet.model import ResNet

SMALL: dict[str, Any] = {"arch": "resnet18", "width": 8, "classes": 5}


def build(seed: int, **fields: Any) -> ResNet:
    model = build_model(ResNetConfig(**{**SMALL, **fields}))
    assert isinstance(model, ResNet)
    initialize(model, seed)
    for name, buffer in model.named_buffers():
        buffer += 0.1 * (seed + len(name) % 7)
    return model.eval()


def public_state(model: ResNet, prefix: str = "") -> dict[str, Tensor]:
    """As torchvision and timm save it: with a counter of batches beside every norm."""
    state = {prefix + name: tensor.clone() for name, tensor in model.state_dict().items()}
    counters = {name.replace("running_mean", "num_batches_tracked") for name in state if name.endswith("running_mean")}
    return state | {name: torch.tensor(7) for name in counters}


def same(one: ResNet, other: ResNet) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def write(path: Path, state: dict[str, Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["resnet.safetensors", "resnet.pth", "resnet.pt"])
def test_a_file_with_the_public_names(tmp_path: Path, name: str) -> None:
    ours, theirs = build(1), build(2)
    load_weights(ours, write(tmp_path / name, public_state(theirs)))
    assert same(ours, theirs)


def test_the_checkpoint_of_the_imagenet_example(tmp_path: Path) -> None:
    ours, theirs = build(1), build(2)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
    theirs(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    content = {
        "epoch": 3,
        "arch": "resnet18",
        "state_dict": public_state(theirs, "module."),
        "best_acc1": torch.tensor(70.5),
        "optimizer": optimizer.state_dict(),
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 30).state_dict(),
    }
    torch.save(content, tmp_path / "checkpoint.pth.tar")
    load_weights(ours, tmp_path / "checkpoint.pth.tar")
    assert same(ours, theirs)


def test_an_average_is_taken_where_there_is_one(tmp_path: Path) -> None:
    ours, last, average = build(1), build(2), build(3)
    content = {"state_dict": public_state(last), "state_dict_ema": public_state(average, "_orig_mod.")}
    torch.save(content, tmp_path / "timm.pth.tar")
    load_weights(ours, tmp_path / "timm.pth.tar")
    assert same(ours, average)


def test_another_number_of_classes(tmp_path: Path) -> None:
    file = write(tmp_path / "w.safetensors", public_state(build(2, classes=7)))
    with pytest.raises(DataError, match="do not fit") as caught:
        load_weights(build(1), file, new_heads=True)
    assert "fc.weight [7, 64], not [5, 64]" in caught.value.why
    assert "--model.reset-head" in caught.value.fix and "--model.classes" in caught.value.fix
    ours = build(1, reset_head=True)
    before = ours.fc.weight.clone()
    remarks = load_weights(ours, file, new_heads=True)
    assert "begun from initial values: fc.weight, fc.bias" in remarks[0]
    assert torch.equal(ours.fc.weight, before) and torch.equal(ours.conv1.weight, build(2, classes=7).conv1.weight)


def test_a_file_without_its_last_layer(tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in public_state(build(2)).items() if not name.startswith("fc.")}
    file, ours = write(tmp_path / "backbone.pth", state), build(1)
    load_weights(ours, file, new_heads=True)
    assert torch.equal(ours.conv1.weight, build(2).conv1.weight) and torch.equal(ours.fc.weight, build(1).fc.weight)
    with pytest.raises(DataError, match="do not fit"):  # an evaluation has nothing to put there
        load_weights(build(1), file)


def test_what_does_not_fit_is_listed(tmp_path: Path) -> None:
    ours = build(1)
    before = ours.conv1.weight.clone()
    state = public_state(build(2))
    del state["layer1.0.conv1.weight"]
    state["layer9.weight"] = torch.zeros(1)
    with pytest.raises(DataError) as caught:
        load_weights(ours, write(tmp_path / "w.pth", state))
    assert "missing: layer1.0.conv1.weight" in caught.value.why and "unknown: layer9.weight" in caught.value.why
    with pytest.raises(DataError, match="do not fit"):
        load_weights(ours, write(tmp_path / "deep.pth", public_state(build(2, arch="resnet34"))))
    with pytest.raises(DataError, match="do not fit"):
        load_weights(ours, write(tmp_path / "groups.pth", build(2, norm="group").state_dict()))
    assert torch.equal(ours.conv1.weight, before)


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("trapped", "w")


def test_a_file_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": _Trap()}, tmp_path / "trap.pth")
    (tmp_path / "old.pth").write_bytes(pickle.dumps(_Trap()))
    for name in ("trap.pth", "old.pth"):
        with pytest.raises(DataError, match="cannot read the weights"):
            load_weights(build(1), tmp_path / name)
    assert not (tmp_path / "trapped").exists()


def test_broken_and_foreign_files(tmp_path: Path) -> None:
    file = write(tmp_path / "w.safetensors", public_state(build(2)))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot read"):
        load_weights(build(1), file)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DataError, match="not a file of weights"):
        load_weights(build(1), tmp_path / "list.pth")
    gpt2 = build_model(GPT2Config(layers=1, hidden=8, heads=2, vocab=16, context=8))
    with pytest.raises(ConfigError, match="come in a folder"):
        load_weights(gpt2, file)


def test_export_with_the_public_names(tmp_path: Path) -> None:
    model, other = build(2), build(1)
    save_public(model.state_dict(), model.config, tmp_path / "out" / "resnet.safetensors", "float32")
    assert set(load_file(tmp_path / "out" / "resnet.safetensors")) == set(model.state_dict())
    load_weights(other, tmp_path / "out" / "resnet.safetensors")
    assert same(model, other)
    with pytest.raises(ConfigError, match=r"resnet\.safetensors"):
        save_public(model.state_dict(), model.config, tmp_path / "resnet.pth", "float32")


def test_transformers_loads_an_exported_folder(tmp_path: Path) -> None:
    from transformers import ResNetForImageClassification

    model, other = build(2), build(1)
    save_folder(model.state_dict(), model.config, tmp_path / "folder")
    theirs, info = ResNetForImageClassification.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not info["unexpected_keys"] and all(name.endswith("num_batches_tracked") for name in info["missing_keys"])
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(images).logits, model(images), rtol=1e-4, atol=1e-5)
    load_weights(other, tmp_path / "folder")
    assert same(model, other)
