"""The moving average of the weights, against the sum written out."""

from __future__ import annotations

import torch
from torch import nn

from paddock.training.average import WeightAverage


def test_the_average_follows_the_weights() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    average = WeightAverage([model], 0.5)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    for step in (1, 2, 30):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor += step
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))  # the first steps forget faster
        for name, value in expected.items():
            value.mul_(decay).add_(model.state_dict()[name], alpha=1 - decay)
    assert set(average.tensors()) == {f"average.{name}" for name in expected}
    for name, value in expected.items():
        torch.testing.assert_close(average.tensors()[f"average.{name}"], value)
    assert len(average.statistics) == 2


def test_it_is_in_use_for_a_while_only() -> None:
    model = nn.Linear(2, 2)
    average = WeightAverage([model], 0.9)
    begun = model.weight.detach().clone()
    with torch.no_grad():
        model.weight += 1
    with average.in_use():
        assert torch.equal(model.weight, begun)
    assert torch.equal(model.weight, begun + 1)
    average.restart()
    assert torch.equal(average.tensors()["average.weight"], begun + 1)
