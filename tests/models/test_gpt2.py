"""GPT-2 by itself: its fused loss, its cache, its causality and its initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers import cross_entropy
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.cross_entropy import IGNORED, linear_cross_entropy
from paddock.models.layers.initialization import initialize, seed_for

CONFIG = GPT2Config(hidden=32, layers=2, heads=4, vocab=97, context=24, dropout=0.0)


def tiny(**changes: Any) -> GPT2:
    model = GPT2(CONFIG.model_copy(update=changes)).eval()
    initialize(model, seed=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return model


def some_tokens(batch: int = 3, time: int = 24) -> Tensor:
    return torch.randint(97, (batch, time), generator=torch.Generator().manual_seed(2))


def case(rows: int = 50, width: int = 12, vocab: int = 31) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(5, rows // 5, width, generator=generator).requires_grad_()
    weight = torch.randn(vocab, width, generator=generator).requires_grad_()
    labels = torch.randint(vocab, (5, rows // 5), generator=generator)
    return hidden, weight, labels


@pytest.mark.parametrize("ignored", ["none", "some", "all"])
@pytest.mark.parametrize("chunk_rows", [1, 7, 49, 1000])
def test_fused_loss_is_cross_entropy(ignored: str, chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, labels = case()
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk_rows * weight.shape[0])
    if ignored != "none":
        labels[1:3, ::2] = IGNORED
    if ignored == "all":
        labels.fill_(IGNORED)
    loss = linear_cross_entropy(hidden, weight, labels)
    expected = F.cross_entropy((hidden @ weight.T).flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss, expected)
    # Scaled, as a trainer scales it: the gradient that was computed ahead has to follow.
    gradients = torch.autograd.grad(0.37 * loss, [hidden, weight])
    for gradient, wanted in zip(gradients, torch.autograd.grad(0.37 * expected, [hidden, weight]), strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("rows", [50, 0])
@pytest.mark.parametrize("chunk_rows", [7, 1000])
def test_fused_loss_with_a_bias(rows: int, chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, labels = case()
    hidden, labels = hidden.flatten(0, 1)[:rows].detach().requires_grad_(), labels.flatten()[:rows]
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk_rows * weight.shape[0])
    bias = torch.randn(weight.shape[0], generator=torch.Generator().manual_seed(4)).requires_grad_()
    inputs = [hidden, weight, bias]
    loss = linear_cross_entropy(hidden, weight, labels, bias=bias)
    expected = F.cross_entropy(hidden @ weight.T + bias, labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(0.37 * loss, inputs)
    for gradient, wanted in zip(gradients, torch.autograd.grad(0.37 * expected, inputs), strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_fused_loss_of_frozen_parts() -> None:
    hidden, weight, labels = case()
    expected = torch.autograd.grad(linear_cross_entropy(hidden, weight, labels), [hidden, weight])
    loss = linear_cross_entropy(hidden.detach(), weight, labels)
    torch.testing.assert_close(torch.autograd.grad(loss, [weight])[0], expected[1])
    loss = linear_cross_entropy(hidden, weight.detach(), labels)
    torch.testing.assert_close(torch.autograd.grad(loss, [hidden])[0], expected[0])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_built_when_nobody_asks(mode: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, labels = case()
    expected = linear_cross_entropy(hidden, weight, labels)

    def refuse(*_: Tensor) -> Tensor:
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr(cross_entropy._Targets, "subtract", refuse)
    with mode():
        loss = linear_cross_entropy(hidden, weight, labels)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())


def test_model_loss_and_gradients_are_those_of_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", 10 * 97)
    model, tokens = tiny(), some_tokens()
    labels = tokens.roll(-1, dims=1)
    labels[:, -1] = IGNORED
    loss = model(tokens, labels=labels)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss, expected)
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, list(model.parameters())), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prompt", [1, 5, 23])
def test_cache_gives_the_logits_of_the_whole(prompt: int) -> None:
    model, tokens = tiny(), some_tokens()
    with torch.inference_mode():
        whole = model(tokens)
        cache = KeyValueCache(model, 3, 24)
        parts = []
        for begin, end in [(0, prompt), *((place, place + 1) for place in range(prompt, 24))]:
            cache.add([end - begin] * 3)
            parts.append(model(tokens[:, begin:end], cache=cache))
    assert cache.lengths == [24] * 3
    torch.testing.assert_close(torch.cat(parts, dim=1), whole[:, prompt - 1 :], rtol=1e-4, atol=1e-4)


def test_rows_of_a_cache_have_lengths_of_their_own() -> None:
    """Prompts of any lengths in one pass, chunks of any lengths behind them, into slots that lie behind others."""
    model, tokens = tiny(), some_tokens()
    chunks = [(5, 1, 9), (3, 2, 1), (1, 1, 1), (2, 2, 2), (1, 7, 2)]
    with torch.inference_mode():
        cache, starts = KeyValueCache(model, 4, 24), [0, 0, 0]
        for counts in chunks:
            pieces = [tokens[row, starts[row] : starts[row] + count] for row, count in enumerate(counts)]
            cache.add(counts, first=1)
            # Rows that add equally many tokens are a batch; others come one behind the other, without padding.
            logits = model(torch.cat(pieces).unsqueeze(0) if cache.ragged else torch.stack(pieces), cache=cache)
            starts = [start + count for start, count in zip(starts, counts, strict=True)]
            assert cache.lengths == [0, *starts]
            for row, length in enumerate(starts):
                alone = model(tokens[row : row + 1, :length])[:, -1:]
                torch.testing.assert_close(logits[row : row + 1], alone, rtol=1e-4, atol=1e-4)


def test_slots_of_a_cache_change_places() -> None:
    model, tokens = tiny(), some_tokens()
    with torch.inference_mode():
        cache = KeyValueCache(model, 4, 8)
        cache.add([7, 5, 7])
        model(torch.cat([tokens[0, :7], tokens[1, :5], tokens[2, :7]]).unsqueeze(0), cache=cache)
        cache.move([(2, 0), (1, 2), (0, 1)])  # all at once: each is read before it is written over
        assert cache.lengths == [7, 7, 5, 0]
        cache.free(2)
        cache.add([1, 1])
        logits = model(tokens[[2, 0], 7:8], cache=cache)
        torch.testing.assert_close(logits, model(tokens[[2, 0], :8])[:, -1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", [1, 12, 23])
def test_a_later_token_never_changes_earlier_logits(place: int) -> None:
    model, tokens = tiny(), some_tokens()
    changed = tokens.clone()
    changed[:, place] = (changed[:, place] + 1) % 97
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :place], before[:, :place], rtol=0, atol=0)
    assert not torch.allclose(after[:, place:], before[:, place:], atol=1e-2)


def test_packed_documents_are_as_alone() -> None:
    """With positions and segments, a sample of several documents gives each of them its own logits."""
    model = tiny()
    tokens = torch.randint(0, model.config.vocab, (1, 12))
    lengths = [5, 1, 6]
    positions = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
    segments = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths)).unsqueeze(0)
    packed = model(tokens, positions=positions, segments=segments)
    alone = torch.cat([model(part) for part in tokens.split(lengths, dim=1)], dim=1)
    assert torch.allclose(packed, alone, atol=1e-5)
    assert not torch.allclose(packed, model(tokens), atol=1e-2)


def test_initial_weights_depend_on_seed_and_name_only() -> None:
    first, deeper, other = GPT2(CONFIG), GPT2(CONFIG.model_copy(update={"layers": 3})), GPT2(CONFIG)
    torch.manual_seed(99)
    initialize(first, seed=1)
    torch.manual_seed(100)
    initialize(deeper, seed=1)
    initialize(other, seed=2)
    for name, parameter in first.named_parameters():
        if not name.endswith("output.weight"):  # those begin smaller in a deeper model
            assert torch.equal(parameter, deeper.get_parameter(name)), name
        drawn = parameter.dim() > 1
        assert torch.equal(parameter, other.get_parameter(name)) != drawn, name
    alike = [first.get_parameter(f"layers.{index}.attention.qkv.weight") for index in (0, 1)]
    assert not torch.equal(*alike)
    assert seed_for(1, "a") == 4453716986992266975, "another machine or version must draw the same"


def test_initial_spread() -> None:
    model = GPT2(CONFIG.model_copy(update={"hidden": 128, "layers": 8}))
    initialize(model, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            constant = 1.0 if name.endswith("norm.weight") else 0.0
            assert torch.equal(parameter, torch.full_like(parameter, constant)), name
        else:
            expected = 0.02 / math.sqrt(16) if name.endswith("output.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name


def test_number_of_parameters() -> None:
    for changes in ({}, {"feed_forward": 50, "layers": 3}):
        model = tiny(**changes)
        assert model.config.num_parameters() == sum(p.numel() for p in model.parameters())


def test_bfloat16_autocast_is_close() -> None:
    model, tokens = tiny(), some_tokens()
    exact = model(tokens, labels=tokens)
    wanted = torch.autograd.grad(exact, list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens, labels=tokens)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    assert loss.item() != exact.item(), "autocast had no effect"
    for gradient, like in zip(torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert F.cosine_similarity(gradient.flatten(), like.flatten(), dim=0) > 0.99


def test_dropout_only_in_training() -> None:
    model, tokens = tiny(dropout=0.5), some_tokens()
    with torch.no_grad():
        assert torch.equal(model(tokens), model(tokens))
        model.train()
        assert not torch.allclose(model(tokens), model(tokens))
