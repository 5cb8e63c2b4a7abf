"""Evaluating a trained model over exactly the held-out data, with any number of processes."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from paddock.config.measuring import with_weights_here
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_evaluation
from paddock.config.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.errors import ConfigError, DataError, bad_value
from paddock.files import atomic_write, scratch_folder
from paddock.launch.environment import with_free_threads, world_of
from paddock.launch.facts import flat
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.preflight import compared
from paddock.launch.run import run
from paddock.parallel.legality import check_device
from paddock.tasks.registry import build_task, prepare_data, task_class
from paddock.training.preflight import check_labels


def evaluate(recipe: Recipe, launch: LaunchOptions, missed: Path | None = None) -> dict[str, Any] | None:
    """Evaluate the weights that `checkpoint.load` names. None in all but the main process. What the model got wrong is
    written to `missed`, where the task can tell."""
    from paddock.devices import select

    launch.check()
    launch = located(launch)
    if missed is not None:
        _check_missed(recipe, missed)
    if recipe.checkpoint.load is None:
        raise ConfigError(
            "there are no weights to evaluate",
            why="checkpoint.load is not set, and random weights say nothing",
            fix="give a run directory instead of a recipe, or --checkpoint.load RUN, CHECKPOINT or FOLDER",
        )
    asked = recipe.to_dict()  # what all machines were told; where each keeps its copy of it is its own matter
    recipe = with_weights_here(recipe)
    recipe = with_tokenizer_of_weights(recipe, recipe.checkpoint.load)
    check_evaluation(recipe, world_of(launch))
    with scratch_folder() as folder, compared(launch, recipe.train.device, asked):
        check_device(recipe.parallel, select(recipe.train.device))
        check_labels(recipe, prepare_data(recipe).classes)
        launch = with_free_threads(launch, recipe.train.device)
        result = folder / "result.json"
        payload = {
            "recipe": recipe.to_dict(),
            "result": str(result),
            "missed": None if missed is None else str(missed.absolute()),
        }
        run("paddock.jobs.evaluate:work", payload, launch, folder, asked=flat(asked))
        return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


def work(payload: dict[str, Any]) -> None:
    """One process's part in an evaluation; the first writes the result."""
    from paddock.devices import select
    from paddock.evaluation.held_out import evaluate as measure
    from paddock.evaluation.written import Write, model_in_parts
    from paddock.inference.trained import load_any_weights
    from paddock.models.build import optimize_for_inference
    from paddock.models.model import Model
    from paddock.parallel.world import join_world
    from paddock.tasks.task import Judgement
    from paddock.telemetry.screen.terminal import progress_bar
    from paddock.training.run import chosen_products, engine_for

    recipe = recipe_from_dict(payload["recipe"])
    with join_world(select(recipe.train.device), recipe.device.fallback) as world, chosen_products(recipe, world):
        task = build_task(recipe)
        samples = task.held_out_samples(recipe.evaluate.split, recipe.evaluate.stride)
        arithmetic = check_evaluation(recipe, world.size)
        engine = engine_for(recipe, arithmetic, world)
        origin, remarks = load_any_weights(engine.models, recipe.checkpoint.load or "")
        if world.is_main:
            for note in (*(f"{origin}: {remark}" for remark in remarks), *task.notes()):
                print(f"note: {note}", file=sys.stderr)
        optimize_for_inference(engine.models)
        found: list[Judgement] = []

        def in_parts() -> AbstractContextManager[Write | None]:
            def fill(model: Model) -> None:
                load_any_weights([model], recipe.checkpoint.load or "")

            return model_in_parts(recipe.model, fill, engine.mesh.layout, world)

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
                on_found=found.append,
                open_model=None if engine.has_whole_model else in_parts,
            )
        seconds = time.perf_counter() - started
        if not world.is_main:
            return
        if (line := task.summary(metrics)) is not None:
            print(line, file=sys.stderr)
        if payload["missed"] is not None:
            with atomic_write(payload["missed"]) as stream:
                stream.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in task.missed(found[0]))
        result = {
            **{f"val.{name}": value for name, value in metrics.items()},
            "val.samples": len(samples),
            "val.ips": len(samples) / seconds,
            "seconds": seconds,
            "checkpoint": str(origin),
            "measured_on": _measured_on(recipe),
        }
        with atomic_write(Path(payload["result"])) as stream:
            json.dump(result, stream)


def _measured_on(recipe: Recipe) -> str:
    """The data in a line, with its part and its windows where there is a choice of them."""
    data, evaluate = recipe.data, recipe.evaluate
    part = f", {evaluate.split} part" if len(data.parts) > 1 else ""
    stride = "" if evaluate.stride is None else f", stride {evaluate.stride}"
    return f"{data.describe()}{part}{stride}"


def _check_missed(recipe: Recipe, path: Path) -> None:
    if not task_class(recipe.task).tells_missed:
        raise bad_value("--missed", path, f"{recipe.task} does not say what was missed", "leave it out")
    if not os.path.isdir(path.absolute().parent):
        raise DataError(f"--missed {path}: there is no folder {path.parent}", fix="make it, or choose another place")
