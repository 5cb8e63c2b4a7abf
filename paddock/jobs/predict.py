"""What a trained model makes of inputs: from flags, from a file or from a folder, to plain values or a file."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from paddock.devices import prepare, select
from paddock.devices.fallback import show_ledger
from paddock.devices.threads import threads_in_use
from paddock.documents import Parser
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write, open_text, user_path
from paddock.inference.predictors import Answer, OnBatch, Predictor, PredictorSetup, predictor_of
from paddock.inference.trained import Trained, open_trained
from paddock.launch.environment import with_free_threads
from paddock.launch.options import LaunchOptions
from paddock.models.build import optimize_for_inference
from paddock.tasks.registry import data_config_class

if TYPE_CHECKING:
    import torch

FORMS = (".jsonl", ".csv")
"""What results can be written as."""
STANDARD_INPUT = "-"
LONGEST_LINE = 2**26
"""Characters."""


@dataclass(frozen=True)
class Given:
    """One input: what it is called in results, where it stands (for messages), and its value."""

    name: str
    where: str
    value: Any


@dataclass(frozen=True)
class Prediction:
    """The answers to one input, the best first."""

    name: str
    answers: list[Answer]


@contextmanager
def open_predictor(
    source: str,
    device: str,
    batch: int,
    skip_unreadable: bool = False,
    launch: LaunchOptions = LaunchOptions(),  # noqa: B008 - frozen
) -> Iterator[Predictor]:
    """The model that a run, a checkpoint or a Hugging Face folder holds, ready to be asked inside, with the threads of
    `launch` or with what is free, and with the products that are fastest here. With `skip_unreadable`, files that
    cannot be read are left out."""
    launch.check()
    if batch < 1:
        raise ConfigError(f"--batch {batch}", why="at least one input goes through the model at once")
    adapter = select(device)
    prepare(adapter)
    with threads_in_use(with_free_threads(launch, device).threads):
        trained = open_trained(source, adapter.torch_device(0))
        optimize_for_inference([trained.model])
        predictor = _predictor_of(trained, adapter.torch_device(0), batch, skip_unreadable)
        products = adapter.choose_products("auto", trained.model.config.num_parameters())
        with adapter.using_products(products):
            yield predictor


def _predictor_of(trained: Trained, place: torch.device, batch: int, skip_unreadable: bool) -> Predictor:
    """The predictor of its task."""
    data = trained.data or data_config_class(trained.task)()  # type: ignore[call-arg]
    setup = PredictorSetup(
        trained.model, trained.tokenizer, trained.classes, data, place, batch, trained.origin, skip_unreadable
    )
    predictor = predictor_of(trained.task, setup)
    if skip_unreadable and not predictor.suffixes:
        raise ConfigError(
            "--on-error skip would be ignored",
            why=f"{trained.origin} was trained for {trained.task}, which reads no files of its own",
            fix="leave it out",
        )
    return predictor


def predict(
    predictor: Predictor,
    given: Sequence[Given],
    top_k: int | None = None,
    on_batch: OnBatch | None = None,
    device: str = "auto",
) -> list[Prediction]:
    """The answers to every input, in their order, but for files that were left out. `device` is the one that the
    predictor was opened on: what that lacks the host computes, and it is told."""
    if top_k is not None and top_k < 1:
        raise ConfigError(f"--top-k {top_k}", why="at least one answer is given")
    queries = [predictor.query(one.value, one.where) for one in given]
    adapter = select(device)
    with adapter.falling_back("cpu") as ledger:
        answers = predictor.predict(queries, top_k or predictor.default_top_k, on_batch)
    show_ledger(adapter.name, ledger)
    found = [Prediction(one.name, best) for one, best in zip(given, answers, strict=True) if best is not None]
    if given and not found:
        raise DataError("there is nothing to predict", why=f"none of {len(given)} inputs can be read")
    return found


def read_inputs(predictor: Predictor, path: str) -> list[Given]:
    """The inputs that a file or folder holds."""
    place = user_path(path)
    if predictor.suffixes:
        files = _files(place, predictor.suffixes) if os.path.isdir(place) else [place]
        return [Given(str(file), str(file), str(file)) for file in files]
    found = list(_lines(place))
    if not found:
        raise DataError(f"{place} has no lines")
    return found


def check_output(path: Path) -> None:
    """An error before any work, if results cannot be written as the file's name says."""
    if path.suffix not in FORMS:
        raise ConfigError(f"--output {path}", why="its name says no known form", fix=f"end it in {' or '.join(FORMS)}")
    if not os.path.isdir(path.absolute().parent):
        raise DataError(f"--output {path}: there is no folder {path.parent}", fix="make it, or choose another place")


def write_predictions(predictions: Sequence[Prediction], path: Path) -> None:
    """A JSON object {"id", "answers"} a line, or a table with a row for every answer."""
    with atomic_write(path) as stream:
        if path.suffix == ".jsonl":
            for one in predictions:
                stream.write(json.dumps({"id": one.name, "answers": one.answers}, ensure_ascii=False) + "\n")
            return
        keys = list(dict.fromkeys(key for one in predictions for answer in one.answers for key in answer))
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["id", "rank", *keys])
        for one in predictions:
            for rank, answer in enumerate(one.answers, start=1):
                table.writerow([one.name, rank, *(answer.get(key, "") for key in keys)])


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in suffixes and os.path.isfile(path))
    if not files:
        raise DataError(f"{folder} has no file to look at", why=f"it looks for {', '.join(suffixes)}")
    return files


def _lines(path: Path) -> Iterator[Given]:
    """Every line of a file: JSON, or plain text in a .txt."""
    name = "standard input" if str(path) == STANDARD_INPUT else str(path)
    try:
        with nullcontext(sys.stdin) if str(path) == STANDARD_INPUT else open_text(path) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), ""), start=1):
                where = f"{name}:{number}"
                if len(line) == LONGEST_LINE:
                    raise DataError(f"{where} has more than {LONGEST_LINE:,} characters", fix="give an input a line")
                if not line.strip():
                    continue
                value = line.rstrip("\r\n") if path.suffix == ".txt" else _parse(line, where)
                called = value.get("id", number) if isinstance(value, dict) else number
                yield Given(str(called), where, value)
    except OSError as error:
        raise DataError(f"cannot read --input {name}", why=error.strerror or "", fix="check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"--input {name} is not text in UTF-8", why=str(error)) from None


@with_config(ConfigDict(strict=True, extra="allow"))
class InputObject(TypedDict):
    """A line that is an object: what it is asked for lies under the names that the model's task has for it."""

    id: NotRequired[str | int | float]


_parse: Parser[str | InputObject] = Parser(
    str | InputObject,  # type: ignore[arg-type]
    fix="write a text or an object a line, in JSON, or plain text in a file that ends in .txt",
)
