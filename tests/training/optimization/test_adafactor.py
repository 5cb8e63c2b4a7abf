"""Adafactor computes what torch's does, keeps as much as is said, and is chosen by name or by preset."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paddock.cli.arguments import parse_recipe_command
from paddock.cli.train import TrainOptions
from paddock.config.recipe import Recipe
from paddock.config.rules import check_recipe
from paddock.errors import ConfigError
from paddock.planning.footprint import footprint
from paddock.testing.host_reads import HostReads, accelerated
from paddock.testing.layouts import small_t5, this_world
from paddock.training.config import OptimizerConfig, ScheduleConfig
from paddock.training.optimization.adafactor import Adafactor
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.run import engine_for


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    """Matrices, a vector, a convolution, a weight with more rows than are summed at once, and one that starts at 0."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(7, 5), (6,), (4, 3, 3, 3), (5000, 2), (1, 1)]
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) * 0.3 for shape in shapes]
    return [nn.Parameter(tensor) for tensor in (*drawn, torch.zeros(3, dtype=dtype))]


def set_gradients(parameters: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in parameters:
        size = 10.0 ** torch.randint(-3, 2, (), generator=generator).item()
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * size


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("threshold", [1.0, 3.0])
def test_it_is_torchs(dtype: torch.dtype, tolerance: float, decay: float, threshold: float) -> None:
    ours, theirs = weights(dtype), weights(dtype)
    settings = {"lr": 0.4, "beta2_decay": -0.7, "eps": (None, 1e-2), "d": threshold, "weight_decay": decay}
    mine, other = Adafactor(ours, **settings), torch.optim.Adafactor(theirs, **settings)  # type: ignore[arg-type]
    for step in range(8):
        for parameters, optimizer in ((ours, mine), (theirs, other)):
            set_gradients(parameters, step)
            optimizer.step()
    for weight, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(weight, expected, rtol=tolerance, atol=tolerance)
        assert mine.state[weight].keys() == other.state[expected].keys()
        for kind, value in other.state[expected].items():
            torch.testing.assert_close(mine.state[weight][kind], value, rtol=tolerance, atol=tolerance)


def test_what_has_no_gradient_stays() -> None:
    parameters = weights(torch.float32)
    set_gradients(parameters, 0)
    parameters[0].grad = None
    before = parameters[0].detach().clone()
    optimizer = Adafactor(parameters)
    optimizer.step()
    assert torch.equal(parameters[0], before) and parameters[0] not in optimizer.state


def test_nothing_is_read_back_from_the_device() -> None:
    parameters = weights(torch.float32)
    set_gradients(parameters, 0)
    optimizer = Adafactor(parameters, weight_decay=0.1)
    with accelerated(), HostReads() as reads:
        optimizer.step()
    assert dict(reads.by_name) == {"__float__": len(parameters)}  # the steps, which the host counts


def test_the_dry_run_knows_its_memory() -> None:
    recipe = small_t5("t5", optimizer={"name": "adafactor"})
    world = this_world()
    engine = engine_for(recipe, check_recipe(recipe, 1), world)
    optimizer = build_optimizer(engine.trained, recipe.optimizer)
    assert isinstance(optimizer, Adafactor)
    for parameter in engine.trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    held = sum(value.numel() for state in optimizer.state.values() for kind, value in state.items() if kind != "step")
    told = footprint(recipe, check_recipe(recipe, 1), engine)
    assert told.optimizer == 4 * held < 0.2 * told.weights


def parsed(*arguments: str) -> Recipe:
    return parse_recipe_command(TrainOptions, "train", list(arguments)).recipe


@pytest.mark.parametrize("recipe", ["t5/small", "mt5/base", "gpt2/345m", "resnet/50"])
def test_presets(recipe: str) -> None:
    pretraining = parsed(recipe, "--optimizer-preset", "t5-pretraining")
    optimizer, schedule = pretraining.optimizer, pretraining.schedule
    assert (optimizer.name, optimizer.lr, optimizer.weight_decay, optimizer.clip) == ("adafactor", 0.01, 0, None)
    assert (schedule.name, schedule.hold, schedule.warmup) == ("inverse_sqrt", 10000, 0)
    finetuning = parsed(recipe, "--optimizer-preset", "t5-finetuning", "--optimizer.lr", "0.002")
    assert (finetuning.optimizer.name, finetuning.optimizer.lr) == ("adafactor", 0.002)
    assert (finetuning.schedule.name, finetuning.schedule.warmup) == ("constant", 0)
    with pytest.raises(ConfigError, match="did you mean"):
        parsed(recipe, "--optimizer-preset", "t5-pretrain")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "adafactor", "betas": (0.9, 0.95)}, r"optimizer\.betas(.|\n)*adafactor would ignore it"),
        ({"name": "adafactor", "eps": 1e-6}, r"optimizer\.eps"),
        ({"name": "adafactor", "momentum": 0.5}, r"optimizer\.momentum"),
        ({"name": "adamw", "clip_threshold": 2.0}, r"optimizer\.clip_threshold(.|\n)*adamw would ignore it"),
        ({"name": "sgd", "beta2_decay": -0.5}, r"optimizer\.beta2_decay"),
        ({"name": "adafactor", "beta2_decay": 0.8}, r"beta2_decay"),
    ],
)
def test_a_setting_of_another_optimizer(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OptimizerConfig(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "inverse_sqrt"}, "no step to begin at"),
        ({"name": "inverse_sqrt", "hold": 5, "decay_steps": 10}, "has no end"),
        ({"name": "inverse_sqrt", "hold": 5, "warmup": 10}, "longer"),
        ({"name": "linear", "hold": 5}, "would ignore it"),
    ],
)
def test_a_schedule_that_cannot_be(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScheduleConfig(**values)  # type: ignore[arg-type]
