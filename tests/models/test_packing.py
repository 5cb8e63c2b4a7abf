"""Packed weights while a model writes: the same text, and afterwards nothing is left of them."""

from __future__ import annotations

import pytest
import torch

from paddock.devices import products
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.basic import Linear
from paddock.models.layers.cross_entropy import VocabularyHead
from paddock.models.layers.packing import packed_weights
from paddock.models.model import Model
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5

PROMPTS = [[5, 1], [7, 3, 9, 1], [9, 9, 2, 1], [60, 2, 13, 4, 4, 8, 1]]
GREEDY = GenerationOptions(max_new_tokens=16, temperature=0, num_beams=1)


def gpt2() -> Model:
    return GPT2(GPT2Config(hidden=32, layers=2, heads=4, vocab=61, context=40))


def t5() -> Model:
    return T5(T5Config(hidden=32, layers=2, heads=4, head_size=8, feed_forward=48, vocab=61, max_distance=20))


@pytest.fixture(params=[gpt2, t5])
def model(request: pytest.FixtureRequest) -> Model:
    model: Model = request.param()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.1 if "norm" in name else 0.45, generator=generator)
    return model


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Everything is packed, however small; and the rows of what is multiplied then."""
    seen: list[int] = []
    multiply = products.PackedWeight.multiply

    def counted(self: products.PackedWeight, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.append(x.numel() // x.shape[-1])
        return multiply(self, x, bias)

    monkeypatch.setattr(products, "SMALLEST_KEPT", 0)
    monkeypatch.setattr(products.PackedWeight, "multiply", counted)
    return seen


def test_the_text_is_the_same(model: Model, packing: list[int]) -> None:
    expected = generate(model, PROMPTS, GREEDY)
    assert packing == []
    with products.using(products.choose("onednn", "any", 0)):
        assert generate(model, PROMPTS, GREEDY) == expected
    assert len(packing) > 100
    assert {1, len(PROMPTS)} & set(packing) == {len(PROMPTS)}  # all rows at once, until the last one ends


def test_beams_too(model: Model, packing: list[int]) -> None:
    beams = GenerationOptions(max_new_tokens=12, num_beams=3)
    expected = generate(model, PROMPTS[:1], beams)
    with products.using(products.choose("onednn", "any", 0)):
        assert generate(model, PROMPTS[:1], beams) == expected
    assert packing


def test_nothing_is_left(model: Model, packing: list[int]) -> None:
    with products.using(products.choose("onednn", "any", 0)):
        with pytest.raises(RuntimeError, match="stop"), packed_weights(model, 4):
            assert all(layer.packed is not None for layer in model.modules() if isinstance(layer, Linear))
            raise RuntimeError("stop")
        before = generate(model, PROMPTS, GREEDY)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
        after = generate(model, PROMPTS, GREEDY)
    assert before != after, "old weights were multiplied"
    assert all(layer.packed is None for layer in model.modules() if isinstance(layer, Linear))
    assert all(head.packed_for is head.packed is None for head in model.modules() if isinstance(head, VocabularyHead))
