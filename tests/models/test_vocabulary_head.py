"""The head over a vocabulary beside torch's own cross-entropy: smoothed labels, and how likely given tokens are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.models.config import IGNORED
from paddock.models.layers import cross_entropy
from paddock.models.layers.cross_entropy import VocabularyHead, linear_cross_entropy, linear_target_scores

VOCABULARY = 97
"""No multiple of what rows of logits are filled up to."""


def case(ignored: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a head is given: vectors, its weight and bias, and labels, of which some do not count."""
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((5, 8, 6), (VOCABULARY, 6), (97,)))
    labels = torch.randint(VOCABULARY, (5, 8), generator=generator)
    if ignored:
        labels[1:3, ::2] = IGNORED
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
@pytest.mark.parametrize("has_bias", [False, True])
def test_smoothed_labels_are_those_of_torch(
    smoothing: float, chunk_rows: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight, bias, labels = case()
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk_rows * VOCABULARY)
    inputs = [hidden, weight, *([bias] if has_bias else [])]
    loss = linear_cross_entropy(hidden, weight, labels, bias=bias if has_bias else None, smoothing=smoothing)
    logits = (hidden @ weight.T + (bias if has_bias else 0.0)).flatten(0, 1)
    expected = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(0.37 * loss, inputs)
    for gradient, wanted in zip(gradients, torch.autograd.grad(0.37 * expected, inputs), strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_smoothed_labels_in_bfloat16() -> None:
    """What is spread over a vocabulary is too little to be subtracted in few bits; it is subtracted in many."""
    hidden, weight, _, labels = case()
    narrow = [tensor.detach().bfloat16().requires_grad_() for tensor in (hidden, weight)]
    loss = linear_cross_entropy(*narrow, labels, smoothing=0.2)
    assert loss.dtype == torch.float32
    logits = (narrow[0].float() @ narrow[1].float().T).flatten(0, 1)
    expected = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=0.2)
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=0.0)


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
def test_scores_of_targets(chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, targets = case()
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk_rows * VOCABULARY)
    logits = hidden @ weight.T + bias
    targets[0, :5] = logits[0, :5].argmax(-1)
    scores = linear_target_scores(hidden, weight, targets, bias=bias)
    assert scores.shape == (5, 8, 2) and not scores.requires_grad
    counts = targets != IGNORED
    found = logits.detach().log_softmax(-1).gather(-1, targets.clamp_min(0)[..., None]).squeeze(-1)
    torch.testing.assert_close(scores[..., 0], torch.where(counts, found, 0.0))
    assert torch.equal(scores[..., 1].long(), logits.argmax(-1)) and torch.equal(
        scores[0, :5, 1].long(), targets[0, :5]
    )


def test_only_the_places_that_are_asked_for_are_looked_at() -> None:
    hidden, weight, bias, _ = case()
    places = torch.tensor([[7], [0], [3], [3], [6]])
    labels = torch.tensor([[1], [96], [IGNORED], [4], [5]])
    picked = hidden[torch.arange(5), places[:, 0], None]
    head = VocabularyHead()
    assert torch.equal(head(hidden, weight, None, bias, places=places), F.linear(picked, weight, bias))
    torch.testing.assert_close(
        head(hidden, weight, labels, bias, places=places), linear_cross_entropy(picked, weight, labels, bias=bias)
    )
    scores = head(hidden, weight, None, bias, targets=labels, places=places)
    torch.testing.assert_close(scores, linear_target_scores(picked, weight, labels, bias=bias))


def test_of_tokens_that_are_alike_the_first_is_the_likeliest() -> None:
    """As in greedy decoding, and whichever of them is the target."""
    weight = torch.zeros(9, 6)
    assert linear_target_scores(torch.ones(1, 6), weight, torch.tensor([5]))[0, 1] == 0


def test_scores_of_nothing() -> None:
    assert linear_target_scores(torch.empty(0, 6), torch.empty(9, 6), torch.empty(0, dtype=torch.long)).shape == (0, 2)


def test_a_weight_takes_over_its_gradient() -> None:
    """A copy would be as large as the weight: for a large vocabulary, half a gigabyte."""
    hidden, _, _, labels = case()
    weight = torch.nn.Parameter(torch.randn(VOCABULARY, 6))
    for retained in (False, True):
        weight.grad = None
        loss = linear_cross_entropy(hidden, weight, labels)
        kept = loss.grad_fn.saved_tensors[1].data_ptr()  # type: ignore[union-attr]
        loss.backward(retain_graph=retained)
        assert (weight.grad.data_ptr() == kept) is not retained
    once = weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(weight.grad, 2 * once)
