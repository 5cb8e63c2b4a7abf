"""Evaluating a trained model over exactly the validation set, with any number of processes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_evaluation
from paddock.config.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.errors import ConfigError
from paddock.files import atomic_write, scratch_folder
from paddock.launch.environment import world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.tasks.registry import build_task, prepare_data
from paddock.training.preflight import check_labels


def evaluate(recipe: Recipe, launch: LaunchOptions) -> dict[str, Any] | None:
    """Evaluate the weights that `checkpoint.load` names. None in all but the main process."""
    from paddock.devices import select

    launch.check()
    if recipe.checkpoint.load is None:
        raise ConfigError(
            "there are no weights to evaluate",
            why="checkpoint.load is not set, and random weights say nothing",
            fix="give a run directory instead of a recipe, or --checkpoint.load RUN, CHECKPOINT or FOLDER",
        )
    recipe = with_tokenizer_of_weights(recipe, recipe.checkpoint.load)
    check_evaluation(recipe, world_of(launch))
    check_device(recipe.parallel, select(recipe.train.device))
    check_labels(recipe, prepare_data(recipe).classes)
    with scratch_folder() as folder:
        result = folder / "result.json"
        payload = {"recipe": recipe.to_dict(), "result": str(result)}
        run("paddock.jobs.evaluate:work", payload, launch, folder)
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


def work(payload: dict[str, Any]) -> None:
    """One process's part in an evaluation; the first writes the result."""
    from paddock.devices import select
    from paddock.evaluation.held_out import evaluate as measure
    from paddock.inference.trained import load_any_weights
    from paddock.models.build import optimize_for_inference
    from paddock.parallel.world import join_world
    from paddock.telemetry.terminal import progress_bar
    from paddock.training.run import chosen_products, engine_for

    recipe = recipe_from_dict(payload["recipe"])
    with join_world(select(recipe.train.device)) as world, chosen_products(recipe, world):
        task = build_task(recipe)
        samples = task.validation_samples()
        arithmetic = check_evaluation(recipe, world.size)
        engine = engine_for(recipe, arithmetic, world)
        origin, remarks = load_any_weights(engine.models, recipe.checkpoint.load or "")
        if world.is_main:
            for note in (*(f"{origin}: {remark}" for remark in remarks), *task.notes()):
                print(f"note: {note}", file=sys.stderr)
        optimize_for_inference(engine.models)
        started = time.perf_counter()
        with progress_bar("evaluate", visible=world.is_main) as on_batch:
            metrics = measure(
                task,
                engine,
                samples,
                world,
                arithmetic.batch.micro,
                on_batch=on_batch,
                workers=recipe.data.workers,
                writing=task.writing(during_training=False),
            )
        seconds = time.perf_counter() - started
        if not world.is_main:
            return
        if (line := task.summary(metrics)) is not None:
            print(line, file=sys.stderr)
        result = {
            **{f"val.{name}": value for name, value in metrics.items()},
            "val.samples": len(samples),
            "val.ips": len(samples) / seconds,
            "seconds": seconds,
            "checkpoint": str(origin),
        }
        with atomic_write(Path(payload["result"])) as stream:
            json.dump(result, stream)
