"""BERT in every layout computes what one process does, whatever its task, and goes on in another layout."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from paddock.alignment.divergence import TOLERANCE, compare
from paddock.alignment.trace import Trace
from paddock.checkpoint.loading import load_weights_only
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.config.layouts import legal_layouts, with_layout
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.models.build import initialize_engine
from paddock.models.registry import parameter_names
from paddock.tasks.registry import build_task
from paddock.testing.layouts import BERT_TASKS, small_bert, this_world, trace_all
from paddock.testing.pool import PATIENCE, ProcessPool
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]
STEPS = 3
OFTEN = {
    # Everything that a head has to bear: rows of the vocabulary and of the sequence shared, ends of a pipeline.
    "masked_language_modeling": {
        2: ["tp2,sequence=true", "pp2", "dp2"],
        4: ["dp2,tp2,shard=parameters", "tp2,pp2,schedule=zbv"],
    },
    "question_answering": {
        2: ["dp2", "tp2", "pp2,schedule=interleaved"],
        4: ["tp2,pp2,schedule=zero-bubble,sequence=true", "dp2,pp2,shard=optimizer"],
    },
    "sequence_classification": {2: ["dp2", "tp2,sequence=true", "pp2"], 4: ["dp2,pp2"]},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def alone(pool_of: PoolOf, cache: str) -> dict[str, Trace]:
    """A few steps of one process, for each task."""
    recipes = [small_bert(task, cache, train={"steps": STEPS}).to_dict() for task in BERT_TASKS]
    (traces,) = pool_of(1).run(trace_all, recipes)
    return dict(zip(BERT_TASKS, traces, strict=True))


def disagreements(
    pool: ProcessPool, task: str, cache: str, layouts: list[str], expected: Trace, **sections: Any
) -> list[str]:
    """What is wrong with these layouts, in words."""
    recipe = small_bert(task, cache, train={"steps": len(expected.losses)}, **sections)
    recipes = [with_layout(recipe, name).to_dict() for name in layouts]
    first, *others = pool.run(trace_all, recipes, patience=PATIENCE + 60 * len(layouts))
    found = [f"{layouts}: processes disagree with one another"] if any(other != first for other in others) else []
    for name, trace in zip(layouts, first, strict=True):
        difference = compare(name, asdict(trace), asdict(expected), parameter_names(recipe.model))
        found += [] if difference.agrees else [f"{name}: {difference.explain()}"]
    return found


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("task", BERT_TASKS)
def test_layouts_agree(pool_of: PoolOf, cache: str, alone: dict[str, Trace], task: str, processes: int) -> None:
    assert disagreements(pool_of(processes), task, cache, OFTEN[task][processes], alone[task]) == []


@pytest.mark.parametrize("mode", ["selective", pytest.param("full", marks=pytest.mark.slow)])
def test_recomputing_changes_nothing(pool_of: PoolOf, cache: str, alone: dict[str, Trace], mode: str) -> None:
    task = "question_answering"
    layouts = ["dp2,shard=parameters", "tp2,sequence=true"]
    parallel = {"recompute": mode}
    assert disagreements(pool_of(2), task, cache, layouts, alone[task], parallel=parallel) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("processes", [2, 4, 8])
@pytest.mark.parametrize("task", BERT_TASKS)
def test_all_layouts_agree(pool_of: PoolOf, cache: str, alone: dict[str, Trace], task: str, processes: int) -> None:
    names = legal_layouts(small_bert(task, cache), processes)
    assert len(names) > 4 * processes
    assert disagreements(pool_of(processes), task, cache, names, alone[task]) == []


def losses_of_outputs(rank: int, values: dict[str, Any]) -> tuple[list[list[float]], float]:
    """What the laid-out model puts out for one batch in evaluation, summed over rows, and its loss."""
    recipe, world = recipe_from_dict(values), this_world()
    engine = engine_for(recipe, check_recipe(recipe, world.size), world)
    task = build_task(recipe)
    samples = task.training_samples()
    batch = task.collate([samples[index] for index in range(4)])
    engine.train(False)
    asked = {name: tensor for name, tensor in batch.items() if name != "labels"}
    found = engine.outputs([asked])
    there = batch["lengths"][0] if task.judges_outputs else batch["tokens"].shape[1]
    rows = [output[0, : int(there)].flatten().tolist() for output in found]
    return rows, sum(float(loss) for loss in engine.outputs([batch]))


@pytest.mark.parametrize("task", BERT_TASKS)
def test_outputs_are_those_of_one_process(pool_of: PoolOf, cache: str, task: str) -> None:
    """Evaluation looks at outputs, not only at the loss: heads give all of them, the vocabulary's shards too."""
    recipe = small_bert(task, cache)
    ((((expected,), loss),)) = pool_of(1).run(losses_of_outputs, recipe.to_dict())
    layout = random.Random(1).choice(["tp2,pp2,sequence=true", "tp2,pp2"])
    answers = pool_of(4).run(losses_of_outputs, with_layout(recipe, layout).to_dict())
    (found,) = [row for rows, _ in answers for row in rows]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert sum(part for _, part in answers) == pytest.approx(loss, rel=TOLERANCE)


