"""Several processes, each with a simulated device, over a collective library of the vendor's name: in every kind of
layout they train as one process does on the host; and a command's processes find the device by themselves.

FSDP, DTensor and pipelines see plain tensors of a device, and so do all that a vendor's would: data × tensor × pipeline
parallelism goes all the way, for GPT-2, T5 and BERT on eight devices (slow tests). ResNet has data parallelism only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from paddock.alignment.conformance import together
from paddock.alignment.conformance.checks import Check
from paddock.alignment.conformance.together import CHECKS
from paddock.alignment.trace import Trace, record_trace
from paddock.cli.main import run
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named, select
from paddock.errors import MachineError
from paddock.parallel import world as worlds
from paddock.parallel.preflight import examine
from paddock.parallel.world import World
from paddock.tasks.registry import build_task
from paddock.testing.commands import paddock
from paddock.testing.layouts import small_bert, small_recipe, small_t5, trace_recipe
from paddock.testing.pool import ProcessPool, WorkFailed, another_meeting_place
from paddock.testing.samples.images import encoded, picture
from paddock.testing.simulated import simulated_device, write_package
from paddock.testing.simulated.injection import Injection
from paddock.testing.tiny import TINY, losses

NAME = "npu"
STEPS: dict[str, Any] = {
    "train": {"steps": 2, "samples": None, "epochs": None},
    "batch": {"micro": 2, "global": 8},
    "evaluate": {"every": None},
}
IMAGES: dict[str, Any] = {
    "model": {"arch": "resnet18", "width": 8, "small_images": True, "classes": 5, "norm": "synchronised"},
    "data": {"source": "synthetic", "image_size": 32, "workers": 0},
}


def recipe_of(family: str, cache: str) -> Recipe:
    few: dict[str, Any] = {"layers": 2}
    match family:
        case "gpt2":
            recipe = small_recipe(model={"layers": 4})
        case "t5":
            recipe = small_t5("t5", model=few | {"decoder_layers": 2})
        case "resnet":
            recipe = recipe_from_dict(merge(load_recipe("resnet/18").to_dict(), IMAGES))
        case _:
            recipe = small_bert(family, cache, model=few)
    return recipe_from_dict(merge(recipe.to_dict(), STEPS))


def join(rank: int, size: int) -> World:
    """The processes of a pool as a job of the device: its library's group, and a control group on the host."""
    adapter = select(NAME)
    if dist.get_backend() != adapter.backend:
        dist.destroy_process_group()
        dist.init_process_group(
            adapter.backend, init_method=f"file://{another_meeting_place()}", rank=rank, world_size=size
        )
    control = dist.new_group(backend="gloo")
    assert isinstance(control, dist.ProcessGroup)
    worlds._host_group = control  # as `join_world` leaves it for whoever agrees on the host
    return World(rank, size, adapter, adapter.activate(rank), control)


def traces(rank: int, size: int, recipes: Sequence[dict[str, Any]]) -> tuple[list[Trace], set[str]]:
    """With the kinds of collectives that were used."""
    with simulated_device(NAME) as device:
        world = join(rank, size)
        device.collectives.clear()
        found = []
        for values in recipes:
            recipe = recipe_from_dict(values)
            found.append(record_trace(recipe, build_task(recipe), world))
        return found, set(device.collectives)


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, ProcessPool]]:
    """Pools of their own: a process that has had a simulated device is no other's any more."""
    made = {size: ProcessPool(size) for size in (2, 8)}
    yield made
    for pool in made.values():
        pool.close()


Verdicts = list[tuple[dict[str, str], set[str]]]


@pytest.fixture(scope="module")
def verdicts_of_two(pools: dict[int, ProcessPool]) -> Verdicts:
    """Of a good device's checks."""
    return pools[2].run(verdicts, 2, ())


