"""Checkpoints on disk: complete or absent, readable or a clear error."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import Tensor, nn

from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.names import is_checkpoint
from paddock.checkpoint.shards.blocks import BLOCK
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint, read_tensors, saved_tensors, write_checkpoint
from paddock.checkpoint.tensors import MODEL, OPTIMIZER, empty_optimizer_state, load_optimizer_state, tensors_of
from paddock.errors import DataError, MachineError


def trained(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("fused", [True, False])
def test_a_fused_optimizer_finds_its_step_counters_beside_its_parameters(fused: bool) -> None:
    model, optimizer = trained()
    saved = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors_of([model], optimizer).items()}
    model.to("meta")  # a device that is not the host's, as far as places go
    elsewhere = torch.optim.AdamW(model.parameters())
    for group in elsewhere.param_groups:  # no kernel of meta's would be accepted as an argument
        group["fused"] = fused
    room = empty_optimizer_state(saved, [model], elsewhere)
    places = {key.removeprefix(OPTIMIZER).split(".")[0]: tensor.device.type for key, tensor in room.items()}
    assert places == {"step": "meta" if fused else "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}


def test_round_trip_of_model_and_optimizer(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "step-1"
    write_checkpoint(path, tensors_of([model], optimizer), {"step": 2, "best": {"é": 1.5}})
    other, fresh = trained(seed=1)
    state = empty_optimizer_state(saved_tensors(path), [other], fresh)
    read_tensors(path, {**tensors_of([other], None), **state})
    load_optimizer_state(state, [other], fresh)
    wanted, found = tensors_of([model], optimizer), tensors_of([other], fresh)
    assert wanted.keys() == found.keys() and len(wanted) == 4 * 4
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    described = describe_checkpoint(path)
    assert (described.step, described.best, described.recipe) == (2, {"é": 1.5}, None)
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
    "where",
    [
        "paddock.checkpoint.storage.dcp.save",
        "paddock.checkpoint.storage.write_pieces",
        "paddock.checkpoint.storage.atomic_write",
        "os.rename",
    ],
)
def test_a_crash_while_saving_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=1, is_main=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    with monkeypatch.context() as patch:
        crash_when(where, patch, RuntimeError("power cut"))
        with pytest.raises(RuntimeError, match="power cut"):
            checkpoints.save(2, tensors_of([model], optimizer), {}, best=False)
    assert checkpoints.latest() == tmp_path / "checkpoints" / "step-00000001"
    read_tensors(find_checkpoint(tmp_path), tensors_of([model], None))


def test_what_a_kill_left_half_written_is_ignored_and_cleaned_up(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=None, is_main=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    partial = tmp_path / "checkpoints" / ".step-00000002.partial"
    partial.mkdir()
    (partial / "shard.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".latest.17.partial").symlink_to("step-00000001")
    assert find_checkpoint(tmp_path).name == "step-00000001"
    again = CheckpointDirectory(tmp_path, keep=None, is_main=True)  # the next run in this place
    assert sorted(path.name for path in again.path.iterdir()) == ["latest", "step-00000001"]


def test_what_goes_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while an old one is deleted leaves no half of it under its name."""
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=1, is_main=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    checkpoints.save(2, tensors_of([model], optimizer), {}, best=False)
    checkpoints.save(2, tensors_of([model], optimizer), {"samples": 7}, best=False)
    assert [path.name for path in checkpoints.path.glob("step-*")] == ["step-00000002"]
    assert describe_checkpoint(checkpoints.path / "step-00000002").samples == 7


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=None, is_main=True)
    checkpoints.save(1, tensors_of([model], optimizer), {}, best=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    crash_when("paddock.checkpoint.storage.write_pieces", monkeypatch, full)
    with pytest.raises(MachineError, match=r"cannot write .*step-00000002(.|\n)*No space left") as caught:
        checkpoints.save(2, tensors_of([model], optimizer), {}, best=False)
    assert caught.value.exit_code == 3
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if not path.is_symlink()] == ["step-00000001"]


