"""The tasks that exist, by the name that recipes use."""

from __future__ import annotations

from paddock.data.config import DataConfig
from paddock.data.prepare import PreparedData
from paddock.models.config import ModelConfig
from paddock.tasks.language_modeling import LanguageModeling
from paddock.tasks.task import Task


def build_task(name: str, data: DataConfig, prepared: PreparedData, model: ModelConfig, seed: int) -> Task:
    """The task of a recipe, over data that is ready."""
    builders = {"language_modeling": LanguageModeling}
    return builders[name](data, prepared, model.vocabulary(), seed)
