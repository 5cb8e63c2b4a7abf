"""Readers of weights: our checkpoints and runs, other people's folders, and runs of the ImageNet example."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from engine import Reader, files_in, scratch
from mutation import Files, damage_bytes, damage_values, json_mutator, to_json

from paddock.checkpoint.foreign.huggingface import match_folder, read_config, read_labels, save_folder
from paddock.checkpoint.foreign.imagenet_example import read_imagenet_example
from paddock.checkpoint.loading import saved_config
from paddock.checkpoint.storage import describe_checkpoint, read_tensors, saved_tensors
from paddock.inference.trained import open_trained
from paddock.jobs.convert import convert
from paddock.models.bert.config import BertConfig
from paddock.models.config import ModelConfig
from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.models.resnet.config import ResNetConfig
from paddock.testing.samples.texts import word_tokenizer

SMALL: dict[str, Any] = {"layers": 1, "hidden": 8, "heads": 2, "vocab": 12, "context": 8}
STEP = "run/checkpoints/step-00000003"
BLOCK = 1 << 18
"""Bytes that a checkpoint's file has one checksum for."""


@cache
def folder_of(config: ModelConfig, max_shard_bytes: int = 10**9) -> Files:
    """A Hugging Face folder of a small model."""
    model = build_model(config)
    initialize(model, 0)
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        save_folder(model.state_dict(), config, Path(place) / "model", max_shard_bytes=max_shard_bytes)
        return files_in(Path(place) / "model")


def weight_seeds() -> list[Files]:
    gpt2, bert = GPT2Config(**SMALL), BertConfig(head="sequence_classification", classes=3, **SMALL)
    torch_files = dict(folder_of(gpt2))
    stream = io.BytesIO()
    torch.save(_tensors_in(torch_files.pop("model.safetensors")), stream)
    asking = BertConfig(head="question_answering", **SMALL)
    return [
        folder_of(gpt2),
        folder_of(bert),
        folder_of(asking),
        folder_of(gpt2, max_shard_bytes=2000),
        {**torch_files, "pytorch_model.bin": stream.getvalue()},
    ]


def _tensors_in(content: bytes) -> dict[str, torch.Tensor]:
    from safetensors.torch import load

    return load(content)


def read_weights(folder: Path) -> object:
    config = read_config(folder)
    found = match_folder(folder, config)
    digest = hashlib.sha256()
    for name, weight in found.weights.items():
        value = weight.read()
        assert value.shape == weight.rule.our_shape, name
        digest.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    return repr(config), digest.hexdigest(), read_labels(folder)


# Our own checkpoints


@cache
def checkpoint_files(config: ModelConfig) -> Files:
    """A checkpoint of ours, made from a folder: without training."""
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        theirs = Path(place) / "theirs"
        theirs.mkdir()
        for name, content in folder_of(config).items():
            (theirs / name).write_bytes(content)
        word_tokenizer(theirs).save(theirs)
        convert(str(theirs), Path(place) / "ours", "paddock", "float32")
        return files_in(Path(place) / "ours")


def in_two_files(files: Files) -> Files:
    """The same checkpoint as two processes would have written it: every tensor that can be is cut in two."""
    (shard,) = (name for name in files if name.endswith(".safetensors"))
    header, begin = _header_of(files[shard])
    offsets = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
    parts: tuple[list[Any], list[Any]] = ([], [])
    for name, entry in header.items():
        first, last = (begin + place for place in entry["data_offsets"])
        content, rows = files[shard][first:last], entry["shape"][0]
        half = rows // 2
        width = len(content) // rows
        for number, (start, stop) in enumerate(((0, half), (half, rows))):
            shape, place = [stop - start, *entry["shape"][1:]], [start, *offsets[name]["saved_offsets"][1:]]
            if stop > start:
                parts[number].append((name, entry["dtype"], shape, place, content[start * width : stop * width]))
    result = {name: content for name, content in files.items() if name != shard}
    for number, part in enumerate(parts):
        result[f"shard-{number:05d}.safetensors"] = _encode(part)
    return signed(result)


def _header_of(content: bytes) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), 8 + size


def _encode(parts: list[Any]) -> bytes:
    offsets = {name: {"saved_offsets": place} for name, _, _, place, _ in parts}
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "DCP_SHARDING_INFO": json.dumps(offsets)}}
    position = 0
    for name, dtype, shape, _, content in parts:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(content)]}
        position += len(content)
    return _with_header(json.dumps(header).encode(), b"".join(content for *_, content in parts))


