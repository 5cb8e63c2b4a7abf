"""The tasks that exist, by the name that recipes use."""

from __future__ import annotations

from importlib import import_module

from paddock.tasks.task import Task

_TASKS = {"language_modeling": "LanguageModeling"}


def task_class(name: str) -> type[Task]:
    """The class behind a task's name; its module, which has that name too, is imported when it is asked for."""
    found: type[Task] = getattr(import_module(f"paddock.tasks.{name}"), _TASKS[name])
    return found
