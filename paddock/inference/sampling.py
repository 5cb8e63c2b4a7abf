"""Choosing the next token from logits: greedily, or by chance within a temperature, a top-k and a top-p."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paddock.inference.options import GenerationOptions


def choose(logits: Tensor, options: GenerationOptions, generators: Sequence[torch.Generator]) -> Tensor:
    """One token for each row of logits [rows, vocabulary], each drawn from the row's own generator.

    Drawn on the CPU in float32, so that every device draws the same.
    """
    if options.greedy:
        return logits.argmax(dim=-1)
    weights = probabilities(logits.to("cpu", torch.float32), options)
    drawn = [torch.multinomial(row, 1, generator=generator) for row, generator in zip(weights, generators, strict=True)]
    return torch.cat(drawn).to(logits.device)


def probabilities(logits: Tensor, options: GenerationOptions) -> Tensor:
    """What is drawn from: temperature first, then top-k, then top-p among what top-k left."""
    assert options.temperature, "0 takes the likeliest: nothing is drawn"
    logits = logits / options.temperature
    if options.top_k is not None and options.top_k < logits.shape[-1]:
        smallest = logits.topk(options.top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)  # equals of the last one stay
    if options.top_p is not None and options.top_p < 1:
        # Drop the unlikely tail whose sum is at most 1 − top_p; the token that crosses the line stays.
        ascending, order = logits.sort(dim=-1)
        dropped = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - options.top_p
        dropped[..., -1] = False
        logits = logits.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
    return logits.softmax(dim=-1)


def forbid_repeats(logits: Tensor, histories: Sequence[Sequence[int]], size: int) -> None:
    """Make impossible, in each row of logits, the tokens that would end `size` tokens that its history has already."""
    for row, history in enumerate(histories):
        banned = repeating(history, size)
        if banned:
            logits[row, banned] = -torch.inf


def repeating(history: Sequence[int], size: int) -> list[int]:
    """The tokens behind every place where the last `size` - 1 tokens stood before."""
    start = len(history) - size + 1
    if start < 1:
        return []
    tail = list(history[start:])
    return [history[place + size - 1] for place in range(start) if list(history[place : place + size - 1]) == tail]