def _with_header(text: bytes, content: bytes) -> bytes:
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content


def signed(files: Files) -> Files:
    """A checkpoint whose sums say that its files are as they were written."""
    folder = next((name.rpartition("/")[0] for name in files if name.endswith("checkpoint.json")), None)
    if folder is None:
        return files
    name = f"{folder}/checkpoint.json".removeprefix("/")
    try:
        description = json.loads(files[name])
    except (ValueError, RecursionError):
        return files
    if not isinstance(description, dict):
        return files
    description.pop("crc32", None)
    inside = {key.removeprefix(f"{folder}/"): content for key, content in files.items() if key.endswith(".safetensors")}
    sums = {
        key: {
            "bytes": len(content),
            "crc32": "".join(f"{zlib.crc32(content[at : at + BLOCK]):08x}" for at in range(0, len(content), BLOCK)),
        }
        for key, content in inside.items()
    }
    if isinstance(description.get("files"), dict) and not any("forged" in str(key) for key in description["files"]):
        description["files"] = sums
    return {**files, name: signed_description(description)}


def signed_description(description: dict[str, Any]) -> bytes:
    """With the sum that it must have; what JSON cannot hold exactly is left as it is."""
    try:
        plain = json.loads(to_json(description))
        return json.dumps({**plain, "crc32": zlib.crc32(json.dumps(plain, sort_keys=True).encode())}).encode()
    except (ValueError, RecursionError):
        return to_json(description)


def checkpoint_seeds() -> list[Files]:
    gpt2 = checkpoint_files(GPT2Config(**SMALL))
    kept = {name: content for name, content in gpt2.items() if not name.startswith("tokenizer")}
    one, two = {f"c/{name}": content for name, content in kept.items()}, in_two_files(kept)
    assert read_again(signed(one)) == read_again(one), "the sums of a checkpoint are computed in another way here"
    return [one, {f"c/{name}": content for name, content in two.items()}]


def read_again(files: Files) -> object:
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        for name, content in files.items():
            (Path(place) / name).parent.mkdir(exist_ok=True, parents=True)
            (Path(place) / name).write_bytes(content)
        return read_checkpoint(Path(place))


def read_checkpoint(folder: Path) -> object:
    path = folder / "c"
    description, config = describe_checkpoint(path), saved_config(path)
    tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in saved_tensors(path).items()}
    read_tensors(path, tensors)
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    said = json.dumps(description.model_dump(mode="json"), sort_keys=True)  # the order of keys means nothing
    return said, repr(config), digest.hexdigest()


DESCRIPTION_WORDS = (
    *"format files bytes crc32 step samples best best_step recipe model family task".split(),
    *(
        "loss_scale",
        "versions",
        "data_position",
        "shard-00000.safetensors",
        "../shard-00000.safetensors",
        "/etc/passwd",
    ),
    *("gpt2", "bert", "resnet", "layers", "hidden", "vocab", "data", 10**9, 2**31, -1),
)
HEADER_WORDS = (
    *"F32 F64 I64 BOOL BF16 F8 dtype shape data_offsets __metadata__ DCP_SHARDING_INFO".split(),
    *("saved_offsets", [0, 4], [0, 0], [8], [], [2**40], [-1, 4], [1, 1, 1]),
)


def damage_safetensors(rng: Random, data: bytes) -> bytes:
    """What the header says, with its length made to fit; the length; or any bytes."""
    kind = rng.randrange(10)
    if kind < 4 or len(data) < 16:
        return damage_bytes(rng, data)
    if kind < 6:
        size = rng.choice((0, 1, 7, 8, len(data), len(data) - 8, len(data) + 1, 2**31, 2**40, 2**63, 2**64 - 1))
        return struct.pack("<Q", size % 2**64) + data[8:]
    try:
        header, begin = _header_of(data)
    except (ValueError, RecursionError):
        return damage_bytes(rng, data)
    return _with_header(to_json(damage_values(rng, header, HEADER_WORDS)), data[begin:])


