"""The whole recipe, composed of the pieces that the rooms own."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field, create_model

from paddock.checkpoint.config import CheckpointConfig
from paddock.data.config import DataConfig, TokenizerConfig
from paddock.devices.config import DeviceConfig
from paddock.errors import bad_value
from paddock.models.config import ModelConfig
from paddock.models.registry import config_class
from paddock.parallel.config import ParallelConfig
from paddock.schema import ConfigModel
from paddock.tasks.registry import data_config_class
from paddock.telemetry.config import LogConfig
from paddock.training.config import (
    BatchConfig,
    EvaluateConfig,
    OptimizerConfig,
    PrecisionConfig,
    ScheduleConfig,
    TrainConfig,
)


class Recipe(ConfigModel):
    """Everything that decides what a run computes."""

    task: str = "language_modeling"
    """What joins the model, the data, the loss and the metric."""
    model: ModelConfig
    """The shape of the model."""
    data: DataConfig
    """Where the data comes from."""
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    """How text becomes token ids."""
    parallel: ParallelConfig = Field(default_factory=ParallelConfig)
    """How the job is laid out over processes."""
    batch: BatchConfig = Field(default_factory=BatchConfig)
    """How many samples make a step."""
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    """What turns gradients into updates."""
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    """The learning rate over time."""
    precision: PrecisionConfig = Field(default_factory=PrecisionConfig)
    """Number formats."""
    train: TrainConfig = Field(default_factory=TrainConfig)
    """How long, where, from which seed."""
    device: DeviceConfig = Field(default_factory=DeviceConfig)
    """How the device computes; which one it is, `train.device` says."""
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    """Evaluation during training."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """What is saved, and where a run begins."""
    log: LogConfig = Field(default_factory=LogConfig)
    """What is shown and recorded."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values with the keys that users write; loading them gives this recipe again."""
        return self.model_dump(mode="json", by_alias=True)


@cache
def recipe_class(family: str, task: str) -> type[Recipe]:
    """`Recipe` with the model section of one family and the data section of one task, so that fields are known."""
    return create_model(
        "Recipe",
        __base__=Recipe,
        __doc__=Recipe.__doc__,
        task=(Literal[task], task),  # type: ignore[arg-type]
        model=(config_class(family), ...),
        data=(data_config_class(task), ...),
    )


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """Check plain values, as read from YAML, and make them a recipe."""
    return class_for(values)(**values)


def class_for(values: dict[str, Any]) -> type[Recipe]:
    """The kind of recipe that plain values describe, by their family and task."""
    section = values.get("model")
    family = section.get("family") if isinstance(section, dict) else None
    task = values.get("task", Recipe.model_fields["task"].default)
    for name, value in (("model.family", family), ("task", task)):
        if not isinstance(value, str | None):
            raise bad_value(name, value, "it is one word")
    data_config_class(task)
    return recipe_class(config_class(family).model_fields["family"].default, task)
