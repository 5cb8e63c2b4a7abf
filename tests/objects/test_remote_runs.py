"""Runs that are kept in a store: copied behind training, complete or not there, and gone on with elsewhere."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from paddock import Trainer
from paddock.cli.main import run
from paddock.documents import Document, read_document
from paddock.errors import ConfigError
from paddock.objects import store
from paddock.objects.address import Address
from paddock.objects.store import Store
from paddock.testing.commands import Command
from paddock.testing.object_server import SECRET, Fault, ObjectServer
from paddock.testing.processes import wait_for
from paddock.testing.tiny import TINY, losses
from paddock.training.remote import uploader
from paddock.training.remote.run import HOLDER

RUN = "s3://bucket/runs/tiny"
LOCAL = Path("runs/tiny")
RECIPE = """
extends: gpt2/tiny
model: {layers: 1, hidden: 16, heads: 2, vocab: 512, context: 16}
data: {source: synthetic, sequence_length: 16}
tokenizer: {kind: none}
batch: {micro: 2, global: 2}
train: {steps: 2}
evaluate: {every: 2, batches: 1}
"""


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail soon, and try again soon."""
    monkeypatch.setattr(store, "RETRIES", 0)
    monkeypatch.setattr(uploader, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(uploader, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(uploader, "ATTEMPTS_AT_THE_END", 2)
    monkeypatch.setattr(uploader, "SECONDS_BETWEEN_LOOKS", 0.01)


def there(bucket: str = "bucket") -> dict[str, bytes]:
    """What the run's folder in the store holds, whatever kind of store that is."""
    opened = Store(Address.parse(f"s3://{bucket}"))
    entries = opened.below("runs/tiny")
    return {entry.key.removeprefix("runs/tiny/"): bytes(opened.read(entry)) for entry in entries}


def here(folder: Path = LOCAL) -> dict[str, bytes]:
    """What the folder here holds, without what is for this machine alone."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    named = {path.relative_to(folder).as_posix(): path for path in files}
    links = ("checkpoints/latest/", "checkpoints/best/")
    return {name: path.read_bytes() for name, path in named.items() if name[0] != "." and not name.startswith(links)}


def fails_for(server: ObjectServer, word: str) -> None:
    """Nothing whose name has this word can be written any more."""
    server.fault = lambda number, method, key: "error" if method in ("PUT", "POST") and word in key else None


def weights(source: str | Path) -> dict[str, torch.Tensor]:
    import paddock

    return paddock.load(str(source)).model.state_dict()


def test_a_run_is_copied_and_used_from_there(
    any_store: str, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *TINY, "--checkpoint.every", "2", "--checkpoint.keep", "1", "--run-dir", RUN]) == 0
    said = capsys.readouterr().err
    assert "the run works in runs/tiny, and is copied to s3://bucket/runs/tiny" in said
    assert "all of runs/tiny is in s3://bucket/runs/tiny" in said
    assert there() == here()
    steps = {name.split("/")[1] for name in there() if name.startswith("checkpoints/")}
    assert steps == {path.name for path in LOCAL.glob("checkpoints/step-*")}, "what goes here goes there"
    expected = weights(LOCAL)
    assert run(["evaluate", str(LOCAL), "--json"]) == 0
    local = json.loads(capsys.readouterr().out)
    elsewhere()
    assert run(["evaluate", RUN, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["val.loss"] == local["val.loss"]
    assert run(["generate", RUN, "--prompt", "The", "--max-new-tokens", "2", "--temperature", "0"]) == 0
    assert run(["convert", RUN, "exported"]) == 0
    found = weights(RUN)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_what_is_not_there_is_said_and_another_machine_goes_on_from_the_last_complete_checkpoint(
    server: ObjectServer, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fails_for(server, "step-00000006/shard")
    assert run(["train", *TINY, "--run-dir", RUN]) == 3
    said = capsys.readouterr().err
    assert "not everything is in s3://bucket/runs/tiny: checkpoints/step-00000006" in said
    assert "paddock resume runs/tiny uploads the rest" in said
    assert "checkpoints/step-00000003/checkpoint.json" in there()
    server.fault = lambda number, method, key: None
    expected = losses(LOCAL)
    elsewhere()
    assert run(["resume", RUN]) == 0
    assert "goes on in runs/tiny, from step-00000003" in capsys.readouterr().err
    assert losses(LOCAL) == expected
    assert there() == here()


def test_the_rest_is_uploaded_by_a_resume(server: ObjectServer, capsys: pytest.CaptureFixture[str]) -> None:
    fails_for(server, "step-00000006/checkpoint.json")
    assert run(["train", *TINY, "--run-dir", RUN]) == 3
    server.fault = lambda number, method, key: None
    assert run(["resume", str(LOCAL)]) == 2, "it has finished"
    said = capsys.readouterr().err
    assert "has finished" in said and "all of runs/tiny is in" in said
    assert there() == here()


def test_failures_in_between_do_not_touch_the_training(
    server: ObjectServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "alone")]) == 0
    begun = []

    def every_third(number: int, method: str, key: str) -> str | None:
        if key.startswith("runs/tiny/checkpoints"):
            begun.append(key)
        return "reset" if begun and random.Random(number).random() < 1 / 3 else None

    server.fault = every_third  # type: ignore[assignment]
    uploader.ATTEMPTS_AT_THE_END = 100
    assert run(["train", *TINY, "--run-dir", RUN]) == 0
    assert "uploading fails, and is tried again" in capsys.readouterr().err
    server.fault = lambda number, method, key: None
    assert losses(LOCAL) == losses(tmp_path / "alone")
    assert there() == here()


def test_a_mark_that_stays_is_no_failure(server: ObjectServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.fault = lambda number, method, key: "error" if method == "POST" and not key else None
    assert run(["train", *TINY, "--run-dir", RUN]) == 0
    assert "and still says that this process writes there" in capsys.readouterr().err
    assert HOLDER in there()


@pytest.mark.parametrize(
    "address, setting, code, words",
    [
        ("s3://nowhere/runs/tiny", {}, 4, "there is no bucket nowhere"),
        (RUN, {"AWS_ACCESS_KEY_ID": "stranger"}, 3, "the store refuses"),
        (RUN, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, 3, "cannot be reached"),
        ("s3://bucket", {}, 2, "is a whole bucket"),
        ("s3://me:geheim@bucket/runs/tiny", {}, 2, "credentials come from the environment"),
        ("ftp://bucket/runs/tiny", {}, 2, "use one of s3://"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str,
    setting: dict[str, str],
    code: int,
    words: str,
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    assert run(["train", *TINY, "--run-dir", address]) == code
    said = capsys.readouterr().err
    assert words in said and "geheim" not in said
    assert not Path("runs").exists()


def test_a_place_that_holds_a_run_is_not_written_to(
    server: ObjectServer, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("bucket", "runs/tiny/config.yaml", b"task: language_modeling\n")
    assert run(["train", *TINY, "--run-dir", RUN]) == 2
    assert "s3://bucket/runs/tiny already holds a run" in capsys.readouterr().err
    assert list(there()) == ["config.yaml"]
    LOCAL.mkdir(parents=True)
    (LOCAL / "config.yaml").write_text("task: language_modeling\n")
    assert run(["train", *TINY, "--run-dir", RUN]) == 2
    assert "that folder is a run that is only here" in capsys.readouterr().err


def test_a_folder_that_is_behind_is_not_gone_on_with(
    server: ObjectServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", *TINY, "--run-dir", RUN]) == 0
    server.put("bucket", "runs/tiny/attempts/2/config.yaml", b"")
    assert run(["resume", RUN, "--train.steps", "8"]) == 2
    assert "runs/tiny is behind s3://bucket/runs/tiny" in capsys.readouterr().err


def test_two_writers_are_told_apart(server: ObjectServer, capsys: pytest.CaptureFixture[str]) -> None:
    def take_over(number: int, method: str, key: str) -> None:
        if key.endswith("checkpoint.json") and method == "PUT":
            holder = {"pid": 7, "host": "other", "verb": "train", "since": "now"}
            server.put("bucket", f"runs/tiny/{HOLDER}", json.dumps({"token": "x", "holder": holder}).encode())

    server.fault = take_over
    assert run(["train", *TINY, "--run-dir", RUN]) == 3
    assert "process 7 on other has taken the run over" in capsys.readouterr().err
    assert HOLDER in there(), "it is the other's"


def test_no_secret_is_kept_and_python_takes_addresses_too(server: ObjectServer) -> None:
    recipe = Path("recipe.yaml")
    recipe.write_text(RECIPE)
    trainer = Trainer(recipe=recipe, run_dir=RUN)
    assert trainer.train()["run_dir"] == str(LOCAL)
    assert there() == here()
    with pytest.raises(ConfigError, match="already holds a run"):
        trainer.train()
    assert math.isfinite(trainer.evaluate(RUN)["loss"])
    assert not any(SECRET.encode() in content for content in [*here().values(), *there().values()])


def test_a_kill_in_the_middle_of_an_upload_leaves_the_checkpoint_before(
    server: ObjectServer, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    reached, over = threading.Event(), threading.Event()

    def stay(number: int, method: str, key: str) -> Fault | None:
        if "step-00000006/shard" not in key or method != "PUT":
            return None
        if "runs/tiny/checkpoints/step-00000003/checkpoint.json" not in server.buckets["bucket"]:
            return "error"
        reached.set()
        over.wait()
        return None

    server.fault = stay
    environment = {**os.environ, **server.environment()}
    with Command("train", *TINY, "--run-dir", RUN, environment=environment) as process:
        wait_for(lambda: reached.is_set() or process.poll() is not None)
        assert reached.is_set()
        process.send_signal(signal.SIGKILL)
    server.fault = lambda number, method, key: None
    over.set()
    wait_for(lambda: any("step-00000006/shard" in name for name in there()))
    expected = losses(LOCAL)
    elsewhere()
    assert run(["resume", RUN]) == 0
    assert "from step-00000003" in capsys.readouterr().err
    assert losses(LOCAL) == expected


def test_ctrl_c_at_the_end_leaves_the_rest_here_and_says_so(server: ObjectServer, tmp_path: Path) -> None:
    reached, over = threading.Event(), threading.Event()

    def stay(number: int, method: str, key: str) -> None:
        if "step-00000006/shard" in key and method == "PUT":
            reached.set()
            over.wait()

    server.fault = stay
    environment = {**os.environ, **server.environment()}
    with Command("train", *TINY, "--run-dir", RUN, environment=environment) as process:
        said = ""
        for line in process.stderr:
            said += line
            if "Ctrl-C leaves it here" in line:
                wait_for(reached.is_set)
                process.send_signal(signal.SIGINT)
    over.set()
    assert process.returncode == 3, said
    assert "not everything is in s3://bucket/runs/tiny: " in said and "checkpoints/step-00000006" in said


def test_what_was_made_for_nothing_goes_again(server: ObjectServer) -> None:
    assert run(["train", *TINY, "--run-dir", RUN, "--checkpoint.load", "s3://bucket/runs/other"]) == 4
    assert (
        run(
            [
                "train",
                *TINY,
                "--run-dir",
                RUN,
                "--tokenizer.kind",
                "none",
                "--data.source",
                "indexed",
                "--data.path",
                "nothing",
            ]
        )
        == 4
    )
    assert not Path("runs").exists() and not there()


def test_several_processes_and_a_run_that_begins_from_another(
    server: ObjectServer, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    two = ["--nproc-per-node", "2", "--parallel.tensor", "2"]
    assert run(["train", *TINY, *two, "--run-dir", RUN]) == 0
    assert there() == here()
    assert sum("step-00000006/shard" in name for name in there()) == 2
    elsewhere()
    new = ["--checkpoint.load", RUN, "--checkpoint.weights-only", "--run-dir", "runs/other"]
    assert run(["train", *TINY, *new, *two]) == 0
    config = Path("runs/other/config.yaml").read_text()
    assert "s3://bucket/runs/tiny/checkpoints/step-00000006" in config, "which one it was stays known"


def test_a_folder_that_machines_share_is_a_store_too(elsewhere: Callable[[], None], tmp_path: Path) -> None:
    address = f"file://{tmp_path}/share/runs/tiny"
    assert run(["train", *TINY, "--run-dir", address]) == 0
    assert here(tmp_path / "share/runs/tiny") == here()
    elsewhere()
    assert run(["resume", address, "--train.steps", "8"]) == 0
    stored = here(tmp_path / "share/runs/tiny")
    assert stored.items() >= here().items()
    steps = {name.split("/")[1] for name in stored if name.startswith("checkpoints")}
    assert steps == {"step-00000003", "step-00000006", "step-00000008"}, "the newest three, wherever they were made"
    assert run(["evaluate", address]) == 0


def test_where_nothing_is_new_no_description_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"file://{tmp_path}/share/runs/tiny"
    assert run(["train", *TINY, "--run-dir", address]) == 0
    read: list[Path] = []

    def remembering(path: Path, kind: type[Document]) -> Document:
        read.append(path)
        return read_document(path, kind)

    monkeypatch.setattr(uploader, "read_document", remembering)
    later = uploader.Uploader(LOCAL, Address.parse(address), 1, lambda: None)
    later._bring_everything(is_last=False)
    assert read
    read.clear()
    later._bring_everything(is_last=False)
    assert not read


def test_data_and_tokenizer_at_addresses(
    server: ObjectServer, trained_run: Path, elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    Path("corpus.jsonl").write_text(
        "".join(json.dumps({"text": f"The class {n} is a class."}) + "\n" for n in range(400))
    )
    made = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(trained_run / "tokenizer.json")]
    assert run(["preprocess", "--input", "corpus.jsonl", "--output-prefix", "corpus", "--append-eod", *made]) == 0
    for path in [*tmp_path.glob("corpus_text_document.*"), *tmp_path.glob("corpus_text_document.tokenizer/*")]:
        if path.is_file():
            server.put("bucket", f"data/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())
    server.put("bucket", "data/recipe.yaml", b"extends: gpt2/tiny\n")
    arguments = [*TINY[1:], "--data.source", "indexed", "--data.path"]
    assert run(["train", *TINY[:1], *arguments, "corpus_text_document", "--run-dir", str(tmp_path / "alone")]) == 0
    elsewhere()
    stored = [*arguments, "s3://bucket/data/corpus_text_document", "--run-dir", RUN]
    assert run(["train", "s3://bucket/data/recipe.yaml", *stored]) == 0
    assert losses(LOCAL) == losses(tmp_path / "alone")
    assert "s3://bucket/data/corpus_text_document" in (LOCAL / "config.yaml").read_text()
