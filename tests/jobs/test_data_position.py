"""A run goes on only where its data position means what it meant: the same seed, samples and data; else it says so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import describe_checkpoint
from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.data.indexed.writer import IndexedWriter
from paddock.devices import select
from paddock.errors import ConfigError
from paddock.jobs import train as jobs_train
from paddock.parallel.world import join_world
from paddock.tasks.corpora import CorpusTask
from paddock.tasks.registry import build_task, prepare_data
from paddock.tasks.task import Task
from paddock.testing.samples.corpora import write_corpus
from paddock.testing.samples.images import write_folder
from paddock.testing.samples.texts import write_squad
from paddock.testing.tiny import TINY, losses
from paddock.training.run import TrainingRun

SMALL = [*TINY, "--model.hidden", "16", "--model.context", "64", "--batch.global", "4"]
LENGTHS = {"data.sequence_length": 32, "training data": "9000 of 10000 documents, 297000 tokens, 3c630303e60c"}
HELD_OUT_LENGTHS = {"data.sequence_length": 32, "held-out data": "500 of 10000 documents, 16500 tokens, 3c630303e60c"}
"""What version 0.1.0 said of `SYNTHETIC`'s data."""
SYNTHETIC = [*SMALL, "--data.source", "synthetic", "--tokenizer.kind", "none"]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    assert run(["train", *SYNTHETIC, "--steps", "2", "--run-dir", str(path)]) == 0
    return path


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--train.seed", "99"], ["train.seed = 99", "1234"]),
        (["--data.sequence-length", "64"], ["data.sequence_length = 64", "32"]),
        (["--data.split", "50", "45", "5"], ["training data = 5000 of 10000 documents", "9000 of 10000 documents"]),
        (["--optimizer.name", "sgd"], ["optimizer.name = sgd", "adamw"]),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_what_would_point_elsewhere_is_refused_before_anything_starts(
    flags: list[str],
    words: list[str],
    in_place: bool,
    begun: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(jobs_train, "run", lambda *_, **__: pytest.fail("it was started"))
    path = begun if in_place else tmp_path / "other"
    source = "auto" if in_place else str(begun)
    capsys.readouterr()
    assert run(["train", *SYNTHETIC, *flags, "--run-dir", str(path), "--checkpoint.load", source]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in [*words, "step-00000002", "--checkpoint.weights-only"]), told
    assert in_place or not path.exists()


def test_the_weights_alone_begin_a_new_run(begun: Path, tmp_path: Path) -> None:
    flags = ["--train.seed", "99", "--data.sequence-length", "64", "--optimizer.name", "sgd"]
    load = ["--checkpoint.load", str(begun), "--checkpoint.weights-only", "True"]
    assert run(["train", *SYNTHETIC, *flags, *load, "--run-dir", str(tmp_path / "new")]) == 0
    assert len(losses(tmp_path / "new")) == 6


def test_what_points_at_the_same_sample_may_change(begun: Path) -> None:
    """Samples count, not steps; and Adam's state is AdamW's."""
    flags = ["--batch.global", "8", "--optimizer.name", "adam", "--optimizer.lr", "1e-3", "--steps", "3"]
    assert run(["train", *SYNTHETIC, *flags, "--run-dir", str(begun), "--checkpoint.load", "auto"]) == 0
    assert describe_checkpoint(find_checkpoint(begun)).samples == 2 * 4 + 8


def test_another_text_of_the_same_lengths_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, added in (("a", 0), ("b", 1)):
        with IndexedWriter(tmp_path / name, 512) as writer:
            for document in range(40):
                writer.add_document(np.arange(30 + document % 5) * (document + 1) % 511 + added)
    flags = [*SMALL, "--tokenizer.kind", "none", "--data.source", "indexed", "--data.path"]
    there = ["--run-dir", str(tmp_path / "run")]
    assert run(["train", *flags, str(tmp_path / "a"), "--steps", "2", *there]) == 0
    capsys.readouterr()
    goes_on = ["--steps", "3", "--checkpoint.load", "auto"]
    assert run(["train", *flags, str(tmp_path / "b"), *goes_on, *there]) == 2
    told = capsys.readouterr().err
    assert "error: training data content = " in told and "--checkpoint.allow-changes" in told
    shutil.move(tmp_path / "a.bin", tmp_path / "moved.bin")
    shutil.move(tmp_path / "a.idx", tmp_path / "moved.idx")
    assert run(["train", *flags, str(tmp_path / "moved"), *goes_on, *there]) == 0, "where it lies is no matter"


def test_what_an_earlier_version_said_of_its_data_is_compared_as_it_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*SYNTHETIC, "--run-dir", str(tmp_path / "run"), "--evaluate.every", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(CorpusTask, "fingerprint", lambda _: dict(LENGTHS))
        patch.setattr(CorpusTask, "held_out_fingerprint", lambda _: dict(HELD_OUT_LENGTHS))
        assert run(["train", *flags, "--steps", "2"]) == 0
    goes_on = ["--steps", "3", "--checkpoint.load", "auto"]
    assert run(["train", *flags, *goes_on, "--data.split", "80", "10", "10"]) == 2
    capsys.readouterr()
    assert run(["train", *flags, *goes_on]) == 0
    assert "sought anew" not in capsys.readouterr().err, "its best was measured on the same data"
    position = describe_checkpoint(find_checkpoint(tmp_path / "run")).data_position or {}
    assert position.items() > LENGTHS.items() and "training data content" in position


def test_every_process_looks_too(begun: Path) -> None:
    values = load_recipe(begun / "config.yaml").to_dict()
    values["train"] |= {"seed": 99, "steps": 4}
    values["checkpoint"]["load"] = "auto"
    recipe = recipe_from_dict(values)
    with join_world(select("cpu")) as world, pytest.raises(ConfigError, match=r"train\.seed = 99"):
        TrainingRun(recipe, check_recipe(recipe, 1), prepare_data(recipe), begun, world, continues=True)


def fingerprint(recipe: str, **data: Any) -> dict[str, Any]:
    return dict(task_of(recipe, **data).fingerprint())


def held_out(recipe: str, **data: Any) -> dict[str, Any]:
    return dict(task_of(recipe, **data).held_out_fingerprint())


def task_of(recipe: str, **data: Any) -> Task:
    values = load_recipe(recipe).to_dict()
    values["data"] |= data
    if "vocab" in values["model"]:
        values["model"]["vocab"], values["tokenizer"] = 512, {"kind": "none"}
    return build_task(recipe_from_dict(values))


def test_the_fingerprint_of_a_corpus(tmp_path: Path) -> None:
    """Where it lies, and when it was written, does not matter; every length in it does."""
    documents = [list(range(1, 2 + number % 5)) for number in range(40)]
    places = {}
    for name, content in {
        "a": documents,
        "elsewhere/a": documents,
        "b": [*documents[:20], [1] * 9, *documents[21:]],
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_corpus(tmp_path / name, content)
        places[name] = str(tmp_path / name)
    os.utime(f"{places['elsewhere/a']}.idx", (1, 1))

    def of(*path: float | str, **data: Any) -> dict[str, Any]:
        values = {"source": "indexed", "path": path, "sequence_length": 4, "split": (90, 5, 5), **data}
        masked = fingerprint("bert/base-uncased", **values)
        assert fingerprint("gpt2/tiny", **values) == masked
        return masked

    first = of(places["a"])
    assert first == of(places["elsewhere/a"])
    assert first["data.sequence_length"] == 4 and first["training data"].startswith("36 of 40 documents, ")
    blend = of(0.7, places["a"], 0.3, places["b"])
    assert blend == of(7.0, places["elsewhere/a"], 3.0, places["b"])
    others = [
        of(places["b"]),
        of(places["a"], split=(80, 10, 10)),
        of(places["a"], sequence_length=5),
        of(places["a"], places["b"]),
        of(places["b"], places["a"]),
        of(0.3, places["a"], 0.7, places["b"]),
    ]
    seen = [first, blend, *others]
    assert all(one != other for number, one in enumerate(seen) for other in seen[:number])


@pytest.mark.parametrize("recipe", ["gpt2/tiny", "bert/base-uncased"])
def test_the_fingerprint_of_held_out_text(recipe: str, tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", [list(range(1, 2 + number % 5)) for number in range(40)])
    values = {"source": "indexed", "path": (str(tmp_path / "a"),), "sequence_length": 4}
    first = held_out(recipe, **values, split=(90, 5, 5))
    assert first == held_out(recipe, **values, split=(90, 5, 5)) and first["held-out data"].startswith("2 of 40 doc")
    assert first != held_out(recipe, **values, split=(80, 10, 10))
    assert first != held_out(recipe, **{**values, "sequence_length": 5}, split=(90, 5, 5))


def test_the_fingerprint_of_images(tmp_path: Path) -> None:
    drawn = fingerprint("resnet/tiny-synthetic", training_images=64)
    assert drawn != fingerprint("resnet/tiny-synthetic", training_images=65)
    assert drawn != fingerprint("resnet/tiny-synthetic", training_images=64, image_size=40)
    assert drawn == fingerprint("resnet/tiny-synthetic", training_images=64, flip=0.0, validation_images=3)
    kept = held_out("resnet/tiny-synthetic", validation_images=3)
    assert kept == held_out("resnet/tiny-synthetic", validation_images=3, training_images=64)
    assert kept != held_out("resnet/tiny-synthetic", validation_images=4)


def test_the_fingerprint_of_a_folder_of_images(tmp_path: Path) -> None:
    def task(folder: str) -> Task:
        values = load_recipe("resnet/tiny-synthetic").to_dict()
        values["model"]["classes"] = 2
        values["data"] = {"source": "folder", "path": str(tmp_path / folder), "cache": str(tmp_path), "image_size": 32}
        return build_task(recipe_from_dict(values))

    def of(folder: str) -> dict[str, Any]:
        return dict(task(folder).fingerprint())

    for name, classes, count in (("a", "xy", 3), ("moved", "xy", 3), ("renamed", "xz", 3), ("more", "xy", 4)):
        write_folder(tmp_path / name, tuple(classes), {"train": count, "val": 1})
    assert of("a") == of("moved") and of("a")["training data"].startswith("6 images of 2 classes, ")
    assert of("a") != of("renamed") and of("a") != of("more")
    kept = task("a").held_out_fingerprint()
    assert kept == task("moved").held_out_fingerprint() == task("more").held_out_fingerprint()
    for part, described in (("train", of), ("val", lambda folder: task(folder).held_out_fingerprint())):
        image = next((tmp_path / "moved" / part).glob("*/*"))
        image.write_bytes(image.read_bytes() + b" ")
        assert described("a") != (changed := described("moved"))
        image.unlink()
        os.mkfifo(image)  # it cannot be read: what becomes of that is not decided here
        assert described("a") != described("moved") != changed


def test_the_fingerprint_of_texts(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"text {number}", "label": number % 2}) for number in range(20)]
    for name, content in {"a": lines, "b": [*lines[1:], lines[0]]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(content))

    def task(name: str, **data: Any) -> Task:
        values = load_recipe("bert/tiny").to_dict()
        values["task"] = values["model"]["head"] = "sequence_classification"
        values["model"]["vocab"] = 512
        train = str(tmp_path / f"{name}.jsonl")
        values["data"] = {"source": "jsonl", "train": train, "cache": str(tmp_path), "sequence_length": 16, **data}
        values["tokenizer"] = {"kind": "trained"}
        return build_task(recipe_from_dict(values))

    def of(name: str, **data: Any) -> dict[str, Any]:
        return dict(task(name, **data).fingerprint())

    one, other = (task("a", validation=str(tmp_path / f"{name}.jsonl")).held_out_fingerprint() for name in "ab")
    assert one != other and one["held-out data"].startswith("20 rows, ")
    assert of("a") == of("a", validation=str(tmp_path / "b.jsonl")) and of("a")["training data"].startswith("20 rows, ")
    assert of("a") != of("b") and of("a") != of("a", sequence_length=17)


def test_the_fingerprint_of_questions(tmp_path: Path) -> None:
    def task(folder: str, **data: Any) -> Task:
        values = load_recipe("bert/base-uncased-squad").to_dict()
        values["model"] |= {"vocab": 512, "hidden": 16, "heads": 2, "layers": 1}
        values["data"] |= {"path": str(tmp_path / folder), "cache": str(tmp_path), **data}
        values["tokenizer"] = {"kind": "trained"}
        return build_task(recipe_from_dict(values))

    def of(folder: str, **data: Any) -> dict[str, Any]:
        return dict(task(folder, **data).fingerprint())

    write_squad(tmp_path / "a", train=30, validation=3)
    write_squad(tmp_path / "b", train=31, validation=3)
    assert of("a") == of("a", answer_length=7)
    assert of("a") != of("b") and of("a") != of("a", sequence_length=200)
    write_squad(tmp_path / "c", train=30, validation=4)
    assert task("a").held_out_fingerprint() == task("b").held_out_fingerprint() != task("c").held_out_fingerprint()


def test_a_run_that_lost_its_beginning_does_not_begin_at_random(
    begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was to begin from weights, and was stopped before its first checkpoint."""
    new = tmp_path / "new"
    load = ["--checkpoint.load", str(begun), "--checkpoint.weights-only", "True"]
    assert run(["train", *SYNTHETIC, *load, "--run-dir", str(new)]) == 0
    shutil.rmtree(new / "checkpoints")
    again = ["train", str(new / "config.yaml"), "--run-dir", str(new), "--checkpoint.load", "auto"]
    assert run([*again, "--checkpoint.weights-only", "False"]) == 2
    assert "would begin from random weights" in capsys.readouterr().err
