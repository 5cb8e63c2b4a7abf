"""Checkpoints that somebody made: checksums are right, and what they say is not. Nothing of them is believed before it
fits the files, and nothing outside of their folder is read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from paddock.checkpoint.loading import saved_config
from paddock.checkpoint.names import DESCRIPTION
from paddock.checkpoint.shards.blocks import BlockWriter
from paddock.checkpoint.shards.pieces import Piece, write_pieces
from paddock.checkpoint.storage import describe_checkpoint, read_tensors, saved_tensors, write_checkpoint
from paddock.checkpoint.tensors import check_optimizer_state
from paddock.cli.main import run
from paddock.config.recipe import recipe_from_dict
from paddock.errors import DataError
from paddock.inference.trained import open_trained, read_classes

FILE = "shard-00000.safetensors"
FAST = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MODEL = {"family": "gpt2", "hidden": 8, "layers": 1, "heads": 2, "vocab": 11, "context": 8}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([2**63, -1, 1e300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"model.{name}": torch.randn(shape, generator=generator) for name, shape in (("a", (3, 4)), ("b", (4,)))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recipe = recipe_from_dict({"model": MODEL, "data": {"source": "synthetic"}}).to_dict()
    write_checkpoint(tmp_path / "c", tensors(), {"step": 3, "recipe": recipe, "data_position": {"train.seed": 1}})
    return tmp_path / "c"


def change_description(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Say something else in `checkpoint.json`, with the checksum that belongs to it."""
    content = json.loads((path / DESCRIPTION).read_text())
    content.pop("crc32", None)
    change(content)
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    (path / DESCRIPTION).write_text(json.dumps({**content, "crc32": checksum}))


def replace_file(path: Path, content: bytes, name: str = FILE) -> None:
    """Other bytes in a file, with the checksums that belong to them."""
    (path / name).unlink()
    writer = BlockWriter(path / name)
    writer.write(content)
    record = writer.finish()
    change_description(path, lambda said: said["files"].update({name: record.to_json()}))


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """A file's header, and its tensors."""
    content = (path / FILE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(header: str | bytes, data: bytes) -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return len(text).to_bytes(8, "little") + text + data


def load(path: Path) -> dict[str, Tensor]:
    found = {name: torch.full_like(tensor, torch.nan) for name, tensor in tensors().items()}
    describe_checkpoint(path)
    saved_config(path)
    read_tensors(path, found)
    return found


def refused(path: Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        load(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def refused_or_the_same(path: Path) -> None:
    try:
        found = load(path)
    except DataError:
        return
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors().items())


def test_the_helpers_change_nothing_by_themselves(path: Path) -> None:
    header, data = header_of(path)
    replace_file(path, with_header(json.dumps(header), data))
    assert all(torch.equal(load(path)[name], tensor) for name, tensor in tensors().items())


@pytest.mark.parametrize("length", [10**4, 2**31, 2**40, 2**62, 2**64 - 1])
def test_a_header_longer_than_its_file(path: Path, length: int) -> None:
    """It was read for ever, or memory was asked for as much."""
    replace_file(path, length.to_bytes(8, "little") + (path / FILE).read_bytes()[8:])
    refused(path, f"{FILE} is damaged", f"said to have {length} bytes")


@pytest.mark.parametrize(
    "content", [b"", b"1234567", bytes(8), bytes(20), with_header(b"[]", b""), with_header(b"{}", b"")]
)
def test_files_without_a_header(path: Path, content: bytes) -> None:
    replace_file(path, content)
    refused(path)


OTHER = {"dtype": "F32", "shape": [4], "data_offsets": [48, 64]}
BAD_ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"data_offsets": [40, 56]}, "overlap at byte 40"),
    ({"data_offsets": [50, 66]}, "leave a gap at byte 48"),
    ({"data_offsets": [-16, 0]}, "model.b.data_offsets.0"),
    ({"data_offsets": [2**70, 2**70 + 16]}, "leave a gap"),
    ({"data_offsets": [48]}, "model.b.data_offsets"),
    ({"data_offsets": [48, 60]}, "has 12 bytes"),
    ({"data_offsets": ["48", "64"]}, "valid integer"),
    ({"data_offsets": None}, "valid list"),
    ({"shape": [5]}, "has 16 bytes, and [5] needs 20"),
    ({"shape": [-4]}, "model.b.shape.0"),
    ({"shape": [4.0]}, "model.b.shape.0"),
    ({"shape": [2**62, 2**62]}, "model.b.shape"),
    ({"shape": [0, 2**48, 2**48], "data_offsets": [48, 48]}, "nothing can hold"),
    ({"shape": [1] * 65 + [4]}, "model.b.shape"),
    ({"shape": 4}, "valid list"),
    ({"dtype": "F31"}, "F31"),
    ({"dtype": "f32"}, "f32"),
    ({"dtype": 5}, "valid string"),
    ({"dtype": "I32"}, "of another type: model.b torch.int32"),
    ({"dtype": "F16"}, "needs 8"),
]


