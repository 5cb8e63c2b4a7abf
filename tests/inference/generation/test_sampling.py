"""Sampling against transformers' logits processors, as probabilities; and against its own promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.generation import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from paddock.errors import ConfigError
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.sampling import choose, probabilities, restrain


def some_logits(rows: int = 40, vocab: int = 57) -> torch.Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [None, 1, 5, 57])
@pytest.mark.parametrize("top_p", [None, 1e-9, 1e-4, 0.3, 0.9, 1.0])
def test_probabilities_are_those_of_transformers(temperature: float, top_k: int | None, top_p: float | None) -> None:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None and top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    logits = some_logits()
    expected = warpers(torch.zeros(40, 1, dtype=torch.long), logits).softmax(dim=-1)
    ours = probabilities(logits, GenerationOptions(temperature=temperature, top_k=top_k, top_p=top_p))
    assert torch.equal(ours > 0, expected > 0)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("top_k", [None, 6])
@pytest.mark.parametrize("min_p", [None, 1e-6, 0.05, 0.4, 1.0])
@pytest.mark.parametrize("typical_p", [None, 1e-3, 0.2, 0.95])
def test_rarer_restrictions_are_those_of_transformers(
    top_k: int | None, min_p: float | None, typical_p: float | None
) -> None:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(1.3)])
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if min_p is not None:
        warpers.append(MinPLogitsWarper(min_p))
    if typical_p is not None:
        warpers.append(TypicalLogitsWarper(typical_p))
    logits = some_logits()
    expected = warpers(torch.zeros(40, 1, dtype=torch.long), logits).softmax(dim=-1)
    options = GenerationOptions(temperature=1.3, top_k=top_k, min_p=min_p, typical_p=typical_p)
    ours = probabilities(logits, options)
    assert torch.equal(ours > 0, expected > 0)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("penalty", [1.0, 1.7, 0.6])
@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.parametrize(("shortest", "written"), [(0, 3), (5, 3), (3, 3)])
def test_restraint_is_that_of_transformers(penalty: float, size: int, shortest: int, written: int) -> None:
    said = torch.randint(0, 20, (40, 12), generator=torch.Generator().manual_seed(1))
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty)])
    if size:
        processors.append(NoRepeatNGramLogitsProcessor(size))
    processors.append(MinNewTokensLengthLogitsProcessor(12 - written, shortest, 7))
    logits = some_logits()
    expected = processors(said, logits.clone())
    options = GenerationOptions(
        repetition_penalty=penalty, no_repeat_ngram_size=size, min_new_tokens=shortest, stop_token=7
    )
    restrain(logits, said.tolist(), [written] * 40, options)
    torch.testing.assert_close(logits, expected)


def test_the_token_that_crosses_top_p_stays() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = [
        int((probabilities(logits, GenerationOptions(temperature=1.0, top_p=p)) > 0).sum())
        for p in (0.1, 0.45, 0.6, 0.9, 0.99)
    ]
    assert kept == [1, 1, 2, 3, 4]


def test_top_p_on_the_line() -> None:
    logits = torch.zeros(1, 4)  # exactly a quarter each
    expected = TopPLogitsWarper(0.5)(torch.zeros(1, 1, dtype=torch.long), logits).softmax(dim=-1)
    ours = probabilities(logits, GenerationOptions(temperature=1.0, top_p=0.5))
    assert int((ours > 0).sum()) == int((expected > 0).sum()) == 2


def test_equals_of_the_last_of_top_k_stay() -> None:
    ours = probabilities(torch.tensor([[2.0, 1.0, 1.0, 0.0]]), GenerationOptions(temperature=1.0, top_k=2))
    assert (ours > 0).tolist() == [[True, True, True, False]]


def test_draws_follow_the_probabilities() -> None:
    options = GenerationOptions(temperature=0.7, top_k=4)
    logits = some_logits(1, 9).expand(20_000, 9)
    drawn = choose(logits, options, [torch.Generator().manual_seed(seed) for seed in range(20_000)])
    frequencies = torch.bincount(drawn, minlength=9) / 20_000
    torch.testing.assert_close(frequencies, probabilities(logits[0], options), atol=0.015, rtol=0)


def test_a_row_draws_from_its_own_generator() -> None:
    options, logits = GenerationOptions(temperature=1.0), some_logits(6)

    def draw(rows: list[int]) -> list[int]:
        generators = [torch.Generator().manual_seed(row) for row in rows]
        return choose(logits[rows], options, generators).tolist()

    together = draw([0, 1, 2, 3, 4, 5])
    assert draw([0, 1, 2, 3, 4, 5]) == together
    assert draw([4]) + draw([2]) == [together[4], together[2]]


def test_greedy_takes_the_likeliest() -> None:
    logits = some_logits()
    assert torch.equal(choose(logits, GenerationOptions(temperature=0), []), logits.argmax(dim=-1))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
        ({"temperature": -0.1}, "temperature = -0.1"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"top_k": 0}, "top_k = 0"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.1}, "top_p = 1.1"),
        ({"min_p": 0.0}, "min_p = 0.0"),
        ({"typical_p": 2.0}, "typical_p = 2.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty = 0.0"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty = inf"),
        ({"min_new_tokens": 101}, "max_new_tokens"),
        ({"min_new_tokens": -1}, "min_new_tokens = -1"),
        ({"logprobs": -1}, "logprobs = -1"),
        ({"logprobs": 1, "num_beams": 2}, "num_beams 1"),
        ({"temperature": 0, "min_p": 0.5}, "ignored"),
        ({"temperature": 0, "typical_p": 0.5}, "ignored"),
        ({"num_return_sequences": 0}, "num_return_sequences = 0"),
        ({"temperature": 0, "top_k": 5}, "ignored"),
        ({"temperature": 0, "top_p": 0.5}, "ignored"),
        ({"temperature": 0, "num_return_sequences": 2}, "the same"),
    ],
)
def test_options_that_cannot_be(changes: dict[str, Any], word: str) -> None:
    GenerationOptions().check()
    with pytest.raises(ConfigError) as caught:
        GenerationOptions(**changes).check()
    assert word in str(caught.value) and "fix:" in str(caught.value)
