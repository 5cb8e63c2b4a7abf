"""The moving average of the weights, against the sum written out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize
from paddock.training.optimization.ema import ExponentialMovingAverage


def test_the_average_follows_the_weights() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    average = ExponentialMovingAverage([model], 0.5)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    for step in (1, 2, 30):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor += step
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))  # the first steps forget faster
        for name, value in expected.items():
            value.mul_(decay).add_(model.state_dict()[name], alpha=1 - decay)
    assert set(dict(average.named_tensors())) == {f"average.{name}" for name in expected}
    for name, value in expected.items():
        torch.testing.assert_close(dict(average.named_tensors())[f"average.{name}"], value)
    assert len(average.statistics) == 2


def test_it_is_in_use_for_a_while_only() -> None:
    model = nn.Linear(2, 2)
    average = ExponentialMovingAverage([model], 0.9)
    begun = model.weight.detach().clone()
    with torch.no_grad():
        model.weight += 1
    with average.in_use():
        assert torch.equal(model.weight, begun)
    assert torch.equal(model.weight, begun + 1)
    average.restart()
    assert torch.equal(dict(average.named_tensors())["average.weight"], begun + 1)


def test_a_weight_that_two_stages_hold_has_its_average_in_both(tmp_path: Path) -> None:
    """Folded schedules (zbv, dualpipev) have the first and the last stage in one process, and both have a copy of the
    tied embedding. A checkpoint has one of it."""
    saved, *stages = models = [GPT2(GPT2Config(hidden=8, layers=1, heads=2, vocab=11, context=8)) for _ in range(3)]
    for number, model in enumerate(models):
        initialize(model, number)
    average = ExponentialMovingAverage([saved], 0.5)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter += 1
    average.update(1)
    optimizer = torch.optim.AdamW(saved.parameters())
    write_checkpoint(tmp_path / "c", tensors_of([saved], optimizer) | dict(average.named_tensors()), {"step": 1})
    loaded = ExponentialMovingAverage(stages, 0.5)
    both = torch.optim.AdamW([parameter for stage in stages for parameter in stage.parameters()])
    assert load_models(tmp_path / "c", stages, both, loaded.named_tensors())
    with average.in_use(), loaded.in_use():
        for name, parameter in saved.named_parameters():
            for stage in stages:
                assert torch.equal(stage.get_parameter(name), parameter), name
