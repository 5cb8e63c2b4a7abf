"""Choosing the next token from logits: greedily, or by chance within a temperature, a top-k and a top-p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paddock.errors import bad_value


@dataclass(frozen=True)
class SamplingOptions:
    """How a continuation is chosen, and where it ends."""

    max_new_tokens: int = 100
    temperature: float = 1.0
    """Divides the logits; 0 always takes the likeliest token."""
    top_k: int | None = None
    """Choose among this many of the likeliest tokens; None is all."""
    top_p: float | None = None
    """Choose among the likeliest tokens that together just reach this probability; None is all."""
    seed: int = 0
    num_return_sequences: int = 1
    """Continuations of each prompt."""
    stop_token: int | None = None
    """A sequence ends before this token: end-of-text, usually."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def check(self) -> None:
        """Raise a ConfigError for anything that cannot be, or would be ignored."""
        if self.max_new_tokens < 1:
            raise bad_value("max_new_tokens", self.max_new_tokens, "nothing to generate", "at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise bad_value("temperature", self.temperature, "it divides the logits", "0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            raise bad_value("top_k", self.top_k, "no token would be left", "at least 1; without it, all")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise bad_value("top_p", self.top_p, "it is a probability", "above 0 and at most 1")
        if self.num_return_sequences < 1:
            raise bad_value("num_return_sequences", self.num_return_sequences, "it is a count", "at least 1")
        if self.greedy:
            self._check_greedy()

    def _check_greedy(self) -> None:
        for field, value in (("top_k", self.top_k), ("top_p", self.top_p)):
            if value is not None:
                raise bad_value(
                    field,
                    value,
                    "temperature 0 takes the likeliest token, so this would be ignored",
                    f"leave out {field}, or give a temperature above 0",
                )
        if self.num_return_sequences > 1:
            raise bad_value(
                "num_return_sequences",
                self.num_return_sequences,
                "with temperature 0 all of them would be the same",
                "1, or a temperature above 0",
            )


def choose(logits: Tensor, options: SamplingOptions, generators: Sequence[torch.Generator]) -> Tensor:
    """One token for each row of logits [rows, vocabulary], each drawn from the row's own generator.

    Drawn on the CPU in float32, so that every device draws the same.
    """
    if options.greedy:
        return logits.argmax(dim=-1)
    weights = probabilities(logits.to("cpu", torch.float32), options)
    drawn = [torch.multinomial(row, 1, generator=generator) for row, generator in zip(weights, generators, strict=True)]
    return torch.cat(drawn).to(logits.device)


def probabilities(logits: Tensor, options: SamplingOptions) -> Tensor:
    """What is drawn from: temperature first, then top-k, then top-p among what top-k left."""
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
