"""The tasks that exist, and the data section that each gives a recipe. Adding a task is a line here and in registry."""

from __future__ import annotations

from importlib import import_module

from paddock.data.config import DataConfig
from paddock.errors import ConfigError, did_you_mean

DATA_CONFIGS = {
    "image_classification": ("images.config", "ImageData"),
    "language_modeling": ("config", "CorpusConfig"),
    "masked_language_modeling": ("config", "MaskedConfig"),
    "question_answering": ("questions.config", "QuestionAnsweringData"),
    "sequence_classification": ("labels.config", "LabelledTextData"),
}
"""By the task's name: a module of the data room, imported when it is asked for, and a class in it."""


def data_config_class(task: object) -> type[DataConfig]:
    """The data section of a task's recipes, or an error that lists the tasks."""
    if task not in DATA_CONFIGS:
        raise ConfigError(
            f"task = {task}", why="there is no such task", fix=did_you_mean(str(task), sorted(DATA_CONFIGS))
        )
    module, name = DATA_CONFIGS[str(task)]
    found: type[DataConfig] = getattr(import_module(f"paddock.data.{module}"), name)
    return found