@pytest.mark.parametrize(("changes", "word"), BAD_ENTRIES)
def test_what_a_header_says_of_a_tensor(path: Path, changes: dict[str, Any], word: str) -> None:
    header, data = header_of(path)
    assert header["model.b"] == OTHER
    header["model.b"] |= changes
    replace_file(path, with_header(json.dumps(header), data))
    refused(path, word)


@pytest.mark.parametrize("field", OTHER)
def test_a_field_that_is_missing(path: Path, field: str) -> None:
    header, data = header_of(path)
    del header["model.b"][field]
    replace_file(path, with_header(json.dumps(header), data))
    refused(path, f"model.b.{field}: field required")


def test_a_tensor_that_is_there_twice(path: Path) -> None:
    header, data = header_of(path)
    text = json.dumps(header)
    replace_file(path, with_header(text[:-1] + f', "model.b": {json.dumps(OTHER)}}}', data))
    refused(path, "says model.b twice")


@pytest.mark.parametrize(
    ("offsets", "word"),
    [
        (None, "no DCP_SHARDING_INFO"),
        ("{", "not valid JSON|expecting"),
        ("[]", ""),
        ("{}", "no place or no tensor for model.a"),
        ({"saved_offsets": []}, "[4], and begins at []"),
        ({"saved_offsets": [0, 0]}, "begins at [0, 0]"),
        ({"saved_offsets": [-1]}, ""),
        ({"saved_offsets": [2]}, "leave a gap"),
        ({"saved_offsets": [2**63]}, ""),
        ({"saved_offsets": [2**47, 1]}, ""),
        ({"saved_offsets": "0"}, ""),
        ({}, "saved_offsets: field required"),
        (3, ""),
    ],
)
def test_where_pieces_begin(path: Path, offsets: Any, word: str) -> None:
    header, data = header_of(path)
    said = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
    if offsets is None:
        del header["__metadata__"]["DCP_SHARDING_INFO"]
    else:
        text = offsets if isinstance(offsets, str) else json.dumps({**said, "model.b": offsets})
        header["__metadata__"]["DCP_SHARDING_INFO"] = text
    replace_file(path, with_header(json.dumps(header), data))
    refused(path, *word.split("|")[-1:])


@pytest.mark.parametrize(
    ("boxes", "fits"),
    [
        ([((0, 0), (2, 4)), ((2, 0), (1, 4))], True),
        ([((0, 0), (3, 2)), ((0, 2), (3, 2))], True),
        ([((0, 0), (1, 4)), ((1, 0), (2, 1)), ((1, 1), (2, 3))], True),
        ([((0, 0), (2, 4))], False),  # the last row is in no file
        ([((0, 0), (1, 4)), ((2, 0), (1, 4))], False),  # one between is not
        ([((0, 0), (2, 4)), ((1, 0), (2, 4))], False),  # one is there twice
        ([((0, 0), (3, 4)), ((0, 0), (3, 4))], False),
        ([((0, 0), (2, 2)), ((1, 1), (2, 3)), ((0, 0), (1, 2))], False),  # as many numbers as there should be
    ],
)
def test_pieces_are_all_of_a_tensor_and_each_number_once(
    path: Path, boxes: list[tuple[tuple[int, int], tuple[int, int]]], fits: bool
) -> None:
    whole = tensors()["model.a"]
    change_description(path, lambda said: said["files"].clear())
    (path / FILE).unlink()
    for number, (begin, size) in enumerate(boxes):
        box = whole[begin[0] : begin[0] + size[0], begin[1] : begin[1] + size[1]]
        pieces = [Piece("model.a", begin, box.contiguous())]
        if number == 0:
            pieces.append(Piece("model.b", (0,), tensors()["model.b"]))
        name = f"shard-{number:05d}.safetensors"
        record = write_pieces(path / name, pieces)
        change_description(path, lambda said, name=name, record=record: said["files"].update({name: record.to_json()}))
    if fits:
        assert torch.equal(load(path)["model.a"], whole)
    else:
        refused(path)


