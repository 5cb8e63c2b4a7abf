"""A GPT-2, BERTs and T5s that can be laid out in every way over four or eight processes, and their training as numbers.

    python -m paddock.testing.layouts > tests/distributed/golden/gpt2.txt

writes the numbers of one process anew, after a change that is meant to change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from paddock.alignment.trace import Trace, computing_in, record_trace
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import select
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.tasks.registry import build_task

BERT_MODEL: dict[str, Any] = {
    # Widths for four tensor processes, layers for two stages on each of four, and labels' own scale at the start.
    **{"layers": 8, "hidden": 32, "heads": 4, "feed_forward": 64, "context": 48, "dropout": 0.0, "init_std": 0.08},
}
BERT: dict[str, Any] = {
    "model": BERT_MODEL,
    "batch": {"micro": 4, "global": 16},
    "optimizer": {"lr": 2e-3},
    "schedule": {"warmup": 4, "decay_steps": 20, "min_lr": 2e-4},
    "evaluate": {"every": None},
    "train": {"steps": 20, "epochs": None},
}
BERT_TASKS: dict[str, dict[str, Any]] = {
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
    values = merge(merge(values, BERT), BERT_TASKS[task])
    own = {"task": task, "model": {"head": task}, "data": {"cache": cache}}
    return recipe_from_dict(merge(merge(values, own), sections))


GPT2: dict[str, Any] = {
    # A vocabulary that no number of processes divides, and enough layers for two stages on each of four.
    "model": {"layers": 8, "hidden": 32, "heads": 8, "vocab": 101, "context": 16, "dropout": 0.0, "init_std": 0.08},
    # Labels that do not count, so that no two micro-batches weigh the same.
    "data": {"source": "synthetic", "sequence_length": 16, "eod": 7, "eod_mask_loss": True},
    "tokenizer": {"kind": "none"},
    "batch": {"micro": 4, "global": 16},
    "optimizer": {"lr": 2e-3},
    "schedule": {"warmup": 4, "decay_steps": 20, "min_lr": 2e-4},
    "evaluate": {"every": None},
    "train": {"steps": 20},
}


T5: dict[str, Any] = {
    # Heads for four tensor processes that together are not as wide as the model, stacks of unequal depth, a vocabulary
    # that no number of processes divides, and padding in every sample.
    "model": {
        **{"layers": 3, "decoder_layers": 5, "hidden": 32, "heads": 4, "head_size": 12, "feed_forward": 64},
        **{"vocab": 101, "dropout": 0.0, "position_buckets": 8, "max_distance": 12},
    },
    "data": {"source": "synthetic", "sequence_length": 24, "target_length": 16},
    "tokenizer": {"kind": "none", "model": None},
    "precision": {"compute": "float32"},
    "batch": {"micro": 4, "global": 16},
    "optimizer": {"lr": 2e-3},
    "schedule": {"warmup": 4, "decay_steps": 20, "min_lr": 2e-4},
    "evaluate": {"every": None},
    "train": {"steps": 20},
}


def small_t5(base: str, **sections: Any) -> Recipe:
    """The recipe of a small T5 (base: t5) or mT5 (mt5), with changes by section."""
    return recipe_from_dict(merge(merge(load_recipe(base).to_dict(), T5), sections))


def small_recipe(**sections: Any) -> Recipe:
    """The small model's recipe, with changes by section."""
    return recipe_from_dict(merge(merge(load_recipe("gpt2").to_dict(), GPT2), sections))


def this_world() -> World:
    """The processes of a pool, as one of them sees it."""
    joined = dist.is_initialized()
    rank, size = (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)
    return World(rank, size, select("cpu"), torch.device("cpu"))


def trace_recipe(values: dict[str, Any], change: Callable[[Engine], None] | None = None) -> Trace:
    """Train a recipe (as plain values) in this process's world."""
    recipe = recipe_from_dict(values)
    return record_trace(recipe, build_task(recipe), this_world(), change)


def trace_all(rank: int, recipes: Sequence[dict[str, Any]], number_type: str = "float32") -> list[Trace]:
    """For a pool: one recipe after the other."""
    with computing_in(number_type):
        return [trace_recipe(values) for values in recipes]


def golden_lines(trace: Trace) -> list[str]:
    """Step, loss and gradient norm, as the files keep them."""
    pairs = enumerate(zip(trace.losses, trace.norms, strict=True), start=1)
    return [f"{step} {loss:.9g} {norm:.9g}" for step, (loss, norm) in pairs]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("\n".join(golden_lines(trace_recipe(small_recipe().to_dict()))))
