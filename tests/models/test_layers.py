"""Dropout by hashing, attention in blocks, and the activation: the same as the textbook's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from paddock.models.gpt2.model import gelu_tanh
from paddock.models.layers import attention
from paddock.models.layers.attention import causal_attention
from paddock.models.layers.dropout import dropout


def masks(count: int, size: int, rate: float) -> torch.Tensor:
    """Whether each element was dropped, in `count` draws."""
    torch.manual_seed(0)
    return torch.stack([dropout(torch.ones(size), rate, True) == 0 for _ in range(count)]).float()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_the_rate(rate: float) -> None:
    torch.manual_seed(1)
    dropped = dropout(torch.full((1_000_000,), 2.0), rate, True)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 1e6) ** 0.5)
    kept = dropped[dropped != 0]
    assert torch.allclose(kept, torch.tensor(2.0 / (1 - rate)))


def test_masks_are_independent_of_each_other_and_of_the_position() -> None:
    drawn, size = masks(40, 100_000, 0.1), 100_000
    noise = 5 / size**0.5
    between = torch.corrcoef(drawn) - torch.eye(40)
    assert float(between.abs().max()) < noise
    centred = (drawn - 0.1) / 0.3
    for lag in (1, 2, 3, 8, 64, 768, 1024):
        assert float((centred[:, :-lag] * centred[:, lag:]).mean(1).abs().max()) < noise
    frequency = drawn.mean(0)  # every position is dropped as often as any other
    assert float(frequency.std()) == pytest.approx((0.09 / 40) ** 0.5, rel=0.02)


def test_dropout_follows_the_generator_and_leaves_evaluation_alone() -> None:
    x = torch.randn(3, 5)
    torch.manual_seed(7)
    first = dropout(x, 0.5, True)
    torch.manual_seed(7)
    assert torch.equal(first, dropout(x, 0.5, True))
    assert not torch.equal(first, dropout(x, 0.5, True))
    assert dropout(x, 0.5, False) is x and dropout(x, 0.0, True) is x


@pytest.mark.parametrize("time", [1, 5, 64, 65, 200, 300])
def test_attention_in_blocks_is_attention(time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a dropout that drops nothing, the written-out path must give what the fused kernel gives."""
    monkeypatch.setattr(attention, "dropout", lambda x, rate, training: x)
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, time, 8, requires_grad=True) for _ in range(3))
    ours = causal_attention(query, key, value, 0.5, True)
    fused = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.allclose(ours, fused, atol=1e-5)
    direction = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), (query, key, value)),
        torch.autograd.grad((fused * direction).sum(), (query, key, value)),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-4)


def test_attention_dropout_drops_weights() -> None:
    torch.manual_seed(0)
    query, key = torch.zeros(1, 1, 100, 4), torch.zeros(1, 1, 100, 4)
    value = torch.eye(100).view(1, 1, 100, 100)  # the output is the weights themselves
    weights = causal_attention(query, key, value, 0.25, True)[0, 0]
    below = weights[torch.ones(100, 100, dtype=torch.bool).tril()]
    assert float((below == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert float(weights.triu(1).abs().max()) == 0.0
    assert torch.allclose(causal_attention(query, key, value, 0.25, False).sum(-1), torch.ones(1, 1, 100))


def test_gelu() -> None:
    x = torch.linspace(-12, 12, 2001)
    assert torch.allclose(gelu_tanh(x), F.gelu(x, approximate="tanh"), atol=1e-6)
