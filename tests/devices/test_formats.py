"""Weights in eight bits: products as near as eight bits can be, and models that write nearly the same."""

from __future__ import annotations

import pytest
import torch

from paddock.devices.config import WeightFormat
from paddock.devices.formats import DynamicInt8Weight, Int8Weight
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.models.layers.basic import Linear
from paddock.models.layers.initialization import initialize
from paddock.models.layers.packing import packed_weights, set_format
from paddock.models.registry import build_model
from paddock.testing.layouts import small_t5
from paddock.testing.writing import config_of, prompts_of

FORMATS: list[WeightFormat] = ["bfloat16", "int8", "int8-dynamic"]


@pytest.mark.parametrize(("kind", "steps"), [(Int8Weight, 1), (DynamicInt8Weight, 2)])
@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 64)])
def test_products(kind: type[Int8Weight | DynamicInt8Weight], steps: int, shape: tuple[int, ...]) -> None:
    """An error of half a step of each number, in whatever direction: far below a step of all of them together."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(96, 64, generator=generator), torch.randn(*shape, generator=generator)
    weight[7] = 0.0
    bias = torch.randn(96, generator=generator)
    found, exact = kind(weight).multiply(x, bias), torch.nn.functional.linear(x, weight, bias)
    assert found.shape == exact.shape and found.dtype == x.dtype
    weight_step = weight.abs().amax(dim=1) / 127
    x_step = x.abs().amax() / 64 if steps == 2 else x.abs().amax() / 256
    worst = (x.abs().sum(-1, keepdim=True) * weight_step + x_step * weight.abs().sum(1) + exact.abs() / 128) * 1.01
    assert bool(((found - exact).abs() <= worst).all())
    assert (found - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("engine", torch.backends.quantized.supported_engines)
def test_a_row_is_rounded_by_itself(engine: str) -> None:
    """Whatever is beside it: one that is a thousand times as large would leave nothing of it otherwise."""
    if engine == "none":
        pytest.skip("no engine at all")
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        generator = torch.Generator().manual_seed(0)
        weight, x = torch.randn(96, 64, generator=generator), torch.randn(5, 64, generator=generator)
        x[1] *= 1000
        x[3] = 0.0
        product = DynamicInt8Weight(weight)
        together = product.multiply(x)
        torch.testing.assert_close(
            together, torch.cat([product.multiply(row) for row in x.split(1)]), rtol=1e-6, atol=0
        )
        exact = x @ weight.T
        assert all((mine - own).norm() <= 0.05 * own.norm() for mine, own in zip(together, exact, strict=True))
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize("family", ["gpt2", "t5"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_model_in_another_format(family: str, format: WeightFormat) -> None:
    # A T5 that is made to say something new magnifies every error; as it begins, it is as steady as a trained one.
    config = config_of("gpt2") if family == "gpt2" else small_t5("t5").model
    own, other = build_model(config).eval(), build_model(config).eval()
    for model in (own, other):
        initialize(model, seed=1)
    set_format(other, format)
    tokens = torch.tensor(prompts_of(9)[4:5])
    batch = {"tokens": tokens} if family == "gpt2" else {"tokens": tokens, "decoder_tokens": tokens[:, :5]}
    with torch.inference_mode():
        exact, found = own(**batch).log_softmax(-1), other(**batch).float().log_softmax(-1)
    divergence = (exact.exp() * (exact - found)).sum(-1).mean()
    assert 0 < divergence < 0.3, "another model, but not another one altogether"
    options = GenerationOptions(max_new_tokens=6, temperature=0, stop_token=3)
    written = generate(other, prompts_of(5), options)
    assert len(written) == 5 and (family == "t5" or len({tuple(tokens) for tokens in written}) > 2)
    if format.startswith("int8"):
        layers = [layer for layer in other.modules() if isinstance(layer, Linear)]
        assert layers and all(layer.weight.numel() == 0 for layer in layers), "the weights are not there twice"
        with packed_weights(other, 4):
            assert all(layer.packed is not None for layer in layers)
        assert all(layer.packed is not None for layer in layers)
