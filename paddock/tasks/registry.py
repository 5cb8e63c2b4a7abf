"""The tasks that exist: one entry each, with everything that Paddock asks of one.

A task of our own is a line below; one from outside comes by the entry point `paddock.tasks`, which names a `TaskEntry`,
or is handed to `register_task`. What an entry names is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock import plugins
from paddock.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe
    from paddock.data.config import DataConfig
    from paddock.tasks.task import Prepared, Task

GROUP = "tasks"
Rules = Mapping[str, Callable[["Recipe"], str]]
"""What a recipe of the task must fulfil: by name, functions that return what holds or raise a ConfigError."""
Datasets = Callable[[str | None, str | None], dict[str, Any]]
Samples = Callable[["DataConfig", Any, Any], dict[str, Any]]


@dataclass(frozen=True)
class TaskEntry:
    """A task under its name. Each part is an object, or where to find it: `package.module:name`.

    >>> TaskEntry("sorting", task="sorting:Sorting", data="sorting:SortingData", aliases=("ordering",))
    """

    name: str
    """As recipes spell it."""
    task: str | type[Task]
    """The class that joins model, data, loss and metric."""
    data: str | type[DataConfig]
    """The data section of its recipes."""
    rules: str | Rules = "paddock.tasks.rules:ANY"
    """The rules that span sections of its recipes."""
    predictor: str | type | None = None
    """What answers `paddock predict`; None where there is nothing to predict."""
    datasets: str | Datasets | None = None
    """What `train_dataset` and `eval_dataset`, named in Python, change in the data section."""
    samples: str | Samples | None = None
    """What they change there where they are samples in a program's memory (`tasks/records.py`)."""
    aliases: tuple[str, ...] = ()
    """What it is called elsewhere."""
    trains: bool = True
    """Whether models are trained for it; else they are evaluated alone."""


_OWN = (
    TaskEntry(
        "image_classification",
        task="paddock.tasks.image_classification:ImageClassification",
        data="paddock.data.images.config:ImageData",
        rules="paddock.tasks.rules:IMAGES",
        predictor="paddock.inference.images:ImagePredictor",
        datasets="paddock.tasks.datasets:image_folder",
    ),
    TaskEntry(
        "lambada",
        task="paddock.tasks.measuring:Lambada",
        data="paddock.data.measuring.config:LambadaData",
        rules="paddock.tasks.rules:MEASURES",
        trains=False,
    ),
    TaskEntry(
        "language_modeling",
        task="paddock.tasks.language_modeling:LanguageModeling",
        data="paddock.data.config:CorpusConfig",
        rules="paddock.tasks.rules:CORPUS",
        datasets="paddock.tasks.datasets:corpus_or_text",
        samples="paddock.tasks.records:texts",
        aliases=("text_generation",),
    ),
    TaskEntry(
        "masked_language_modeling",
        task="paddock.tasks.masked_language_modeling:MaskedLanguageModeling",
        data="paddock.data.config:MaskedConfig",
        rules="paddock.tasks.rules:MASKED_CORPUS",
        predictor="paddock.inference.text_predictors:FillMaskPredictor",
        datasets="paddock.tasks.datasets:corpus",
        aliases=("fill_mask",),
    ),
    TaskEntry(
        "own_loss",
        task="paddock.tasks.own_loss:OwnLoss",
        data="paddock.data.own.config:OwnData",
        rules="paddock.tasks.rules:OWN",
    ),
    TaskEntry(
        "question_answering",
        task="paddock.tasks.question_answering:QuestionAnswering",
        data="paddock.data.questions.config:QuestionAnsweringData",
        rules="paddock.tasks.rules:TEXT_ROWS",
        predictor="paddock.inference.question_answering:AnswerPredictor",
        datasets="paddock.tasks.datasets:questions",
        samples="paddock.tasks.records:questions",
    ),
    TaskEntry(
        "sequence_classification",
        task="paddock.tasks.sequence_classification:SequenceClassification",
        data="paddock.data.labels.config:LabelledTextData",
        rules="paddock.tasks.rules:TEXT_ROWS",
        predictor="paddock.inference.text_predictors:TextLabelPredictor",
        datasets="paddock.tasks.datasets:lines_or_table",
        samples="paddock.tasks.records:labelled_texts",
        aliases=("text_classification",),
    ),
    TaskEntry(
        "sequence_to_sequence",
        task="paddock.tasks.sequence_to_sequence:SequenceToSequence",
        data="paddock.data.sequence_pairs.config:SequencePairsData",
        rules="paddock.tasks.rules:SEQUENCE_PAIRS",
        predictor="paddock.inference.sequence_to_sequence:TargetPredictor",
        datasets="paddock.tasks.datasets:lines_or_table",
        samples="paddock.tasks.records:text_pairs",
        aliases=("translation", "summarization", "text2text_generation"),
    ),
    TaskEntry(
        "span_corruption",
        task="paddock.tasks.span_corruption:SpanCorruptionTask",
        data="paddock.data.config:SpanConfig",
        rules="paddock.tasks.rules:SPANS",
        datasets="paddock.tasks.datasets:corpus",
    ),
    TaskEntry(
        "text_perplexity",
        task="paddock.tasks.measuring:TextPerplexity",
        data="paddock.data.measuring.config:TextData",
        rules="paddock.tasks.rules:MEASURES",
        trains=False,
    ),
)
_entries = {entry.name: entry for entry in _OWN}


