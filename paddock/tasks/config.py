"""The tasks that exist, and the data section that each gives a recipe. Adding a task is a line here and in registry."""

from __future__ import annotations

from paddock.data.config import CorpusConfig, DataConfig
from paddock.errors import ConfigError, did_you_mean

DATA_CONFIGS: dict[str, type[DataConfig]] = {"language_modeling": CorpusConfig}


def data_config_class(task: object) -> type[DataConfig]:
    """The data section of a task's recipes, or an error that lists the tasks."""
    if task not in DATA_CONFIGS:
        raise ConfigError(
            f"task = {task}", why="there is no such task", fix=did_you_mean(str(task), sorted(DATA_CONFIGS))
        )
    return DATA_CONFIGS[str(task)]
