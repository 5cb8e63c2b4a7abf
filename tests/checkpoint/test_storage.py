"""Checkpoints on disk: complete or absent, readable or a clear error."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from paddock.checkpoint import storage
from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.storage import (
    StoredTensors,
    describe_checkpoint,
    is_checkpoint,
    read_tensors,
    saved_tensors,
    write_checkpoint,
)
from paddock.checkpoint.tensors import MODEL, give_to_optimizer, room_for_optimizer, tensors_of
from paddock.errors import DataError, MachineError


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def test_round_trip_of_model_and_optimizer(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "step-1"
    write_checkpoint(path, tensors_of([model], optimizer), {"step": 2, "note": "é"})
    other, fresh = trained(seed=1)
    state = room_for_optimizer(saved_tensors(path), [other])
    read_tensors(path, {**tensors_of([other], None), **state})
    give_to_optimizer(state, [other], fresh)
    wanted, found = tensors_of([model], optimizer), tensors_of([other], fresh)
    assert wanted.keys() == found.keys() and len(wanted) == 4 * 4
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert describe_checkpoint(path) == {"format": 1, "step": 2, "note": "é"}
    for step in ((model, optimizer), (other, fresh)):  # and the next step is the same
        step[1].zero_grad()
        step[0](torch.ones(2, 4)).square().sum().backward()
        step[1].step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_tensors_one_at_a_time(tmp_path: Path) -> None:
    model, optimizer = trained()
    write_checkpoint(tmp_path / "c", tensors_of([model], optimizer), {})
    stored = StoredTensors(tmp_path / "c", MODEL)
    assert set(stored) == set(model.state_dict()) and len(stored) == 4
    assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items())


def test_every_file_is_safetensors_or_json(tmp_path: Path) -> None:
    model, optimizer = trained()
    write_checkpoint(tmp_path / "c", tensors_of([model], optimizer), {})
    assert {path.suffix for path in (tmp_path / "c").iterdir()} == {".safetensors", ".json"}


def crash_when(name: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def crash(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(name, crash)


@pytest.mark.parametrize(
    "where", ["paddock.checkpoint.storage.dcp.save", "paddock.checkpoint.storage.atomic_write", "os.rename"]
)
def test_a_crash_while_saving_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=1, leads=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    with monkeypatch.context() as patch:
        crash_when(where, patch, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            checkpoints.save(2, tensors_of([model], optimizer), {}, best=False)
    assert checkpoints.latest() == tmp_path / "checkpoints" / "step-00000001"
    read_tensors(find_checkpoint(tmp_path), tensors_of([model], None))


def test_what_a_kill_left_half_written_is_ignored_and_cleaned_up(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=None, leads=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    partial = tmp_path / "checkpoints" / ".step-00000002.partial"
    partial.mkdir()
    (partial / "shard.safetensors").write_bytes(b"half")
    assert find_checkpoint(tmp_path).name == "step-00000001"
    checkpoints.save(3, tensors_of([model], optimizer), {}, best=False)
    assert not partial.exists()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=None, leads=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(storage.HuggingFaceStorageWriter, "write_data", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(MachineError, match=r"cannot write .*step-00000002(.|\n)*No space left") as caught:
        checkpoints.save(2, tensors_of([model], optimizer), {}, best=False)
    assert caught.value.exit_code == 3
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if not path.is_symlink()] == ["step-00000001"]


def test_latest_best_and_keep(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=2, leads=True)
    for step, best in ((1, True), (2, False), (3, False), (4, False)):
        checkpoints.save(step, tensors_of([model], optimizer), {}, best)
    folder = tmp_path / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == [
        "best",
        "latest",
        "step-00000001",  # the best one stays
        "step-00000003",
        "step-00000004",
    ]
    assert (folder / "best").resolve().name == "step-00000001"
    assert (folder / "latest").resolve().name == "step-00000004"
    for source in (tmp_path, folder, folder / "latest", folder / "step-00000004"):
        assert find_checkpoint(source).name == "step-00000004"
    assert find_checkpoint(folder / "best").name == "step-00000001"


def saved(tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    model, _ = trained()
    tensors = tensors_of([model], None)
    write_checkpoint(tmp_path / "c", tensors, {"step": 1})
    return tmp_path / "c", tensors


def test_truncated(tmp_path: Path) -> None:
    path, tensors = saved(tmp_path)
    file = next(path.glob("*.safetensors"))
    content = file.read_bytes()
    for length in (0, 4, 60, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match="is damaged") as caught:
            read_tensors(path, tensors)
        assert caught.value.exit_code == 4


def test_a_missing_shard(tmp_path: Path) -> None:
    path, tensors = saved(tmp_path)
    next(path.glob("*.safetensors")).unlink()
    with pytest.raises(DataError, match=r"does not fit this model(.|\n)*missing: model\.0\.weight"):
        read_tensors(path, tensors)


def test_of_another_model(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    other = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    with pytest.raises(DataError, match=r"of another shape: model\.0\.weight \[3, 4\], wanted \[5, 4\]") as caught:
        read_tensors(path, tensors_of([other], None))
    assert "unexpected" not in str(caught.value)
    with pytest.raises(DataError, match=r"unexpected: model\.1\.bias, model\.1\.weight"):
        read_tensors(path, tensors_of([nn.Sequential(nn.Linear(4, 3))], None))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "{"])
def test_foreign_descriptions(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint.json").write_text(text)
    assert is_checkpoint(tmp_path)
    with pytest.raises(DataError):
        describe_checkpoint(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no .*nowhere"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no checkpoint"):
        find_checkpoint(tmp_path)
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(DataError, match="holds no checkpoint"):
        find_checkpoint(tmp_path / "file")
