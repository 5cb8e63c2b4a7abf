"""T5's own parts: the norm, the position bias, what float16 cannot hold, and that it learns."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn import functional as F
from transformers.models.t5.modeling_t5 import T5Attention

from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.models.config import SampleShape
from paddock.models.layers.initialization import initialize
from paddock.models.layers.rms_norm import RMSNorm
from paddock.models.registry import example_batch
from paddock.models.t5.attention import RelativePositionBias
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5

SMALL = T5Config(layers=2, hidden=32, heads=4, head_size=8, feed_forward=64, vocab=97, dropout=0.0)


def test_norm_is_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 24, dtype=torch.float64, generator=generator, requires_grad=True)
    norm = RMSNorm(24, eps=1e-3).double()
    torch.nn.init.normal_(norm.weight, generator=generator)
    direction = torch.randn(3, 5, 24, dtype=torch.float64, generator=generator)
    ours, theirs = norm(x), F.rms_norm(x, (24,), norm.weight, 1e-3)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(ours, (x, norm.weight), direction),
        torch.autograd.grad(theirs, (x, norm.weight), direction),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("of_input", "of_weight"), [*product((torch.bfloat16, torch.float32), repeat=2)])
def test_norm_is_made_in_float32(of_input: torch.dtype, of_weight: torch.dtype, autocast: bool) -> None:
    """Whatever it is given: bfloat16 may round what it is given and what comes out, and nothing in between. Many small
    numbers of which bfloat16 could not add up the squares."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 4096, generator=generator).to(of_input).requires_grad_()
    norm = RMSNorm(4096, eps=1e-6).to(of_weight)
    torch.nn.init.normal_(norm.weight, generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = norm(x)
    assert found.dtype == (torch.float32 if autocast else of_input)
    direction = torch.randn(x.shape, generator=generator).to(found.dtype)
    exact_x, exact_weight = (one.detach().double().requires_grad_() for one in (x, norm.weight))
    exact = F.rms_norm(exact_x, (4096,), exact_weight, 1e-6)
    ours = (found, *torch.autograd.grad(found, (x, norm.weight), direction))
    theirs = (exact, *torch.autograd.grad(exact, (exact_x, exact_weight), direction.double()))
    for one, other in zip(ours, theirs, strict=True):
        rounding = torch.finfo(one.dtype).eps / 2  # once; what is computed in float32 adds little to it
        torch.testing.assert_close(one.double(), other, rtol=1.01 * rounding + 1e-5, atol=1e-5)


def test_a_position_bias_is_made_once_a_stack() -> None:
    """However many layers add it; and once for a token while a model writes, of the decoder alone."""
    model = T5(SMALL.model_copy(update={"layers": 3, "decoder_layers": 4}))
    initialize(model, seed=3)
    made: list[str] = []
    for stack, bias in model.position_bias.items():
        bias.register_forward_hook(lambda *_, stack=stack: made.append(stack))
    model(**example_batch(SMALL, 2, SampleShape(12, 8), seed=0)).backward()
    assert made == ["encoder", "decoder"]
    made.clear()
    generate(model.eval(), [[5, 9, 3]], GenerationOptions(max_new_tokens=4))
    assert made == ["encoder", *["decoder"] * 4]


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_position_bias_is_theirs(both_ways: bool, length: int) -> None:
    """Bucket by bucket, and its gradient is the sum over all places of a distance."""
    bias = RelativePositionBias(SMALL, both_ways=both_ways)
    torch.nn.init.normal_(bias.weight, generator=torch.Generator().manual_seed(1))
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    buckets = T5Attention._relative_position_bucket(distance, both_ways, SMALL.position_buckets, SMALL.max_distance)
    found, expected = bias(length), bias.weight[:, buckets]
    assert torch.equal(found, expected)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    (ours,) = torch.autograd.grad(found, bias.weight, direction)
    (theirs,) = torch.autograd.grad(expected, bias.weight, direction)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("gated", [True, False])
def test_what_float16_cannot_hold_is_made_in_float32(gated: bool) -> None:
    """Feed-forward layers of trained T5s reach beyond 65504: without an island the loss is not a number."""
    model = T5(SMALL.model_copy(update={"gated": gated, "activation": "relu"}))
    initialize(model, seed=3)
    with torch.no_grad():
        for block in model.encoder.values():
            block.feed_forward.input.weight.mul_(300.0)
            if gated:
                block.feed_forward.gate.weight.mul_(300.0)
            block.feed_forward.output.weight.mul_(300.0)
    batch = example_batch(SMALL, 2, SampleShape(12, 8), seed=0)
    with torch.autocast("cpu", dtype=torch.float16):
        narrow = model(**batch)
    narrow.backward()
    assert torch.isfinite(narrow)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    assert narrow.item() == pytest.approx(model(**batch).item(), rel=0.05)


def test_padding_is_never_seen() -> None:
    model = T5(SMALL).eval()
    initialize(model, seed=3)
    batch = example_batch(SMALL, 2, SampleShape(12, 8), seed=0) | {"lengths": torch.tensor([12, 5])}
    with torch.no_grad():
        before = model(**batch)
        batch["tokens"][1, 5:] = 3
        assert torch.equal(model(**batch), before)
        batch["tokens"][1, 4] = 3
        assert not torch.equal(model(**batch), before)


def test_no_token_sees_a_later_one() -> None:
    model = T5(SMALL).eval()
    initialize(model, seed=3)
    batch = example_batch(SMALL, 2, SampleShape(12, 8), seed=0)
    del batch["labels"]
    with torch.no_grad():
        before = model(**batch)
        batch["decoder_tokens"][:, 5] = 3
        after = model(**batch)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert not torch.allclose(after[:, 5:], before[:, 5:])