def test_pieces_of_one_tensor_agree(path: Path) -> None:
    for name, values in (("1", torch.zeros(3, 4).double()), ("2", torch.zeros(12))):
        file = f"shard-0000{name}.safetensors"
        record = write_pieces(path / file, [Piece("model.a", (3, 0) if name == "1" else (0,), values)])
        change_description(path, lambda said, file=file, record=record: said["files"].update({file: record.to_json()}))
        refused(path, "another type or rank")
        change_description(path, lambda said, file=file: said["files"].pop(file))


@pytest.mark.parametrize(
    "name", [f"../{FILE}", "..", ".", "", "a/b.safetensors", "\x00", "x" * 300, "~", "-", "é.safetensors"]
)
def test_files_elsewhere_are_not_read(path: Path, name: str) -> None:
    shutil.copy(path / FILE, path.parent / FILE)
    change_description(path, lambda said: said.update(files={name: said["files"][FILE]}))
    refused(path, "files")


def test_files_elsewhere_by_their_whole_path_or_by_a_link(path: Path) -> None:
    outside = path.parent / FILE
    shutil.copy(path / FILE, outside)
    (path / "link.safetensors").symlink_to(outside)
    change_description(path, lambda said: said.update(files={"link.safetensors": said["files"][FILE]}))
    refused(path, "outside of its folder")
    change_description(path, lambda said: said.update(files={str(outside): said["files"]["link.safetensors"]}))
    refused(path, "files")


def test_a_link_to_itself_and_a_pipe(path: Path) -> None:
    (path / FILE).unlink()
    (path / FILE).symlink_to(FILE)
    refused(path, "is damaged")
    (path / FILE).unlink()
    os.mkfifo(path / FILE)  # reading it would wait for a writer
    refused(path, "not a file")


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"bytes": 3},
        {"bytes": -1, "crc32": ""},
        {"bytes": "9", "crc32": "00000000"},
        {"bytes": 2**70, "crc32": "00000000"},
        {"bytes": 9, "crc32": ""},
        {"bytes": 9, "crc32": "0000000g"},
        {"bytes": 9, "crc32": "+0000000"},
        {"bytes": 9, "crc32": 7},
    ],
)
def test_records_of_files(path: Path, record: object) -> None:
    change_description(path, lambda said: said["files"].update({FILE: record}))
    refused(path, FILE)


@pytest.mark.parametrize("field", ["step", "samples", "best", "best_step", "loss_scale", "files", "format"])
def test_every_field_is_needed(path: Path, field: str) -> None:
    change_description(path, lambda said: said.pop(field))
    refused(path, field)


@pytest.mark.parametrize(
    "recipe",
    [
        3,
        {},
        {"task": "language_modeling", "model": {}, "data": {}},
        {"task": "language_modeling", "model": {"family": ["gpt2"]}, "data": {}},
        {"task": "language_modeling", "model": {"family": "nothing"}, "data": {}},
        {"task": "language_modeling", "model": {**MODEL, "self": 1}, "data": {}},
        {"task": "language_modeling", "model": {**MODEL, "layers": 10**9}, "data": {}},
        {"task": "language_modeling", "model": {**MODEL, "layers": "1e9"}, "data": {}},
        {"task": "language_modeling", "model": MODEL, "data": {}, "optimizer": "adam"},
    ],
)
def test_recipes_that_describe_no_model(path: Path, recipe: object) -> None:
    change_description(path, lambda said: said.update(recipe=recipe))
    refused(path)


def test_what_is_said_twice_or_nested_without_end(path: Path) -> None:
    text = (path / DESCRIPTION).read_text()
    (path / DESCRIPTION).write_text(text[:-1] + ', "step": 3}')
    refused(path, "says step twice")
    (path / DESCRIPTION).write_text('{"best": ' + "[" * 50_000)
    refused(path, "nested too deeply")


@pytest.mark.parametrize("changes", [{"layers": 9_999}, {"hidden": 10**6}, {"vocab": 10**8}, {"context": 10**8}])
def test_a_model_that_is_not_in_the_files_is_not_built(path: Path, changes: dict[str, int]) -> None:
    """Neither time nor memory is spent on sizes that are only claimed."""
    change_description(path, lambda said: said["recipe"]["model"].update(changes))
    with pytest.raises(DataError, match="parameters"):
        open_trained(str(path), torch.device("cpu"))


