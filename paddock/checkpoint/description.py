"""What `checkpoint.json` says, as one schema: of the run that a checkpoint is of, and of the files that belong to it.

Checkpoints are copied, sent and edited: nothing in one is used before it is known to have this form.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from paddock.checkpoint.shards.blocks import FileRecord
from paddock.documents import Document, FileName
from paddock.errors import DataError, UserError
from paddock.models.config import ModelConfig
from paddock.models.registry import config_class

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class LossScaleState(Document):
    """Of mixed precision in float16."""

    value: float = Field(gt=0, allow_inf_nan=False)
    good_steps: Count
    skipped: Count


class SavedSection(Document):
    """A section of a recipe, of which one word is looked at here; the recipe's own classes check the rest."""

    model_config = ConfigDict(extra="allow")

    def values(self) -> dict[str, Any]:
        """All that the section says."""
        return self.model_dump()


class SavedModel(SavedSection):
    family: str


class SavedOptimizer(SavedSection):
    name: str


class SavedRecipe(SavedSection):
    """The recipe of the run."""

    task: str
    model: SavedModel
    data: dict[str, Any]
    optimizer: SavedOptimizer | None = None


class Description(Document):
    """What a checkpoint says of itself. A checkpoint of no run (weights that were converted) is at step 0."""

    step: Count
    samples: Count
    best: dict[str, float]
    """The metrics of the best evaluation."""
    best_step: Count
    best_of: dict[str, int | str] = Field(default_factory=dict)
    """What they were measured on; older checkpoints do not say."""
    loss_scale: LossScaleState
    recipe: SavedRecipe | None = None
    versions: dict[str, Any] = Field(default_factory=dict)
    data_position: dict[str, int | str] | None = None
    """By recipe field, or in words, what sample numbers stand for; older checkpoints do not say."""

    def need_recipe(self, source: object) -> SavedRecipe:
        """The recipe, or an error that the checkpoint `source` has none."""
        if self.recipe is None:
            raise DataError(
                f"{source} does not say which model it is of",
                why="its checkpoint.json has no recipe",
                fix="load it with its recipe: paddock evaluate RECIPE --checkpoint.load and this checkpoint",
            )
        return self.recipe


class CheckpointFiles(Document):
    """The files that a checkpoint's tensors are in."""

    files: dict[FileName, FileRecord]


OF_NO_RUN: dict[str, Any] = {
    "step": 0,
    "samples": 0,
    "best": {},
    "best_step": 0,
    "loss_scale": {"value": 1.0, "good_steps": 0, "skipped": 0},
}
"""What a checkpoint says where its writer says nothing."""


def saved_model(recipe: SavedRecipe, source: object) -> ModelConfig:
    """The model that a checkpoint's recipe describes."""
    try:
        return config_class(recipe.model.family)(**recipe.model.values())
    except UserError as error:
        raise DataError(f"{source}, in its recipe: {error.what}", why=error.why, fix=error.fix) from None
