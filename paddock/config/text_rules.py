"""What recipes of tasks that read plain text, or hide tokens of it, must fulfil."""

from __future__ import annotations

from paddock.config.recipe import Recipe
from paddock.data.config import MaskedConfig
from paddock.data.labels.config import LabelledTextData
from paddock.data.questions.config import QuestionAnsweringData
from paddock.errors import ConfigError, bad_value

MULTIPLE = 8
"""Rows of an evaluation's batch are as long as a multiple of this."""


def check_text_rows(recipe: Recipe, world: int) -> str:
    """Text needs a tokenizer, and layouts need rows of certain lengths."""
    data, tokenizer, parallel = recipe.data, recipe.tokenizer, recipe.parallel
    assert isinstance(data, QuestionAnsweringData | LabelledTextData)
    if data.source != "synthetic" and not (data.train or data.validation or getattr(data, "path", None)):
        files = "--data.path FOLDER, or " if isinstance(data, QuestionAnsweringData) else ""
        raise ConfigError(
            f"data.source = {data.source} reads files, and none is named",
            why="there is nothing to train or to evaluate on",
            fix=f"set {files}--data.train FILE and --data.validation FILE, or take --data.source synthetic",
        )
    if tokenizer.kind in ("none", "sentencepiece"):
        raise bad_value(
            "tokenizer.kind",
            tokenizer.kind,
            f"data.source = {data.source} is text, and every token's place in it must be known",
            "set --tokenizer.kind wordpiece with --tokenizer.vocab FILE, or file, or trained",
        )
    if data.padding == "longest" and parallel.pipeline > 1:
        raise bad_value(
            "data.padding",
            "longest",
            f"the {parallel.pipeline} stages of a pipeline exchange rows of one length",
            "set --data.padding full",
        )
    if parallel.sequence and MULTIPLE % parallel.tensor:
        raise bad_value(
            "parallel.sequence",
            parallel.sequence,
            f"{parallel.tensor} tensor processes cannot share rows whose lengths are multiples of {MULTIPLE}",
            "set --parallel.sequence false, or --parallel.tensor 2, 4 or 8",
        )
    return f"{data.describe()}, tokenizer {tokenizer.kind}"


def check_masked_corpus(recipe: Recipe, world: int) -> str:
    """Hiding tokens of a corpus needs to know which tokens are special."""
    data, tokenizer = recipe.data, recipe.tokenizer
    assert isinstance(data, MaskedConfig)
    if data.source == "indexed" and data.path is None:
        raise ConfigError(
            "data.path is not set, and data.source = indexed reads it",
            why="there is no corpus to train on",
            fix="set --data.path PREFIX, or take --data.source synthetic",
        )
    if data.source == "synthetic" and tokenizer.kind != "none":
        raise bad_value("tokenizer.kind", tokenizer.kind, "synthetic tokens stand for no text", "set it to none")
    if data.source == "indexed" and tokenizer.kind in ("none", "trained"):
        raise bad_value(
            "tokenizer.kind",
            tokenizer.kind,
            "the corpus is already tokens, and only its tokenizer knows which of them are [CLS], [SEP] and [MASK]",
            "set --tokenizer.kind wordpiece or file, to the tokenizer that it was preprocessed with",
        )
    if data.whole_words and tokenizer.kind == "none":
        raise bad_value("data.whole_words", True, "random tokens are no words", "set --data.whole-words false")
    return f"{data.describe()}, tokenizer {tokenizer.kind}"
