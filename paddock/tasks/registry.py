"""The tasks that exist, by the name that recipes use."""

from __future__ import annotations

from importlib import import_module

from paddock.tasks.task import Task

_TASKS = {
    "image_classification": "ImageClassification",
    "language_modeling": "LanguageModeling",
    "masked_language_modeling": "MaskedLanguageModeling",
    "question_answering": "QuestionAnswering",
    "sequence_classification": "SequenceClassification",
}


def task_class(name: str) -> type[Task]:
    """The class behind a task's name; its module, which has that name too, is imported when it is asked for."""
    found: type[Task] = getattr(import_module(f"paddock.tasks.{name}"), _TASKS[name])
    return found
