"""A language model that has learned nothing, with its tokenizer, and passages whose last word it finds now and then."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddock.alignment.trace import computing_in
from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_evaluation
from paddock.config.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.data.language.embedded import embedded_documents
from paddock.data.tokenizers.load import train_tokenizer
from paddock.evaluation.held_out import evaluate
from paddock.inference.trained import load_any_weights
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize
from paddock.tasks.registry import build_task
from paddock.tasks.task import Judgement
from paddock.testing.layouts import this_world
from paddock.training.run import engine_for

WORDS = "the name value class object function module list string statement called argument".split()
RARE = "zygote quixotic fjord Björk naïve 東京 rhythm".split()
"""Words of several tokens."""


def write_language_model(folder: Path) -> Path:
    """A small GPT-2 as a Hugging Face folder; its tokenizer is a byte-level BPE of 512 tokens."""
    tokenizer = train_tokenizer(embedded_documents()[:30], 512)
    config = GPT2Config(hidden=32, layers=4, heads=4, vocab=512, context=48)
    model = GPT2(config)
    initialize(model, seed=7)
    save_folder(model.state_dict(), config, folder)
    tokenizer.save(folder)
    return folder


def passages(count: int, seed: int = 0, longest: int = 60) -> list[str]:
    """Passages of very different lengths. The last word of every other one stands twice: a model whose head is its
    embedding, and which has learned nothing, expects the token that it has just read."""
    rng, found = random.Random(seed), []
    for number in range(count):
        words = rng.choices(WORDS * 4 + RARE, k=rng.randint(2, longest))
        last = rng.choice(WORDS if number % 2 else RARE)
        blank = rng.choice([" ", " ", " ", "  ", "\n", " \n\n"])
        text = " ".join([*words, last] if number % 2 else words)
        found.append(text.replace(" the ", ".\n\nThe ") + blank + last)
    return found


def write_passages(path: Path, texts: Sequence[str]) -> Path:
    """As JSON lines, in LAMBADA's form."""
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def measure(rank: int, recipes: Sequence[dict[str, Any]]) -> list[tuple[dict[str, float], list[Any]]]:
    """For a pool: metrics and records of an evaluation, of one recipe after the other. In float64, so that which token
    is the likeliest does not depend on rounding."""
    world, found = this_world(), []
    with computing_in("float64"):
        for values in recipes:
            recipe = recipe_from_dict(values)
            recipe = with_tokenizer_of_weights(recipe, recipe.checkpoint.load)
            arithmetic, task = check_evaluation(recipe, world.size), build_task(recipe)
            engine = engine_for(recipe, arithmetic, world)
            load_any_weights(engine.models, recipe.checkpoint.load or "")
            samples = task.held_out_samples(recipe.evaluate.split, recipe.evaluate.stride)
            judged: list[Judgement] = []
            metrics = evaluate(task, engine, samples, world, arithmetic.batch.micro, on_found=judged.append)
            found.append((metrics, judged[0].records))
    return found