def forge(rng: Random, files: Files) -> Files:
    """Damage to what a checkpoint says, signed again: as somebody would who means it."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice([key for key in files if key.endswith((".json", ".safetensors"))] or list(files))
        if name.endswith("checkpoint.json"):
            try:
                files[name] = to_json(damage_values(rng, json.loads(files[name]), DESCRIPTION_WORDS))
            except (ValueError, RecursionError):
                files[name] = damage_bytes(rng, files[name])
        elif name.endswith(".safetensors"):
            files[name] = damage_safetensors(rng, files[name])
        else:
            files[name] = json_mutator()(rng, files[name])
    if rng.random() < 0.2:
        return _forge_record(rng, files)
    return signed(files)


def _forge_record(rng: Random, files: Files) -> Files:
    """The list of files itself is forged, and signed."""
    name = next((key for key in files if key.endswith("checkpoint.json")), None)
    try:
        description = json.loads(files[name or ""])
        description.pop("crc32", None)
        description["files"] = damage_values(rng, description["files"], DESCRIPTION_WORDS)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return files
    return {**files, name or "": signed_description(description)}


def run_seeds() -> list[Files]:
    """Run directories as far as prediction looks at them."""
    found = []
    for config in (GPT2Config(**SMALL), BertConfig(head="sequence_classification", classes=2, **SMALL)):
        files = checkpoint_files(config)
        beside = {f"run/{name}": files[name] for name in files if name.startswith(("tokenizer", "classes"))}
        kept = {f"{STEP}/{name}": files[name] for name in files if name.endswith((".safetensors", "checkpoint.json"))}
        found.append({**beside, **kept})
    return found


def read_run(folder: Path) -> object:
    trained = open_trained(str(folder / "run"), torch.device("cpu"))
    sums = {name: float(tensor.double().sum()) for name, tensor in trained.model.state_dict().items()}
    return repr(sums), trained.task, trained.classes


# The ImageNet example


@cache
def resnet() -> ResNetConfig:
    return ResNetConfig(arch="resnet18", width=8, classes=2)


def example_seeds() -> list[Files]:
    """Before the first step and after one; in both forms that torch has written."""
    found = []
    model = build_model(resnet())
    initialize(model, 0)
    for steps in (0, 1):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if steps:
            for parameter in model.parameters():
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        values = model.state_dict()
        content = {
            "epoch": 3,
            "arch": "resnet18",
            "state_dict": {f"module.{name}": value for name, value in values.items()},
            "best_acc1": torch.tensor(12.5),
            "optimizer": optimizer.state_dict(),
            "scheduler": {"last_epoch": 3},
        }
        stream = io.BytesIO()
        torch.save(content, stream, _use_new_zipfile_serialization=not steps)
        found.append({"checkpoint.pth.tar": stream.getvalue()})
    return found


def read_example(folder: Path) -> object:
    state = read_imagenet_example(folder / "checkpoint.pth.tar", resnet())
    return state.epochs, state.best, sorted(state.momentum), sorted(map(str, state.settings))


OPERATIONS = b"}](.q\x85\x86\x87NKMJGXcRtusabeh0123\x88\x89Q\x8a"
"""Bytes that mean something in a pickle."""


def damage_torch_file(rng: Random, data: bytes) -> bytes:
    """The pickle inside is hit more often than the rest, and stays as long: the archive keeps its sums otherwise."""
    begin = data.find(b"\x80\x02")
    if begin < 0 or rng.random() < 0.3:
        return damage_bytes(rng, data)
    end = min(len(data), begin + 4000) if rng.random() < 0.5 else len(data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed[rng.randrange(begin, end)] = rng.choice(
            (*b"}](.q\x85\x86\x87NKMJGXcRtusabeh0123\x88\x89Q\x8a", rng.randrange(256))
        )
    return bytes(changed)


HUGGING_FACE_WORDS = (
    *"model_type architectures n_layer n_embd n_head vocab_size n_positions activation_function".split(),
    *"gelu relu id2label problem_type hidden_size num_hidden_layers weight_map metadata".split(),
    *(
        "gpt2",
        "bert",
        "t5",
        "resnet",
        "layer_norm_epsilon",
        "model-00001-of-00004.safetensors",
        10**9,
        "../model.safetensors",
    ),
)

READERS = [
    Reader(
        "checkpoint",
        checkpoint_seeds,
        read_checkpoint,
        {".json": json_mutator(DESCRIPTION_WORDS), ".safetensors": damage_safetensors},
        exact=True,
        forge=forge,
    ),
    Reader("run", run_seeds, read_run, {".json": json_mutator(DESCRIPTION_WORDS)}, forge=forge, share=0.5),
    Reader(
        "weights",
        weight_seeds,
        read_weights,
        {".json": json_mutator(HUGGING_FACE_WORDS), ".safetensors": damage_safetensors, ".bin": damage_torch_file},
    ),
    Reader("imagenet_example", example_seeds, read_example, {".tar": damage_torch_file}, share=0.5),
]
