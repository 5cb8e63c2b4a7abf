"""ResNets over two processes: parity where norms allow it, statistics that are one, and averaged weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paddock.alignment.divergence import DOUBLE_TOLERANCE
from paddock.alignment.trace import Trace
from paddock.cli.main import run
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.parallel.config import Layout
from paddock.parallel.mesh import build_mesh
from paddock.parallel.sharding import average_statistics, statistics_of
from paddock.testing.commands import paddock
from paddock.testing.layouts import trace_all
from paddock.testing.pool import ProcessPool
from paddock.testing.tiny import losses

PoolOf = Callable[[int], ProcessPool]

SMALL: dict[str, Any] = {
    "model": {"arch": "resnet18", "width": 8, "classes": 4},
    "data": {"source": "synthetic", "image_size": 32, "workers": 0, "training_images": 64, "validation_images": 10},
    "batch": {"micro": None, "global": 8},
    "optimizer": {"lr": 0.05},
    "train": {"steps": 6, "epochs": None},
    "evaluate": {"every": None},
}


def recipe(**model: Any) -> Recipe:
    return recipe_from_dict(merge(merge(load_recipe("resnet").to_dict(), SMALL), {"model": model}))


def traces(pool: ProcessPool, recipes: list[Recipe]) -> list[Trace]:
    """In float64: what float32 rounds differently in another layout, a ResNet multiplies in every step."""
    found = pool.run(trace_all, [one.to_dict() for one in recipes], "float64")
    assert all(other == found[0] for other in found)
    return list(found[0])


@pytest.mark.parametrize("norm", ["batch", "group", "synchronised"])
def test_fewer_bits_in_every_form_of_sharding(pool_of: PoolOf, norm: str) -> None:
    """Weights that are gathered in bfloat16 meet norms and statistics in float32."""
    one = recipe_from_dict(merge(recipe(norm=norm).to_dict(), {"precision": {"compute": "bfloat16"}}))
    names = ["dp2", "dp2,shard=optimizer", "dp2,shard=parameters", "dp2,shard=parameters,recompute=full"]
    autocast, *sharded = pool_of(2).run(trace_all, [with_layout(one, name).to_dict() for name in names])[0]
    for trace in sharded:  # the first step alone: what is rounded otherwise, a ResNet multiplies
        assert trace.losses[0] == pytest.approx(autocast.losses[0], rel=4 * torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("norm", ["group", "synchronised"])
def test_layouts_change_nothing_where_norms_do_not_see_them(pool_of: PoolOf, norm: str) -> None:
    names = ["dp2", "dp2,shard=optimizer", "dp2,shard=parameters", "dp2,recompute=full"]
    if norm == "group":
        names += ["dp2,accumulation=2"]  # a synchronised norm sees the samples of one micro-batch
    one = recipe(norm=norm)
    (alone,) = traces(pool_of(1), [one])
    assert alone.losses[0] != pytest.approx(alone.losses[-1], rel=1e-4)
    for name, trace in zip(names, traces(pool_of(2), [with_layout(one, name) for name in names]), strict=True):
        assert trace.losses == pytest.approx(alone.losses, rel=DOUBLE_TOLERANCE), name
        assert trace.norms == pytest.approx(alone.norms, rel=DOUBLE_TOLERANCE), name


def test_a_norm_of_its_own_makes_another_loss(pool_of: PoolOf) -> None:
    one = recipe(norm="batch")
    (alone,), (together,) = traces(pool_of(1), [one]), traces(pool_of(2), [with_layout(one, "dp2")])
    assert together.losses[0] != pytest.approx(alone.losses[0], rel=1e-5)


def average_of_ranks(rank: int) -> list[list[float]]:
    norm = nn.BatchNorm2d(2)
    norm.running_mean = torch.tensor([1.0, 10.0]) * (rank + 1)
    mesh = build_mesh(Layout(data=2, tensor=1, pipeline=1), rank, "cpu")
    average_statistics(statistics_of([norm]), mesh)
    assert norm.num_batches_tracked is not None and int(norm.num_batches_tracked) == 0
    return [buffer.tolist() for buffer in statistics_of([norm])]


def test_statistics_become_the_mean_over_replicas(pool_of: PoolOf) -> None:
    assert pool_of(2).run(average_of_ranks) == [[[1.5, 15.0], [1.0, 1.0]]] * 2


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two processes with batch norms of their own: with an average that is evaluated in between, and without."""
    folder = tmp_path_factory.mktemp("resnet")
    flags = "resnet -a resnet18 --dummy -b 8 -j 0 -p 1 --lr 0.01 --model.width 8 --model.classes 4 --steps 5"
    flags += " --data.image-size 32 --data.validation-images 9 --nproc-per-node 2 --parallel.shard optimizer"
    extra = {"averaged": ["--train.ema", "0.9", "--evaluate.every", "2"], "plain": ["--evaluate.every", "None"]}
    for name, more in extra.items():
        done = paddock("train", *flags.split(), *more, "--run-dir", str(folder / name))
        assert done.returncode == 0, done.stderr
    return folder / "averaged", folder / "plain"


def test_evaluating_an_average_leaves_training_alone(commands: tuple[Path, Path]) -> None:
    averaged, plain = commands
    assert len(losses(averaged)) == 5 and losses(averaged) == pytest.approx(losses(plain), rel=1e-6)


def test_what_is_saved_is_what_was_evaluated(commands: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    averaged, plain = commands
    results = []
    for path in (averaged, plain):
        assert run(["evaluate", str(path), "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["val.samples"] == 9
    assert results[0]["val.loss"] == pytest.approx(losses(averaged, "val.loss")[-1], rel=1e-4)
    assert results[0]["val.loss"] != pytest.approx(results[1]["val.loss"], rel=1e-4)  # the average, not the last


def test_an_average_goes_on_with_its_run(commands: tuple[Path, Path], tmp_path: Path) -> None:
    averaged, _ = commands
    flags = ["--checkpoint.load", str(averaged), "--steps", "6", "--parallel.shard", "none", "--run-dir"]
    assert run(["train", str(averaged / "config.yaml"), *flags, str(tmp_path / "on")]) == 0
    anew = [*flags, str(tmp_path / "anew"), "--train.ema", "None"]
    assert run(["train", str(averaged / "config.yaml"), *anew]) == 0
    assert losses(tmp_path / "on") == pytest.approx(losses(tmp_path / "anew"), rel=1e-6)
    assert losses(tmp_path / "on", "val.loss") != pytest.approx(losses(tmp_path / "anew", "val.loss"), rel=1e-4)