def register_task(entry: TaskEntry, module: str) -> TaskEntry:
    """Make a task known to this process and to those that it starts, which import `module`.

    >>> register_task(TaskEntry("sorting", task="sorting:Sorting", data="sorting:SortingData"), "sorting")
    """
    _entries[entry.name] = entry
    plugins.remember(module)
    return entry


def task_entry(name: object) -> TaskEntry:
    """The entry of a task, or an error that lists those that there are."""
    found = _entries.get(str(name)) or plugins.find(GROUP, str(name))
    if not isinstance(found, TaskEntry):
        raise ConfigError(f"task = {name}", why="there is no such task", fix=did_you_mean(str(name), task_names()))
    return found


def task_names() -> list[str]:
    """All of them."""
    return sorted({*_entries, *plugins.names(GROUP)})


def task_called(name: str) -> str:
    """The task's own name, of any that it has."""
    aliases = {alias: entry.name for entry in _entries.values() for alias in entry.aliases}
    if name not in aliases and name not in task_names():
        known = sorted([*task_names(), *aliases])
        raise ConfigError(f"task = {name}", why="there is no such task", fix=did_you_mean(name, known))
    return aliases.get(name, name)


def data_config_class(task: object) -> type[DataConfig]:
    """The data section of a task's recipes, or an error that lists the tasks."""
    found: type[DataConfig] = _found(task_entry(task).data)
    return found


def task_class(name: str) -> type[Task]:
    """The class behind a task's name."""
    found: type[Task] = _found(task_entry(name).task)
    return found


def rules_of_task(name: str) -> Rules:
    """The rules of a task's recipes."""
    found: Rules = _found(task_entry(name).rules)
    return found


def predictor_class(name: str) -> Any:
    """What answers questions to a model of this task; None where there is nothing to predict."""
    return _found(task_entry(name).predictor)


def predicting_tasks() -> list[str]:
    """The tasks whose models predict something of what a user gives them."""
    return [name for name in task_names() if task_entry(name).predictor is not None]


def name_datasets(task: str, train: str | None, evaluation: str | None) -> dict[str, Any]:
    """What `train_dataset` and `eval_dataset` change in a recipe's data section."""
    if train is None and evaluation is None:
        return {}
    found = _found(task_entry(task).datasets)
    if found is None:
        raise ConfigError(f"{task} reads no data that is named so", fix="set its data section: overrides={'data': …}")
    changes: dict[str, Any] = found(train, evaluation)
    return changes


def datasets_given(task: str, data: Mapping[str, Any], train: Any, evaluation: Any) -> dict[str, Any]:
    """The same of what a program hands over: paths, or samples, which are kept in files. `data` is what the section
    says otherwise: how the keys of records are called."""
    given = {"train_dataset": train, "eval_dataset": evaluation}
    there = {argument: content for argument, content in given.items() if content is not None}
    paths = [isinstance(content, str | Path) for content in there.values()]
    if all(paths):
        return name_datasets(task, *(None if content is None else str(content) for content in given.values()))
    if any(paths):
        raise ConfigError(
            "one of train_dataset and eval_dataset is a path, and the other one is not", fix="give two of a kind"
        )
    from paddock.tasks.records import Given, check_samples

    for argument, content in there.items():
        check_samples(argument, content)
    found = _found(task_entry(task).samples)
    if found is None:
        argument, content = next(iter(there.items()))
        raise ConfigError(f"{argument} is a {type(content).__name__}", why=f"{task} reads files", fix="give their path")
    samples = [None if content is None else Given(argument, content) for argument, content in given.items()]
    section = data_config_class(task).model_construct(**data)
    changes: dict[str, Any] = found(section, *samples)
    return changes


def name_dataset(task: str, path: str) -> dict[str, Any]:
    """What one place for all data, training's and validation's, changes in a recipe's data section."""
    from paddock.tasks.datasets import parts_of_folder

    if "path" not in data_config_class(task).model_fields:
        return name_datasets(task, *parts_of_folder(path))
    fields = name_datasets(task, path, None)
    fields.pop("train", None)
    return fields | {"path": path}


def prepare_data(recipe: Recipe) -> Prepared:
    """What the recipe reads, found or built; the second time it is found."""
    return task_class(recipe.task).prepare(recipe.data, recipe.tokenizer, recipe.model)


def build_task(recipe: Recipe, prepared: Prepared | None = None) -> Task:
    """The recipe's task, ready to be read."""
    prepared = prepared or prepare_data(recipe)
    return task_class(recipe.task).build(recipe.data, prepared, recipe.model, recipe.train.seed)


def _found(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)
