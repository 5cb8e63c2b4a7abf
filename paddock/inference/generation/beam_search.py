"""Beam search: the likeliest continuations of one prompt, followed side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.sampling import restrain


@dataclass(frozen=True)
class Finished:
    """A continuation that has ended, and its log-probability over its length to the power of the penalty."""

    tokens: tuple[int, ...]
    score: float


class BeamSearch:
    """The beams of one prompt, whose tokens before (`history`) count as said when nothing may be repeated.

    It begins with one row. `advance` takes the logits of the rows there are, and says which go on, and with what.
    Twice as many candidates as beams are looked at, because half of them may end; only those among the best
    `num_beams` do end.
    """

    def __init__(self, options: GenerationOptions, history: Sequence[int]) -> None:
        self.options = options
        self.finished: list[Finished] = []
        self._history = list(history)
        self._tokens: list[tuple[int, ...]] = [()]
        self._scores: list[float] = [0.0]

    def advance(self, logits: Tensor) -> list[tuple[int, int]]:
        """(row, token) of each beam that goes on; none when the search is over."""
        options, length = self.options, len(self._tokens[0]) + 1
        going: list[tuple[float, int, int]] = []
        for place, (score, row, token) in enumerate(self._candidates(logits)):
            ends = token == options.stop_token
            if ends or length == options.max_new_tokens:
                if place < options.num_beams:
                    self._finish((*self._tokens[row], *(() if ends else (token,))), score, length)
            elif len(going) < options.num_beams:
                going.append((score, row, token))
        if not going or self._is_over(going[0][0], length):
            return []
        self._tokens = [(*self._tokens[row], token) for _, row, token in going]
        self._scores = [score for score, _, _ in going]
        return [(row, token) for _, row, token in going]

    def best(self) -> list[Finished]:
        """The continuations to return, the likeliest first."""
        return self.finished[: self.options.num_return_sequences]

    def _candidates(self, logits: Tensor) -> list[tuple[float, int, int]]:
        """The likeliest (score, row, token), best first."""
        scores = logits.to("cpu", torch.float32).log_softmax(dim=-1)
        said = [[*self._history, *tokens] for tokens in self._tokens]
        restrain(scores, said, [len(tokens) for tokens in self._tokens], self.options)
        scores = scores + torch.tensor(self._scores).unsqueeze(1)
        found = scores.flatten().topk(min(2 * self.options.num_beams, scores.numel()))
        places = found.indices.tolist()
        vocab = scores.shape[1]
        return [(s, *divmod(place, vocab)) for s, place in zip(found.values.tolist(), places, strict=True)]

    def _finish(self, tokens: tuple[int, ...], score: float, length: int) -> None:
        """Keep a continuation if it is among the best that have ended."""
        found = Finished(tokens, score / length**self.options.length_penalty)
        self.finished = sorted([*self.finished, found], key=lambda one: -one.score)[: self.options.num_beams]

    def _is_over(self, best: float, length: int) -> bool:
        """Whether those that go on, whose best score is this, can no longer change anything worth waiting for."""
        options = self.options
        if len(self.finished) < options.num_beams:
            return False
        if options.early_stopping is True:
            return True
        longest = options.early_stopping == "never" and options.length_penalty > 0
        at = options.max_new_tokens if longest else length
        return best / at**options.length_penalty <= self.finished[-1].score
