"""Small BERTs that can be laid out in every way over four processes, one for each task."""

from __future__ import annotations

from typing import Any

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict

MODEL: dict[str, Any] = {
    # Widths for four tensor processes, layers for two stages on each of four, and labels' own scale at the start.
    **{"layers": 8, "hidden": 32, "heads": 4, "feed_forward": 64, "context": 48, "dropout": 0.0, "init_std": 0.08},
}
COMMON: dict[str, Any] = {
    "model": MODEL,
    "batch": {"micro": 4, "global": 16},
    "optimizer": {"lr": 2e-3},
    "schedule": {"warmup": 4, "decay_steps": 20, "min_lr": 2e-4},
    "evaluate": {"every": None},
    "train": {"steps": 20, "epochs": None},
}
TASKS: dict[str, dict[str, Any]] = {
    # Random tokens, of a vocabulary that no number of processes divides.
    "masked_language_modeling": {
        "model": {"vocab": 101},
        "data": {"source": "synthetic", "sequence_length": 48},
        "tokenizer": {"kind": "none", "vocab": None, "lower_case": False},
    },
    # Texts of many lengths: padding in every batch.
    "question_answering": {
        "model": {"vocab": 301},
        "data": {
            **{"source": "synthetic", "sequence_length": 48, "question_length": 12, "stride": 4, "answer_length": 8},
        },
        "tokenizer": {"kind": "trained", "vocab": None, "lower_case": False},
    },
    "sequence_classification": {
        "model": {"vocab": 301},
        "data": {"source": "synthetic", "sequence_length": 48},
        "tokenizer": {"kind": "trained", "vocab": None, "lower_case": False},
    },
}


def small_bert(task: str, cache: str, **sections: Any) -> Recipe:
    """The recipe of a small BERT for a task, with changes by section; tokenizers and rows are kept in `cache`."""
    values = {name: value for name, value in load_recipe("bert").to_dict().items() if name != "data"}
    values = merge(merge(values, COMMON), TASKS[task])
    own = {"task": task, "model": {"head": task}, "data": {"cache": cache}}
    return recipe_from_dict(merge(merge(values, own), sections))
