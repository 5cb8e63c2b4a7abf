"""The data that a user names in Python as two arguments, as fields of the data section of a task."""

from __future__ import annotations

from typing import Any

from paddock.data.config import named_as_text
from paddock.data.images.config import MADE_ONLY, ImageData
from paddock.errors import ConfigError, DataError
from paddock.objects.fetch import local_path

Fields = dict[str, Any]
VALIDATION = ("validation", "valid", "val", "dev")
"""What the file beside the training file is called."""


def questions(train: str | None, evaluation: str | None) -> Fields:
    return {"source": "squad"} | _given(train=train, validation=evaluation)


def lines_or_table(train: str | None, evaluation: str | None) -> Fields:
    kinds = {"tsv" if str(path).endswith((".tsv", ".txt")) else "jsonl" for path in (train, evaluation) if path}
    if len(kinds) > 1:
        raise ConfigError(
            f"train_dataset = {train}, eval_dataset = {evaluation}", why="one is JSON lines, and one is a table"
        )
    return {"source": kinds.pop()} | _given(train=train, validation=evaluation)


def corpus_or_text(train: str | None, evaluation: str | None) -> Fields:
    """Tokens by their prefix; or, by the ends of their names, plain text, JSON lines or tables."""
    fields = corpus(train, evaluation)
    return fields | ({"source": "text"} if named_as_text(fields["path"]) else {})


def corpus(train: str | None, evaluation: str | None) -> Fields:
    return {"source": "indexed", "path": _one(train, evaluation, "data.split says which part is for evaluation")}


def image_folder(train: str | None, evaluation: str | None) -> Fields:
    folder = {"source": "folder", "path": _one(train, evaluation, "the folder has train and val in it")}
    # Where a recipe says how many images to make, that is no longer meant.
    return folder | {name: ImageData.model_fields[name].default for name in MADE_ONLY}


def parts_of_folder(path: str) -> tuple[str, str | None]:
    """The training file and the validation file of a folder, by their names; a file is for training alone."""
    folder = local_path(path)
    if not folder.is_dir():
        return path, None
    files = sorted(file for file in folder.iterdir() if file.is_file())
    train, validation = ([file for file in files if file.stem in stems] for stems in (("train",), VALIDATION))
    if len(train) != 1 or len(validation) > 1:
        raise DataError(
            f"{path} has {len(train)} training files and {len(validation)} validation files",
            why=f"one of each is wanted: train.jsonl or train.tsv, and {VALIDATION[0]}.jsonl or .tsv beside it",
            fix="name the files: --data.train FILE --data.validation FILE",
        )
    at = path.rstrip("/")
    return f"{at}/{train[0].name}", f"{at}/{validation[0].name}" if validation else None


def _one(train: str | None, evaluation: str | None, why: str) -> str:
    if None not in (train, evaluation) and train != evaluation:
        raise ConfigError(
            f"eval_dataset = {evaluation}",
            why=f"train_dataset is {train}, and this task reads one: {why}",
            fix="give the same path twice, or train_dataset alone",
        )
    return str(train or evaluation)


def _given(**fields: str | None) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
