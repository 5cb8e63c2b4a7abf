"""Models built for processes that do not exist: their shares add up, and their traffic is what torch would send."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paddock.cli.main import run
from paddock.config.layouts import with_layout, world_of_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_layout
from paddock.models.build import build_engine, initialize_engine
from paddock.models.registry import build_model, example_batch
from paddock.parallel.mesh import build_mesh
from paddock.planning.dry_run import build_one, fake_world
from paddock.planning.footprint import Footprint, footprint
from paddock.testing.layouts import small_bert, small_t5

SMALL = {
    "model": {"layers": 4, "hidden": 32, "heads": 4, "vocab": 101, "context": 64},
    "data": {"sequence_length": 64},
    "batch": {"micro": 2, "global": 8},
}


def small(layout: str, **sections: dict[str, Any]) -> Recipe:
    return with_layout(recipe_from_dict(merge(merge(load_recipe("gpt2/tiny").to_dict(), SMALL), sections)), layout)


def everyone(recipe: Recipe) -> list[Footprint]:
    world = world_of_layout(recipe).world
    arithmetic = check_layout(recipe, world)
    return [build_one(recipe, arithmetic, rank) for rank in range(world)]


@pytest.mark.parametrize(
    ("arguments", "layout", "micro_batches"),
    [
        ("gpt2/pretrain-1n8d --world 8", (2, 4, 1), 1),
        ("gpt2/pretrain-4n8d --world 32 --rank 31", (2, 4, 4), 32),
        ("gpt2/13b --world 32 --rank 9", (4, 2, 4), 24),
        ("gpt2/52b --world 128", (8, 1, 16), 64),
        ("gpt2/345m --world 1 --batch.micro 8", (1, 1, 1), 1),
    ],
)
def test_published_layouts_build(
    arguments: str, layout: tuple[int, int, int], micro_batches: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *arguments.split(), "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert tuple(report["layout"].values()) == layout
    assert report["batch"]["accumulation"] == micro_batches
    processes = report["processes"]
    assert len(processes) == layout[2] and report["rank"] in processes
    # Every layer is in one place, in order; each place holds about its share of the model.
    spans = [span for process in processes for span in process["layers"]]
    assert spans[0][0] == 0 and all(after[0] == before[1] + 1 for before, after in zip(spans, spans[1:], strict=False))
    share = report["parameters"] / (layout[1] * layout[2] * (layout[0] if "b --world" in arguments else 1))
    assert sum(process["work"] for process in processes) == pytest.approx(1.0)
    assert all(0.8 * share < process["parameters"] < 1.6 * share for process in processes)


def test_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train gpt2/13b --dry-run --world 32 --rank 9".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gpt2/13b: 12.8B parameters over 32 processes"
    assert "data 4 × tensor 2 × pipeline 4, shard optimizer, recompute full" in lines[1]
    assert "1f1b: a process waits 11% of a step" in lines[3]  # 3 / (24 + 3)
    assert lines[4] == "balance   25%, 25%, 25%, 26% of the work; the busiest 1.06 × the mean"
    assert any(line.startswith("pipeline 1  8 9") and "10–19" in line for line in lines)
    assert "rank 9 has stage 1: 393,337,600 parameters" in lines


def test_an_encoder_and_a_decoder_share_the_stages_by_their_work(capsys: pytest.CaptureFixture[str]) -> None:
    """LiBai's mT5 over 8 processes: a decoder layer, which sees fewer tokens, is a third of an encoder layer's work."""
    flags = "--parallel.pipeline 8 --data.path x --tokenizer.vocab x --json"
    assert run(f"train mt5/base-chinese --dry-run --world 8 {flags}".split()) == 0
    report = json.loads(capsys.readouterr().out)
    work = [process["work"] for process in report["processes"]]
    layers = [last - first + 1 for process in report["processes"] for first, last in process["layers"]]
    assert sum(layers) == 24 and layers[0] < layers[-1]
    assert max(work) < 1.25 / 8 and report["bubble"] == pytest.approx(7 / 23)


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "choosing-a-layout.md"
    command, shown = re.findall(r"^```\w*\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert run(command.split()[1:]) == 0
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--dry-run --world 32 --rank 32", "--rank = 32"),
        ("--dry-run --world 30", "30 processes do not divide by 8"),
        ("--dry-run --world 0", "--world = 0"),
        ("--dry-run --world 48 --parallel.tensor 3", "legal: 1, 2, 4, 5, 8, 10, 20, 40"),
        ("--world 32", "--world is for dry runs"),
        ("--dry-run --rank 1", "--rank is for dry runs with --world"),
    ],
)
def test_what_cannot_be(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "gpt2/13b", *flags.split()]) == 2
    assert message in capsys.readouterr().err


def test_shards_add_up_to_the_model() -> None:
    for layout in ("dp4,shard=parameters", "dp4,shard=optimizer"):
        recipe = small(layout, batch={"micro": 2})
        assert sum(share.parameters for share in everyone(recipe)) == recipe.model.num_parameters()
    whole = everyone(small("dp2"))
    assert all(share.parameters == small("dp2").model.num_parameters() for share in whole)


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved", "zbv"])
def test_stages_add_up_to_the_model_and_a_second_embedding(schedule: str) -> None:
    recipe = small(f"pp2,schedule={schedule}")
    shares = everyone(recipe)
    assert sum(share.parameters for share in shares) == recipe.model.num_parameters() + 101 * 32
    assert sorted(stage for share in shares for stage in share.stages) == list(range(2 if schedule == "gpipe" else 4))


def test_memory_by_shard_mode() -> None:
    parameters = small("dp2").model.num_parameters()
    by_mode = {mode: everyone(small(f"dp4,shard={mode}"))[0] for mode in ("none", "optimizer", "parameters")}
    assert by_mode["none"].memory == 16 * parameters
    for mode in ("optimizer", "parameters"):
        assert by_mode[mode].optimizer == pytest.approx(8 * parameters / 4, rel=0.01)
    assert by_mode["parameters"].weights < by_mode["optimizer"].weights
    assert by_mode["optimizer"].memory < by_mode["none"].memory
    assert everyone(small("dp2", optimizer={"name": "sgd"}))[0].optimizer == 4 * parameters


@pytest.mark.parametrize(("name", "micro"), [("gpt2/tiny", 4), ("gpt2/tiny", 1), ("bert/tiny", 2), ("t5/tiny", 4)])
def test_activations_are_what_autograd_keeps(name: str, micro: int) -> None:
    batch = {"batch": {"micro": micro, "global": micro}, "parallel": {"data": 1}}
    recipe = recipe_from_dict(merge(load_recipe(name).to_dict(), batch))
    recipe = recipe.model_copy(update={"model": recipe.model.without_dropout()})
    (told,) = everyone(recipe)
    model = build_model(recipe.model)
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in weights and tensor.is_floating_point():
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model.train()(**example_batch(recipe.model, micro, recipe.data.sample_shape(), seed=0))
    assert told.activations == pytest.approx(sum(one.untyped_storage().nbytes() for one in kept.values()), rel=0.15)
    del loss


@pytest.mark.parametrize("layout", ["tp2", "pp2", "dp2,recompute=full"])
def test_activations_are_left_open_where_they_are_not_known(layout: str) -> None:
    assert {one.activations for one in everyone(small(layout))} == {None}
    assert everyone(small("dp2", precision={"compute": "bfloat16"}))[0].activations is None


class Traffic(TorchDispatchMode):
    """Counts what a process sends, as rings of `processes` do: a gather (k − 1) / k of the whole, a sum twice that."""

    def __init__(self, processes: int) -> None:
        super().__init__()
        self.share = (processes - 1) / processes
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if "c10d" in name and "wait" not in name and "wrap" not in name:
            tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)]
            size = max(tensor.numel() * tensor.element_size() for tensor in tensors)
            self.sent["all"] += int(size * self.share * (2 if "reduce" in name and "scatter" not in name else 1))
        return result


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "layout",
    [
        *("tp2", "tp4", "tp2,sequence=true", "tp4,sequence=true", "tp2,recompute=full", "tp2,recompute=selective"),
        *("tp2,sequence=true,recompute=full", "dp2", "dp4", "dp2,shard=optimizer", "dp4,shard=parameters"),
        *("dp4,shard=optimizer,accumulation=1", "dp2,shard=parameters,accumulation=1"),
    ],
)
def test_traffic_is_what_torch_sends(layout: str, compute: str) -> None:
    check_traffic(small(layout, precision={"compute": compute}, model={"dropout": 0.0}))


@pytest.mark.parametrize(
    ("task", "compute", "layout"),
    [
        ("masked_language_modeling", "float32", "tp4"),
        ("masked_language_modeling", "bfloat16", "tp2,sequence=true,recompute=full"),
        ("question_answering", "bfloat16", "tp2,recompute=full"),
        ("question_answering", "float32", "tp4,sequence=true"),
        ("sequence_classification", "float32", "tp2"),
    ],
)
def test_traffic_of_bert(task: str, compute: str, layout: str) -> None:
    shape = {"layers": 2, "context": 160}  # of 160 positions the head is asked about 15 % to the last one
    recipe = small_bert(task, "", model=shape, data={"sequence_length": 160}, precision={"compute": compute})
    check_traffic(with_layout(recipe, layout))


@pytest.mark.parametrize("kind", ["t5", "mt5"])
@pytest.mark.parametrize(
    ("compute", "layout"),
    [
        ("float32", "tp2"),
        ("float32", "tp2,sequence=true"),
        ("float32", "tp4,sequence=true,recompute=full"),
        ("bfloat16", "tp4,recompute=full"),
        ("bfloat16", "tp2,sequence=true,recompute=selective"),
        ("float32", "dp2,shard=parameters"),
    ],
)
def test_traffic_of_t5(kind: str, compute: str, layout: str) -> None:
    check_traffic(with_layout(small_t5(kind, precision={"compute": compute}), layout))


def check_traffic(recipe: Recipe) -> None:
    world, shape = world_of_layout(recipe).world, recipe.data.sample_shape()
    autocast = None if recipe.precision.compute == "float32" else torch.autocast("cpu", torch.bfloat16)
    arithmetic = check_layout(recipe, world)
    batch = arithmetic.batch
    with fake_world(0, world):
        engine = build_engine(
            recipe.model,
            recipe.parallel,
            build_mesh(arithmetic.layout, 0, "cpu"),
            torch.device("cpu"),
            micro=batch.micro,
            shape=shape,
            micro_batches=batch.accumulation,
            compute=getattr(torch, recipe.precision.compute),
            autocast=autocast,
        )
        initialize_engine(engine, 1)
        example = example_batch(recipe.model, batch.micro, shape, seed=1)
        with Traffic(world) as traffic:
            engine.forward_backward([example] * batch.accumulation, 1.0)
        expected = footprint(recipe, arithmetic, engine).traffic
    assert expected == pytest.approx(traffic.sent["all"], rel=0.03)  # gradients of norms and the like are left out


def test_traffic_of_a_pipeline() -> None:
    first, last = everyone(small("pp2,schedule=gpipe"))
    boundary = 2 * 64 * 32 * 4
    tied = 101 * 32 * 4
    assert first.sends == last.sends == {"tensor": 0, "pipeline": 4 * boundary + tied, "data": 0}
    folded = everyone(small("pp2,schedule=zbv"))
    assert [share.sends["pipeline"] for share in folded] == [8 * boundary, 8 * boundary]
    for shard, gathers in (("optimizer", 1), ("parameters", 5)):  # as counted in runs of four processes
        share = everyone(small(f"dp2,pp2,shard={shard},accumulation=4"))[0]
        assert share.sends["data"] == pytest.approx((1 + gathers) * 4 * 2 * share.parameters / 2, rel=0.01)
    halved = everyone(small("tp2,pp2,sequence=true"))[0]
    assert halved.sends["pipeline"] == 4 * boundary // 2 + 51 * 32 * 4
