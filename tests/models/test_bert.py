"""BERT by itself: its heads' losses, its padding, its initial weights and its config."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paddock.errors import ConfigError
from paddock.models.bert.config import BertConfig, Head
from paddock.models.bert.model import Bert
from paddock.models.config import IGNORED, SampleShape
from paddock.models.layers.initialization import initialize
from paddock.models.registry import example_batch

CONFIG = BertConfig(hidden=32, layers=2, heads=4, vocab=97, context=24, dropout=0.0)
HEADS: list[Head] = ["masked_language_modeling", "question_answering", "sequence_classification"]
LENGTHS = torch.tensor([24, 5, 11])


def tiny(head: Head, **changes: Any) -> Bert:
    model = Bert(CONFIG.model_copy(update={"head": head, **changes})).eval()
    initialize(model, seed=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return model


def inputs() -> tuple[Tensor, Tensor]:
    """Tokens and their types."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(97, (3, 24), generator=generator), torch.randint(2, (3, 24), generator=generator)


def labels_for(head: Head) -> Tensor:
    if head == "question_answering":
        return torch.tensor([[3, 20], [2, 4], [IGNORED, IGNORED]])
    if head == "sequence_classification":
        return torch.tensor([0, IGNORED, 1])
    tokens, _ = inputs()
    return torch.where(torch.rand(3, 24, generator=torch.Generator().manual_seed(5)) < 0.2, tokens, IGNORED)


def textbook(head: Head, outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss, from outputs alone."""
    if head == "question_answering":
        starts, ends = (F.cross_entropy(outputs[:, :, at], labels[:, at], reduction="sum") for at in (0, 1))
        return (starts + ends) / 2
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="sum")


@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients_are_those_of_the_outputs(head: Head) -> None:
    model, (tokens, types), labels = tiny(head), inputs(), labels_for(head)
    parameters = list(model.parameters())
    loss = model(tokens, labels, types)
    expected = textbook(head, model(tokens, token_types=types), labels)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, parameters)
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_labels_that_do_not_count(head: Head) -> None:
    """A batch of them adds nothing, and is no error: other processes may have some that count."""
    model, (tokens, types) = tiny(head), inputs()
    loss = model(tokens, torch.full_like(labels_for(head), IGNORED), types)
    loss.backward()
    assert loss.item() == 0.0
    assert all(parameter.grad is None or not bool(parameter.grad.any()) for parameter in model.parameters())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_padding_changes_nothing(head: Head, training: bool) -> None:
    """What stands in padding, and how much of it there is, cannot be told from what a model puts out or learns."""
    changes = {"attention_dropout": 0.3} if training else {}
    model, (tokens, types) = tiny(head, **changes).train(training), inputs()
    labels = labels_for(head)
    there = torch.arange(24) < LENGTHS.unsqueeze(-1)
    if head == "masked_language_modeling":
        labels = torch.where(there, labels, IGNORED)
    found = []
    for other in (tokens, torch.where(there, tokens, 3)):
        torch.manual_seed(9)
        model.zero_grad()
        loss = model(other, labels, types, LENGTHS)
        loss.backward()
        found.append((loss.item(), model.layers["0"].attention.qkv.weight.grad.clone()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1])
    if training:
        return
    outputs = model(tokens, token_types=types, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens[row : row + 1, :length], token_types=types[row : row + 1, :length])[0]
        shown = outputs[row] if head == "sequence_classification" else outputs[row, :length]
        torch.testing.assert_close(shown, alone, rtol=1e-4, atol=1e-4)
    if head == "question_answering":
        assert bool((outputs[~there] == torch.finfo(torch.float32).min).all())


def test_every_token_sees_both_directions_and_its_type() -> None:
    model, (tokens, types) = tiny("question_answering"), inputs()
    changed, other = tokens.clone(), types.clone()
    changed[:, 12], other[:, 12] = (changed[:, 12] + 1) % 97, 1 - types[:, 12]
    with torch.no_grad():
        before = model(tokens, token_types=types)
        for after in (model(changed, token_types=types), model(tokens, token_types=other)):
            assert bool(((after - before).abs() > 1e-5).all())
        assert torch.equal(model(tokens), model(tokens, token_types=torch.zeros_like(types)))


def test_dropout_only_in_training() -> None:
    model, (tokens, types) = tiny("sequence_classification", dropout=0.5), inputs()
    with torch.no_grad():
        assert torch.equal(model(tokens, token_types=types), model(tokens, token_types=types))
        model.train()
        assert not torch.allclose(model(tokens, token_types=types), model(tokens, token_types=types))


@pytest.mark.parametrize("head", HEADS)
def test_number_of_parameters(head: Head) -> None:
    for changes in ({}, {"feed_forward": 50, "layers": 3, "token_types": 3, "classes": 5}):
        if head != "sequence_classification":
            changes.pop("classes", None)
        model = tiny(head, **changes)
        assert model.config.num_parameters() == sum(p.numel() for p in model.parameters())


def test_initial_spread() -> None:
    model = Bert(CONFIG.model_copy(update={"hidden": 128, "init_std": 0.05}))
    initialize(model, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            constant = 1.0 if name.endswith("norm.weight") else 0.0
            assert torch.equal(parameter, torch.full_like(parameter, constant)), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.1), name


@pytest.mark.parametrize("head", HEADS)
def test_bfloat16_autocast_is_close(head: Head) -> None:
    model, (tokens, types), labels = tiny(head), inputs(), labels_for(head)
    exact = model(tokens, labels, types, LENGTHS if head == "sequence_classification" else None)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens, labels, types, LENGTHS if head == "sequence_classification" else None)
        assert model(tokens, token_types=types).dtype == torch.float32
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=3e-2)
    assert loss.item() != exact.item(), "autocast had no effect"


@pytest.mark.parametrize("head", HEADS)
def test_flops_are_those_of_the_matrix_products(head: Head) -> None:
    """Against torch's own count of a forward pass, which knows no fused attention."""
    model = tiny(head)
    batch = example_batch(model.config, 1, SampleShape(24), seed=1)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**batch)
    assert model.config.forward_flops(SampleShape(24)) == pytest.approx(counter.get_total_flops(), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"heads": 5}, "hidden 768 does not divide into 5 heads"),
        ({"classes": 3}, "model.head = masked_language_modeling has no classes"),
        ({"classes": 1, "head": "sequence_classification"}, "classes"),
        ({"head": "question_answring"}, "head"),
        ({"hiden": 8}, "hiden"),
    ],
)
def test_configs_that_cannot_be(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BertConfig(**changes)