def test_latest_best_and_keep(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoints = CheckpointDirectory(tmp_path, keep=2, is_main=True)
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


def is_damaged(path: Path, tensors: dict[str, Tensor], file: Path) -> bool:
    """Whether loading fails, and says which file is to blame."""
    with pytest.raises(DataError) as caught:
        read_tensors(path, tensors)
    assert caught.value.exit_code == 4
    return f"{file} is damaged" in str(caught.value)


def test_truncated_or_too_long(tmp_path: Path) -> None:
    path, tensors = saved(tmp_path)
    file = next(path.glob("*.safetensors"))
    content = file.read_bytes()
    for length in (0, 4, 60, len(content) - 1):
        file.write_bytes(content[:length])
        assert is_damaged(path, tensors, file)
    file.write_bytes(content + b"x")
    assert is_damaged(path, tensors, file)
    file.unlink()
    assert is_damaged(path, tensors, file)
    file.mkdir()
    assert is_damaged(path, tensors, file)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_missing_shard_tells_of_the_checkpoint_before_if_there_is_one(tmp_path: Path, steps: int) -> None:
    model, _ = trained()
    tensors = tensors_of([model], None)
    paths = [tmp_path / f"step-{step:08d}" for step in range(1, steps + 1)]
    for step, path in enumerate(paths, start=1):
        write_checkpoint(path, tensors, {"step": step})
    middle = paths[min(1, steps - 1)]  # what comes behind it is no help: it is later
    next(middle.glob("*.safetensors")).unlink()
    with pytest.raises(DataError) as caught:
        read_tensors(middle, tensors)
    earlier = f", or load an earlier checkpoint of the same run: --checkpoint.load {paths[0].absolute()}"
    assert caught.value.why == "it is missing"
    assert caught.value.fix == "copy it again" + (earlier if steps > 1 else "")


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path, tensors = saved(tmp_path)
    for file in path.iterdir():
        content = file.read_bytes()
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1
            if file.suffix == ".json" and same_json(content, changed):
                continue  # another kind of blank
            file.write_bytes(changed)
            with pytest.raises(DataError):
                describe_checkpoint(path)
                read_tensors(path, tensors)
        file.write_bytes(content)
    read_tensors(path, tensors)


def same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def test_damage_in_one_tensor_does_not_concern_who_reads_another(tmp_path: Path) -> None:
    """Only the blocks that are read are checked, so that a part costs no more than a part."""
    tensors = {f"model.{name}": torch.randn(BLOCK // 2) for name in "ab"}
    write_checkpoint(tmp_path / "c", tensors, {})
    (file,) = (tmp_path / "c").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 128
    file.write_bytes(content)
    stored = StoredTensors(tmp_path / "c", "model.")
    assert torch.equal(stored["a"], tensors["model.a"])
    with pytest.raises(DataError, match=f"bytes from {4 * BLOCK} on are not those that were written"):
        stored["b"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_shapes_types_and_borders_of_blocks(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(), (1,), (3, 5, 7), (BLOCK + 1,), (700, 1100), (BLOCK // 4, 2), (2, BLOCK // 4), (13,)]
    tensors = {
        f"model.{number}": torch.randint(0, 2, shape, generator=generator).to(dtype)
        for number, shape in enumerate(shapes)
    }
    tensors["model.mixed"] = torch.randn(3, 3, generator=generator)
    tensors["model.turned"] = torch.randn(5, 4, generator=generator).T  # not contiguous
    write_checkpoint(tmp_path / "c", tensors, {})
    for into in (torch.empty_like, lambda tensor: torch.empty(*tensor.shape, 2, dtype=tensor.dtype)[..., 0]):
        found = {name: into(tensor) for name, tensor in tensors.items()}
        read_tensors(tmp_path / "c", found)
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_other_readers_read_the_files(tmp_path: Path) -> None:
    """The safetensors library, and torch's own storage."""
    path, tensors = saved(tmp_path)
    (file,) = path.glob("*.safetensors")
    read = load_file(file)
    assert read.keys() == tensors.keys() and all(torch.equal(read[name], tensors[name]) for name in tensors)
    found = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(path)), no_dist=True)
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_of_another_model(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    other = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    with pytest.raises(DataError, match=r"of another shape: model\.0\.weight \[3, 4\], wanted \[5, 4\]") as caught:
        read_tensors(path, tensors_of([other], None))
    assert "unexpected" not in str(caught.value)
    with pytest.raises(DataError, match=r"unexpected: model\.1\.weight, model\.1\.bias"):
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
