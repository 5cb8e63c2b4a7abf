"""Choosing the next token from logits: greedily, or by chance among those that temperature, top-k, top-p, min-p and
typicality leave; and what may not be said again, or not yet.

Everything is as transformers does it, in its order, so that a setting means the same here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paddock.inference.generation.options import GenerationOptions


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
    """What is drawn from: temperature first, then each restriction among what the one before left."""
    assert options.temperature, "0 takes the likeliest: nothing is drawn"
    logits = logits / options.temperature
    if options.top_k is not None and options.top_k < logits.shape[-1]:
        smallest = logits.topk(options.top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)  # equals of the last one stay
    if options.top_p is not None and options.top_p < 1:
        logits = _top_p(logits, options.top_p)
    if options.min_p is not None:
        shares = logits.softmax(dim=-1)
        logits = logits.masked_fill(shares < options.min_p * shares.amax(dim=-1, keepdim=True), -torch.inf)
    if options.typical_p is not None and options.typical_p < 1:
        logits = _typical(logits, options.typical_p)
    return logits.softmax(dim=-1)


def _top_p(logits: Tensor, mass: float) -> Tensor:
    """Without the unlikely tail whose sum is at most 1 − mass; the token that crosses the line stays."""
    ascending, order = logits.sort(dim=-1)
    dropped = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - mass
    dropped[..., -1] = False
    return logits.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)


def _typical(logits: Tensor, mass: float) -> Tensor:
    """With the tokens alone whose surprise is nearest to the mean of it, as many as reach the mass."""
    surprise = -logits.log_softmax(dim=-1)
    shares = (-surprise).exp()
    mean = (surprise * shares).nansum(dim=-1, keepdim=True)  # what is impossible has no share
    distance, order = (surprise - mean).abs().sort(dim=-1)
    within = shares.gather(-1, order).cumsum(dim=-1) < mass
    last = within.sum(dim=-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    return logits.masked_fill((surprise - mean).abs() > distance.gather(-1, last), -torch.inf)


def restrain(
    scores: Tensor, histories: Sequence[Sequence[int]], written: Sequence[int], options: GenerationOptions
) -> None:
    """Change, in each row of scores, what must not be said yet or again. `histories` are all that was said, of which
    `written` tokens are new; scores are logits, or their log-softmax."""
    if options.repetition_penalty != 1.0:
        for row, history in enumerate(histories):
            said = torch.tensor(sorted(set(history)), device=scores.device)
            found = scores[row, said]
            penalty = options.repetition_penalty
            scores[row, said] = torch.where(found < 0, found * penalty, found / penalty)
    if options.no_repeat_ngram_size:
        forbid_repeats(scores, histories, options.no_repeat_ngram_size)
    early = [row for row, count in enumerate(written) if count < options.min_new_tokens]
    if options.stop_token is not None and early:
        scores[early, options.stop_token] = -torch.inf


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
