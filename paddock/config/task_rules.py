"""The rules that span sections and hold for one task only."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from paddock.config.image_rules import check_images
from paddock.config.recipe import Recipe
from paddock.config.text_rules import check_masked_corpus, check_text_rows
from paddock.data.config import CorpusConfig
from paddock.errors import ConfigError, bad_value

Rule = Callable[[Recipe, int], str]


def model_fits(recipe: Recipe, world: int) -> str:
    """What the recipe trains for against what the model is made for."""
    model, task = recipe.model, recipe.task
    if model.task() == task:
        return f"{model.family} for {task}"
    head = type(model).model_fields.get("head")
    if head is None or task not in get_args(head.annotation):
        fix = f"take a recipe of another family, or one whose task is {model.task()}"
        raise bad_value("task", task, f"{model.family} is made for {model.task()}", fix)
    raise bad_value(
        "model.head",
        model.task(),
        f"the recipe's task is {task}",
        f"set --model.head {task}, or take a recipe whose task is {model.task()}",
    )


def sequence_fits(recipe: Recipe, world: int) -> str:
    """Samples against the positions that the model has."""
    length, context = recipe.data.sample_size(), recipe.model.longest_sequence()
    if context is None:
        return f"sequence {length}"
    if length > context:
        raise bad_value(
            "data.sequence_length",
            length,
            f"the model has only {context} positions",
            f"set --data.sequence-length {context} or less, or --model.context {length}",
        )
    return f"sequence {length} ≤ context {context}"


def _corpus(recipe: Recipe, world: int) -> str:
    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, CorpusConfig)
    if data.source == "indexed" and data.path is None:
        raise ConfigError(
            "data.path is not set, and data.source = indexed reads it",
            why="there is no corpus to train on",
            fix="set --data.path PREFIX, or take --data.source embedded or synthetic",
        )
    reads_text = data.source == "embedded"
    if reads_text and tokenizer.kind == "none":
        raise bad_value(
            "tokenizer.kind",
            "none",
            f"data.source = {data.source} is text, and nothing turns it into tokens",
            "set --tokenizer.kind trained, gpt2 or file",
        )
    if not reads_text and tokenizer.kind == "trained":
        raise bad_value(
            "tokenizer.kind",
            "trained",
            f"data.source = {data.source} is already tokens, so there is no text to learn a tokenizer from",
            "set --tokenizer.kind gpt2 or file (for generating text), or none",
        )
    if data.source == "synthetic" and tokenizer.kind != "none":
        raise bad_value("tokenizer.kind", tokenizer.kind, "synthetic tokens stand for no text", "set it to none")
    if data.minds_document_ends and data.eod is None and tokenizer.kind == "none":
        raise ConfigError(
            "the token that ends a document is not known",
            why="data.reset_position_ids, reset_attention_mask and eod_mask_loss look for it",
            fix="set --data.eod ID, or a --tokenizer.kind",
        )
    vocab = recipe.model.vocabulary()
    if data.eod is not None and data.eod >= vocab:
        raise bad_value("data.eod", data.eod, f"the model's tokens are 0 to {vocab - 1}", f"set it below {vocab}")
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


TASK_RULES: dict[str, list[tuple[str, Rule]]] = {
    "image_classification": [("model", model_fits), ("images", check_images)],
    "language_modeling": [("model", model_fits), ("sequence", sequence_fits), ("corpus", _corpus)],
    "masked_language_modeling": [("model", model_fits), ("sequence", sequence_fits), ("corpus", check_masked_corpus)],
    "question_answering": [("model", model_fits), ("sequence", sequence_fits), ("text", check_text_rows)],
    "sequence_classification": [("model", model_fits), ("sequence", sequence_fits), ("text", check_text_rows)],
}
"""By the task's name."""