def test_a_checkpoint_of_no_recipe(path: Path) -> None:
    change_description(path, lambda said: said.pop("recipe"))
    with pytest.raises(DataError, match="no recipe"):
        open_trained(str(path), torch.device("cpu"))
    assert run(["generate", str(path), "--prompt", "a"]) == 4


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '["a", null]', "[" * 50_000, '["\\ud800"]', "\xff"])
def test_classes(tmp_path: Path, text: str) -> None:
    (tmp_path / "classes.json").write_bytes(text.encode("latin1"))
    with pytest.raises(DataError, match=r"classes\.json"):
        read_classes(tmp_path)
    (tmp_path / "classes.json").write_text('["a", "é"]')
    assert read_classes(tmp_path) == ("a", "é")


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in inner for found in places(item, (*place, key)))]


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The same with something else at a place; nothing, if it is None."""
    if not place:
        return new
    copy = dict(enumerate(value)) if isinstance(value, list) else dict(value)
    copy[place[0]] = put(copy[place[0]], place[1:], new)
    if len(place) == 1 and new is None:
        del copy[place[0]]
    return [copy[key] for key in sorted(copy)] if isinstance(value, list) else copy


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "c"
    recipe = recipe_from_dict({"model": MODEL, "data": {"source": "synthetic"}}).to_dict()
    write_checkpoint(path, tensors(), {"step": 3, "recipe": recipe, "data_position": {"train.seed": 1}})
    return path


@FAST
@given(data=st.data())
def test_any_field_of_the_description(original: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(original, Path(folder) / "c"))
        content = json.loads((path / DESCRIPTION).read_text())
        place = data.draw(st.sampled_from([place for place in places(content) if place]))
        changed = put(content, place, data.draw(JSON_VALUES))
        change_description(path, lambda said: (said.clear(), said.update(changed), said.pop("crc32", None)))
        refused_or_the_same(path)


@FAST
@given(data=st.data())
def test_any_field_of_a_header(original: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(original, Path(folder) / "c"))
        header, values = header_of(path)
        offsets = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        inside = data.draw(st.booleans())
        place = data.draw(st.sampled_from(places(offsets if inside else header)))
        changed = put(offsets if inside else header, place, data.draw(JSON_VALUES))
        if inside:
            header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(changed)
        replace_file(path, with_header(json.dumps(header if inside else changed), values))
        refused_or_the_same(path)


@FAST
@given(data=st.data())
def test_any_bytes_of_a_header(original: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(original, Path(folder) / "c"))
        content = bytearray((path / FILE).read_bytes())
        end = 8 + int.from_bytes(content[:8], "little")
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, end - 1))
            content[at] = data.draw(st.integers(0, 255) | st.sampled_from(b'0123456789[]{},:"-. '))
        replace_file(path, bytes(content))
        refused_or_the_same(path)


def test_names_and_shapes_are_known_without_reading(path: Path) -> None:
    assert saved_tensors(path) == {name: (value.shape, value.dtype) for name, value in tensors().items()}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"optimizer.exp_avg.weight": None}, "it has exp_avg_sq, step, and needs exp_avg, exp_avg_sq, step"),
        ({"optimizer.step.weight": None}, "it has exp_avg, exp_avg_sq, and needs"),
        ({"optimizer.exp_avg.weight": torch.zeros(2)}, "[2] is the state of no weight"),
        ({"optimizer.exp_avg.other": torch.zeros(2)}, "is the state of no weight"),
        ({"optimizer.momentum": torch.zeros(2)}, "is the state of no weight"),
        ({"optimizer.more.weight": torch.zeros(3, 4)}, "exp_avg, exp_avg_sq, more, step"),
    ],
)
def test_the_state_of_an_optimizer_is_whole(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    """Half of it was a KeyError in the first step."""
    weight = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = torch.optim.AdamW([weight])
    whole = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3, 4), "exp_avg_sq": torch.zeros(3, 4)}
    content = {"model.weight": weight.detach()} | {f"optimizer.{kind}.weight": value for kind, value in whole.items()}
    write_checkpoint(tmp_path / "whole", content, {})
    check_optimizer_state(tmp_path / "whole", saved_tensors(tmp_path / "whole"), optimizer)
    content = {name: value for name, value in (content | changes).items() if value is not None}
    write_checkpoint(tmp_path / "half", content, {})
    with pytest.raises(DataError) as caught:
        check_optimizer_state(tmp_path / "half", saved_tensors(tmp_path / "half"), optimizer)
    assert word in str(caught.value)