def check(
    pools: dict[int, ProcessPool],
    size: int,
    recipe: Recipe,
    layouts: Sequence[str],
    verdicts_of_two: Verdicts,
    tolerance: float = 1e-5,
) -> None:
    """Layouts train as the host does, by collectives that `paddock check device` looks at, each by itself."""
    alone = recipe.to_dict()
    if recipe.model.family == "resnet":  # whose norm sees the samples that all replicas take at once
        alone["batch"]["micro"] *= size
    right = trace_recipe(alone)
    pool = pools[size]
    laid_out = [with_layout(recipe, layout).to_dict() for layout in layouts]
    _, looked_at = verdicts_of_two[0]
    for found, used in pool.run(traces, size, laid_out):
        for layout, trace in zip(layouts, found, strict=True):
            assert trace.losses == pytest.approx(right.losses, rel=tolerance), layout
            assert trace.norms == pytest.approx(right.norms, rel=tolerance), layout
        assert used and used <= looked_at, used - looked_at


GPT2 = ["dp2", "dp2,shard=optimizer", "dp2,shard=parameters", "tp2", "tp2,sequence=true", "pp2", "pp2,schedule=zbv"]


@pytest.mark.parametrize(
    ("family", "layouts"),
    [
        ("gpt2", GPT2),
        ("t5", ["dp2,shard=parameters", "tp2", "pp2"]),
        ("question_answering", ["dp2", "tp2", "pp2"]),
        ("resnet", ["dp2"]),
    ],
)
def test_two_devices_train_as_one_host(
    pools: dict[int, ProcessPool], family: str, layouts: list[str], tmp_path: Path, verdicts_of_two: Verdicts
) -> None:
    check(pools, 2, recipe_of(family, str(tmp_path)), layouts, verdicts_of_two)


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_two_devices_train_in_fewer_bits(
    pools: dict[int, ProcessPool], precision: str, tmp_path: Path, verdicts_of_two: Verdicts
) -> None:
    """Weights, gradients and outputs are sent in fewer bits, too."""
    values = merge(recipe_of("gpt2", str(tmp_path)).to_dict(), {"precision": {"compute": precision}})
    layouts = ["dp2,shard=parameters", "tp2,sequence=true"]
    check(pools, 2, recipe_from_dict(values), layouts, verdicts_of_two, tolerance=5e-2)


MIXED = ["dp2,tp2,pp2", "dp2,tp2,pp2,shard=parameters"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "layouts"),
    [
        ("gpt2", ["dp2,tp2,pp2,shard=parameters,sequence=true", "tp4,pp2", "dp2,pp4,schedule=interleaved"]),
        ("t5", ["tp2,pp4"]),
        ("question_answering", ["tp2,pp2,dp2,shard=optimizer"]),
    ],
)
def test_eight_devices_in_three_dimensions(
    pools: dict[int, ProcessPool], family: str, layouts: list[str], tmp_path: Path, verdicts_of_two: Verdicts
) -> None:
    more: dict[str, Any] = {"batch": {"micro": 2, "global": 16}}
    if family == "gpt2":
        more["model"] = {"layers": 8}
    values = merge(recipe_of(family, str(tmp_path)).to_dict(), more)
    check(pools, 8, recipe_from_dict(values), [*MIXED, *layouts], verdicts_of_two)


def moves(rank: int, size: int, broken: Sequence[str]) -> None:
    """Collectives move the device's tensors, and no others."""
    with simulated_device(NAME, broken_collectives=broken):
        world = join(rank, size)
        here = torch.full((4,), float(rank + 1), device=world.device)
        dist.all_reduce(here)
        assert here.tolist() == [3.0] * 4
        with pytest.raises(RuntimeError, match=f"moves tensors of {NAME}"):
            dist.all_reduce(torch.ones(4))
        assert dist.get_backend() == adapter_named(NAME).backend


def test_the_library_moves_its_own_tensors(pools: dict[int, ProcessPool]) -> None:
    pool = pools[2]
    pool.run(moves, 2, ())
    with pytest.raises(WorkFailed, match="AssertionError"):  # a broken one is wrong
        pool.run(moves, 2, ("allreduce",))


