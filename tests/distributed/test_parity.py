"""Every layout computes what one process does, and what it did when the golden files were written."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from paddock import devices
from paddock.alignment import parity
from paddock.alignment.divergence import TOLERANCE, compare
from paddock.alignment.trace import Trace
from paddock.cli.main import run
from paddock.config.layouts import legal_layouts, with_layout
from paddock.config.load import load_recipe, save_recipe
from paddock.config.rules import check_layout
from paddock.models.registry import parameter_names
from paddock.parallel.engine import Engine
from paddock.testing.commands import paddock
from paddock.testing.layouts import small_recipe, trace_all, trace_recipe
from paddock.testing.pool import ProcessPool, WorkFailed

PoolOf = Callable[[int], ProcessPool]
GOLDEN = Path(__file__).parent / "golden" / "gpt2.txt"
FEW_STEPS = 3
OFTEN = {2: 12, 4: 8}
"""How many of the legal layouts of a number of processes `make test` tries."""


def golden(steps: int) -> tuple[list[float], list[float]]:
    """Losses and gradient norms as they once were."""
    rows = [list(map(float, line.split())) for line in GOLDEN.read_text().splitlines()]
    return [row[1] for row in rows[:steps]], [row[2] for row in rows[:steps]]


@pytest.fixture(scope="module")
def alone(pool_of: PoolOf) -> Trace:
    """Twenty steps of one process."""
    ((trace,),) = pool_of(1).run(trace_all, [small_recipe().to_dict()])
    assert isinstance(trace, Trace)
    return trace


def disagreements(pool: ProcessPool, names: list[str], steps: int, alone: Trace) -> list[str]:
    """What is wrong with these layouts, in words."""
    recipe = small_recipe(train={"steps": steps})
    expected = {name: values[:steps] for name, values in asdict(alone).items()}
    losses, norms = golden(steps)
    found = []
    for name in names:
        try:
            first, *others = pool.run(trace_all, [with_layout(recipe, name).to_dict()])
        except WorkFailed as error:
            found.append(f"{name}: {error}")
            continue
        if any(other != first for other in others):
            found.append(f"{name}: its processes disagree with one another")
        (trace,) = first
        difference = compare(name, asdict(trace), expected, parameter_names(recipe.model))
        if not difference.agrees:
            found.append(f"{name}: {difference.explain()}")
        if trace.losses != pytest.approx(losses, rel=TOLERANCE) or trace.norms != pytest.approx(norms, rel=TOLERANCE):
            found.append(f"{name} differs from {GOLDEN.name}: {trace.losses} {trace.norms}")
    return found


def test_one_process_computes_what_it_always_did(alone: Trace) -> None:
    losses, norms = golden(20)
    assert alone.losses == pytest.approx(losses, rel=TOLERANCE)
    assert alone.norms == pytest.approx(norms, rel=TOLERANCE)
    assert [math.hypot(*tensors) for tensors in alone.tensors] == pytest.approx(norms, rel=TOLERANCE)


@pytest.mark.parametrize("processes", sorted(OFTEN))
def test_some_layouts_agree(pool_of: PoolOf, alone: Trace, processes: int) -> None:
    names = legal_layouts(small_recipe(), processes)
    chosen = random.Random(4).sample(names, min(OFTEN[processes], len(names)))
    assert disagreements(pool_of(processes), chosen, FEW_STEPS, alone) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("processes", "steps"), [(2, 20), (4, 20), (8, 5)])
def test_all_layouts_agree(pool_of: PoolOf, alone: Trace, processes: int, steps: int) -> None:
    names = legal_layouts(small_recipe(), processes)
    assert len(names) > processes
    assert disagreements(pool_of(processes), names, steps, alone) == []


@pytest.mark.parametrize("mode", ["selective", "full"])
@pytest.mark.parametrize("layout", ["dp2,shard=parameters", "tp2,sequence=true", "pp2,schedule=interleaved"])
def test_recomputing_changes_nothing(pool_of: PoolOf, alone: Trace, layout: str, mode: str) -> None:
    assert disagreements(pool_of(2), [f"{layout},recompute={mode}"], 2, alone) == []


def test_documents_that_see_only_themselves(pool_of: PoolOf) -> None:
    """Positions and segments reach every stage and every shard."""
    data = {"reset_position_ids": True, "reset_attention_mask": True}
    recipe = small_recipe(data=data, train={"steps": 2})
    ((alone,),) = pool_of(1).run(trace_all, [recipe.to_dict()])
    layouts = [with_layout(recipe, name).to_dict() for name in ("tp2,pp2", "dp2,tp2,sequence=true", "dp2,pp2")]
    for trace in pool_of(4).run(trace_all, layouts)[0]:
        assert trace.losses == pytest.approx(alone.losses, rel=TOLERANCE)
        assert trace.norms == pytest.approx(alone.norms, rel=TOLERANCE)


def test_layouts_agree_whichever_library_multiplies(pool_of: PoolOf) -> None:
    """Products large enough to be chosen for, in one process, in parts of layers, and in split backward passes."""
    model, data = {"hidden": 128, "layers": 4, "context": 128}, {"sequence_length": 128}
    sections: dict[str, Any] = {"model": model, "data": data, "train": {"steps": 2}, "batch": {"micro": 2, "global": 8}}
    ways = [small_recipe(**sections, device={"products": way}) for way in ("mkl", "onednn")]
    (alone, other), *_ = pool_of(1).run(trace_all, [recipe.to_dict() for recipe in ways])
    assert other.losses == pytest.approx(alone.losses, rel=TOLERANCE)
    layouts = ("tp2", "tp2,sequence=true", "dp2,shard=parameters", "pp2,schedule=zbv")
    for trace in pool_of(2).run(trace_all, [with_layout(ways[1], name).to_dict() for name in layouts])[0]:
        assert trace.losses == pytest.approx(other.losses, rel=TOLERANCE)
        assert trace.norms == pytest.approx(other.norms, rel=TOLERANCE)


def test_a_list_of_uneven_stages(pool_of: PoolOf) -> None:
    recipe = with_layout(small_recipe(train={"steps": 2}), "pp2")
    values = recipe.to_dict()
    values["parallel"]["stages"] = [0, 0, 0, 0, 0, 0, 1, 1]
    (trace,) = pool_of(2).run(trace_all, [values])[0]
    losses, norms = golden(2)
    assert trace.losses == pytest.approx(losses, rel=TOLERANCE)
    assert trace.norms == pytest.approx(norms, rel=TOLERANCE)


BROKEN = "layers.3.feed_forward.input.weight"


def trace_with_a_bug(rank: int, values: dict[str, object]) -> Trace:
    """A layout in which one process gets one gradient wrong by a thousandth: too little to show in the whole norm."""

    def break_it(engine: Engine) -> None:
        parameters = dict(pair for model in engine.models for pair in model.named_parameters())
        if dist.get_rank() == 1:
            parameters[BROKEN].register_hook(lambda gradient: gradient * 1.001)

    return trace_recipe(values, break_it)


def test_a_wrong_gradient_is_found_and_named(pool_of: PoolOf, alone: Trace) -> None:
    recipe = small_recipe(train={"steps": 2})
    broken = pool_of(2).run(trace_with_a_bug, with_layout(recipe, "tp2").to_dict())[0]
    expected = {name: values[:2] for name, values in asdict(alone).items()}
    difference = compare("tp2", asdict(broken), expected, parameter_names(recipe.model))
    assert not difference.agrees
    assert (difference.first_step, difference.tensor) == (1, BROKEN)
    assert BROKEN in difference.explain()


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    save_recipe(small_recipe(model={"dropout": 0.1}), tmp_path / "small.yaml")
    return tmp_path / "small.yaml"


def test_the_command(recipe_file: Path) -> None:
    flags = ["--layouts", "dp2,shard=optimizer", "tp2", "pp2,schedule=zbv", "--steps", "2", "--json"]
    result = paddock("check", "parity", str(recipe_file), *flags, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["agrees"] and answer["steps"] == 2
    assert [layout["layout"] for layout in answer["layouts"]] == ["dp2,shard=optimizer", "tp2", "pp2,schedule=zbv"]
    assert answer["alone"]["loss"] == pytest.approx(golden(2)[0], rel=TOLERANCE)
    assert all(layout["loss"] <= TOLERANCE and layout["norm"] <= TOLERANCE for layout in answer["layouts"])
    assert all(
        layout["losses"] == pytest.approx(answer["alone"]["loss"], rel=TOLERANCE) for layout in answer["layouts"]
    )
    assert "dropout off" in result.stderr and "2 processes, 3/3: pp2,schedule=zbv" in result.stderr


@pytest.mark.parametrize("name", ["t5/tiny", pytest.param("mt5/tiny", marks=pytest.mark.slow)])
def test_the_command_for_a_recipe_of_two_stacks_as_it_ships(name: str) -> None:
    """Of which a step has several micro-batches, in two replicas and in a pipeline, too."""
    layouts = ["dp2", "tp2", "pp2"]
    result = paddock("check", "parity", name, "--layouts", *layouts, "--steps", "2", "--double", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["agrees"] and [one["layout"] for one in answer["layouts"]] == layouts
    shipped = {layout: with_layout(load_recipe(name), layout) for layout in layouts}
    assert all(check_layout(recipe, 2).batch.accumulation > 1 for recipe in shipped.values())


def test_the_command_in_double_precision(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounding is then a billion times smaller: what is left is what layouts really differ by, which is nothing."""
    flags = ["--layouts", "dp2,shard=parameters", "tp2,sequence=true", "pp2", "--steps", "2", "--double", "--json"]
    assert run(["check", "parity", str(recipe_file), *flags]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["changed"]["precision"] == "float64" and torch.get_default_dtype() == torch.float32
    assert all(layout["loss"] < 1e-14 and layout["tensors"] < 1e-12 for layout in answer["layouts"])
    assert answer["alone"]["loss"] == pytest.approx(golden(2)[0], rel=TOLERANCE)


def test_a_layout_that_differs_fails_the_command(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = parameter_names(small_recipe().model)
    alone = asdict(Trace([4.0, 3.0], [2.0, 1.0], [[1.0] * len(names)] * 2))
    off = asdict(Trace([4.0, 3.0000011], [2.0, 1.1], [[1.0] * len(names), [1.0] * 5 + [1.2] * (len(names) - 5)]))
    monkeypatch.setattr(parity, "run_layouts", lambda layouts, double: {parity.ALONE: alone, "dp2": alone, "tp2": off})
    assert run(["check", "parity", str(recipe_file), "--layouts", "dp2", "tp2", "--steps", "2"]) == 7
    output, errors = capsys.readouterr()
    table = [re.split("  +", line) for line in output.splitlines()[:4]]
    assert table == [
        ["layout", "loss at step 2", "Δ loss", "Δ grad norm", "Δ by tensor", "verdict"],
        ["one process", "3.0000000", "–", "–", "–", "reference"],
        ["dp2", "3.0000000", "0.0e+00", "0.0e+00", "0.0e+00", "agrees"],
        ["tp2", "3.0000011", "3.7e-07", "1.0e-01", "2.0e-01", "DIFFERS"],
    ]
    assert "step 2 is the first that differs: loss 3.0000011 against 3, gradient norm 1.1 against 1" in output
    assert f"the first gradient that differs is {names[5]}: norm 1.2 against 1" in output
    assert "1 of 2 layouts differ from one process: tp2" in errors


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--layouts", "tp3"], "8 heads do not divide by 3"),
        (["--layouts", "dp2", "dp3"], "batch.global = 16"),
        (["--layouts", "dp2,pp2,schedule=zbv,shard=parameters"], "parallel.shard = parameters"),
        (["--layouts", "dp2,tq2"], '"tq2" is neither'),
        ([], "no layout is named"),
        (["--layouts", "all"], "one process has no other layout"),
        (["--layouts", "dp2", "--nproc-per-node", "4"], "--nproc-per-node = 4"),
        (["--layouts", "dp2", "--checkpoint.load", "somewhere"], "checkpoint.load = somewhere"),
    ],
)
def test_bad_layouts_start_nothing(
    recipe_file: Path,
    flags: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(layouts: object) -> None:
        raise AssertionError("it started processes")

    monkeypatch.setattr(parity, "run_layouts", started)
    assert run(["check", "parity", str(recipe_file), *flags]) == 2
    assert complaint in capsys.readouterr().err


def test_a_device_without_double_precision_says_so(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "select", lambda name: devices.adapter_named("sdaa"))
    assert run(["check", "parity", str(recipe_file), "--layouts", "dp2", "--double"]) == 2
    assert "sdaa has no float64" in capsys.readouterr().err