def write_pretrained(rank: int, values: dict[str, Any], path: str) -> None:
    """A checkpoint as a run of the recipe would leave it, with weights of another seed."""
    recipe, world = recipe_from_dict(values), this_world()
    engine = engine_for(recipe, check_recipe(recipe, world.size), world)
    initialize_engine(engine, seed=77)
    write_checkpoint(Path(path), tensors_of(engine.models, None), {"step": 1, "recipe": values})


def losses_after_beginning(rank: int, recipes: list[dict[str, Any]], path: str) -> list[tuple[list[str], float]]:
    """What is said of weights of another task, and the loss that they give to one batch."""
    found, world = [], this_world()
    for recipe in map(recipe_from_dict, recipes):
        engine = engine_for(recipe, check_recipe(recipe, world.size), world)
        remarks = load_weights_only(Path(path), engine.models)
        task = build_task(recipe)
        samples = task.training_samples()
        batch = task.collate([samples[index] for index in range(4)])
        engine.train(False)
        found.append((remarks, sum(float(loss) for loss in engine.outputs([batch]))))
    return found


def test_another_task_begins_from_it_in_any_layout(pool_of: PoolOf, cache: str, tmp_path: Path) -> None:
    pretrained = small_bert("masked_language_modeling", cache, model={"vocab": 301})
    path = str(tmp_path / "pretrained")
    pool_of(2).run(write_pretrained, with_layout(pretrained, "pp2").to_dict(), path)
    recipe = small_bert("question_answering", cache)
    (((remarks, expected),),) = pool_of(1).run(losses_after_beginning, [recipe.to_dict()], path)
    assert "head.output.weight" in remarks[0] and "head.decoder.bias" in remarks[1]
    recipes = [with_layout(recipe, name).to_dict() for name in ("tp2", "pp2", "dp2,shard=parameters")]
    for number, found in enumerate(zip(*pool_of(2).run(losses_after_beginning, recipes, path), strict=True)):
        assert all(told == remarks for told, _ in found)
        parts = [loss for _, loss in found]
        loss = sum(parts) if number == 1 else parts[0]  # of a pipeline one process knows it
        assert loss == pytest.approx(expected, rel=TOLERANCE), recipes[number]["parallel"]


def test_resumes_in_another_layout(cache: str, tmp_path: Path) -> None:
    """Trained to the end in one layout; stopped half-way and continued in another: the same losses."""
    from paddock.cli.main import run
    from paddock.config.load import save_recipe
    from paddock.testing.tiny import losses

    recipe = small_bert("question_answering", cache, train={"steps": 6}, checkpoint={"every": 3}, log={"every": 1})
    save_recipe(recipe, tmp_path / "recipe.yaml")
    save_recipe(with_layout(recipe, "pp2,schedule=interleaved"), tmp_path / "other.yaml")
    quiet = ["--log.tensorboard", "false"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert run(["train", str(tmp_path / "recipe.yaml"), "--run-dir", str(whole), *quiet]) == 0
    assert run(["train", str(tmp_path / "recipe.yaml"), "--run-dir", str(parted), "--steps", "3", *quiet]) == 0
    go_on = ["--run-dir", str(parted), "--checkpoint.load", "auto", "--nproc-per-node", "2", *quiet]
    assert run(["train", str(tmp_path / "other.yaml"), *go_on]) == 0
    assert losses(parted) == pytest.approx(losses(whole), rel=TOLERANCE)
    assert losses(parted, "train.grad_norm") == pytest.approx(losses(whole, "train.grad_norm"), rel=TOLERANCE)