def verdicts(rank: int, size: int, broken: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Of all checks that `paddock check device` makes with two devices; and the kinds of collectives that it looks at
    by themselves, with no model."""
    with simulated_device(NAME, broken_collectives=broken) as device:
        world = join(rank, size)
        found, looked_at = {}, set[str]()
        for one in CHECKS:
            device.collectives.clear()
            row = Check(one.name, one.tier, partial(one.run, world, "gpt2")).row()
            found[row.name] = row.verdict if row.verdict == "pass" else row.detail
            if one.name.startswith("collective"):
                looked_at |= set(device.collectives)
            elif not broken:
                assert set(device.collectives) <= looked_at, one.name  # what layouts and checkpoints use was looked at
        return found, looked_at


def test_two_devices_pass_their_checks(pools: dict[int, ProcessPool], verdicts_of_two: Verdicts) -> None:
    for found, _ in verdicts_of_two:
        assert set(found.values()) == {"pass"} and len(found) == len(CHECKS), found
    broken = pools[2].run(verdicts, 2, ("_reduce_scatter_base",))
    for found, _ in broken:
        failed = {name for name, verdict in found.items() if verdict != "pass"}
        assert found["collective reduce_scatter_single"] == "1 of 500 numbers are wrong"
        assert failed >= {"layout data 2, shard parameters", "layout tensor 2, sequence", "tensors over both (DTensor)"}
        assert not failed & {"collective all_reduce", "collective all_gather", "layout data 2", "layout pipeline 2"}


def forgets_momentum(rank: int, size: int) -> str:
    """What the check of a checkpoint says, where one device reads the weights alone."""
    load = together.load_models
    with simulated_device(NAME), pytest.MonkeyPatch.context() as patch:

        def loading(path: Path, models: Any, optimizer: Any) -> bool:
            done = load(path, models, optimizer)
            for state in optimizer.state.values():
                state["exp_avg"].zero_()
            return done

        patch.setattr(together, "load_models", loading)
        [planned] = [one for one in CHECKS if one.name == "checkpoint of two"]
        return Check(planned.name, planned.tier, partial(planned.run, join(rank, size), "gpt2")).row().detail


def test_a_checkpoint_of_two_is_the_optimizers_too(pools: dict[int, ProcessPool]) -> None:
    for detail in pools[2].run(forgets_momentum, 2):
        assert detail.startswith("step 2 after it: loss "), detail


def test_a_command_and_its_processes_find_the_device(tmp_path: Path, trained_run: Path) -> None:
    write_package(tmp_path / "site", "sdaa", lacks=("aten.gelu", "aten.gelu_backward"))
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    there = tmp_path / "there"
    device = ["--device", "sdaa", "--run-dir"]
    done = paddock("train", *TINY, *device, str(there), "--nproc-per-node", "2", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert losses(there) == pytest.approx(losses(trained_run), rel=1e-5)
    ledger = {row[0]: int(row[1]) for row in map(str.split, done.stderr.splitlines()) if row[:1] and "aten." in row[0]}
    layers, passes, evaluated = 2, 4 * 6, 2 * 4 * 2  # micro-batches of both processes in training, and held-out ones
    assert ledger == {"aten.gelu": layers * (passes + evaluated), "aten.gelu_backward": layers * passes}
    stopped = paddock("train", *TINY, *device, str(tmp_path / "no"), "--device.fallback", "error", PYTHONPATH=path)
    assert stopped.returncode == 3 and "sdaa has no kernel for aten::gelu.out" in stopped.stderr, stopped.stderr


SMALL = ["--model.layers", "1", "--model.hidden", "32", "--model.heads", "4", "--model.feed-forward", "64"]
BEGUN: dict[str, list[str]] = {
    "t5": ["t5/tiny", *SMALL, "--model.head-size", "8", "--model.vocab", "512", "--batch.micro", "2"],
    "bert": ["bert/tiny", *SMALL, "--batch.micro", "2"],
    # Its norm sees the samples that all replicas take at once. Of so few, large steps would make much of rounding.
    "resnet": [
        *("resnet/tiny-synthetic", "--data.workers", "0", "--model.norm", "synchronised", "--batch.micro", "4"),
        *("--optimizer.lr", "1e-3"),
    ],
}
"""Runs that the host begins, beside the one of GPT-2 that all tests share."""
STEPS_BEGUN = ["--batch.global", "4", "--train.steps", "4", "--log.every", "1", "--evaluate.batches", "2"]
CONTEXT = ["--context", "The tower was built in Rome.", "--question", "Where was it built?"]


def begun(family: str, folder: Path, trained_run: Path) -> Path:
    """A run of the host's."""
    if family == "gpt2":
        return trained_run
    assert run(["train", *BEGUN[family], *STEPS_BEGUN, "--run-dir", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    ("family", "axis"),
    [
        ("gpt2", "tensor"),
        *(pytest.param(family, "data", marks=pytest.mark.slow) for family in ("gpt2", "t5", "bert", "resnet")),
    ],
)
def test_two_devices_do_what_one_host_does(
    family: str, axis: str, tmp_path: Path, trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that the host began is gone on with, saved, evaluated and used by two devices."""
    write_package(tmp_path / "site", NAME)
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    here, there, asked = tmp_path / "here", tmp_path / "there", tmp_path / "asked"
    origin = begun(family, tmp_path / "begun", trained_run)
    for copy in (here, there):
        shutil.copytree(origin, copy, symlinks=True)
    layout = ["--nproc-per-node", "2", f"--parallel.{axis}", "2"]
    if family == "resnet":
        layout += ["--batch.micro", "2"]

    def both(verb: str, *words: str, layout: Sequence[str] = layout) -> tuple[str, str]:
        """What the host says of its run, and what the devices say of theirs."""
        capsys.readouterr()
        assert run([verb, str(here), *words]) == 0
        done = paddock(verb, str(there), *words, "--device", NAME, *layout, PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
        return capsys.readouterr().out, done.stdout

    both("resume", "--train.steps", "9")
    assert losses(there) == pytest.approx(losses(here), rel=1e-5) and len(losses(there)) == 9
    right, found = (json.loads(told) for told in both("evaluate", "--json"))
    assert found["val.loss"] == pytest.approx(right["val.loss"], rel=1e-5)
    match family:
        case "gpt2" | "t5":
            asked.write_text("The class\nA name of\n")
            drawn = ["--temperature", "0"] if family == "gpt2" else ["--temperature", "2", "--seed", "1"]
            told = both("generate", "--prompt-file", str(asked), "--max-new-tokens", "5", *drawn)
        case "bert":
            told = both("predict", *CONTEXT, layout=())
        case _:
            asked.write_bytes(encoded(picture(1)))
            told = both("predict", str(asked), "--top-k", "3", layout=())
    assert told[0] == told[1] and told[0].strip()


def examined(rank: int, size: int, wrong: dict[int, float], broken: Sequence[str]) -> str:
    """What a preflight says, where the products of some ranks' devices are off."""
    injections = [Injection("aten.mm", size=wrong[rank])] if rank in wrong else []
    with simulated_device(NAME, injections=injections, broken_collectives=broken):
        world = join(rank, size)
        try:
            return str(examine(world))
        except MachineError as error:
            return str(error)


def test_a_preflight_names_the_device_that_is_wrong(pools: dict[int, ProcessPool]) -> None:
    pool = pools[2]
    for found in pool.run(examined, 2, {}, ()):
        assert found.startswith("2 processes on 1 machine compute as they should")
    for found in pool.run(examined, 2, {1: float("nan")}, ()):
        assert found.startswith(f"a device multiplies wrongly: rank 1 ({NAME}:")
        assert "65536 of 65536 numbers are not finite" in found and "rank 0" not in found
    for found in pool.run(examined, 2, {0: 1e-4}, ()):
        assert "multiplies wrongly: rank 0" in found and "numbers are wrong, such as" in found
    for found in pool.run(examined, 2, {}, ("allreduce",)):
        assert found.startswith("sums over") and "numbers are wrong" in found
