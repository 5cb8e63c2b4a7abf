"""The output head and its cross-entropy in one step, a chunk of rows at a time.

Logits for a whole batch are the largest tensor of a language model (batch × time × vocabulary). Here they live
for one chunk only: the chunk's gradients are computed while its logits are at hand, so nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.models.labels import IGNORED
from paddock.models.layers.widen import wide, widen
from paddock.parallel.vocabulary import VocabularyShards

CHUNK_ELEMENTS = 2**26
"""How many logits are held at once: large enough for full-speed matrix products, 256 MiB in float32."""

ALIGNMENT = 64
"""Rows of logits begin at multiples of this: with 50257 columns side by side the product is a third slower."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    vocabulary: VocabularyShards | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of `hidden @ weight.T + bias` against `labels`, summed over the labels that count.

    hidden: [..., width]; weight: [vocabulary, width]; bias: [vocabulary]; labels: [...], IGNORED where a position
    does not count. With `vocabulary`, `weight` and `bias` are this process's rows, and every process that holds
    others makes the same call.
    """
    hidden = hidden.reshape(-1, hidden.shape[-1])
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    if not torch.is_grad_enabled():
        # An autograd function is told which inputs require gradients, not that nobody will ask for them.
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, labels.reshape(-1), vocabulary)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        vocabulary: VocabularyShards | None,
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:3])
        count, size = hidden.shape[0], weight.shape[0]
        chunks = max(1, -(-count * size // CHUNK_ELEMENTS))
        rows = max(1, -(-count // chunks))
        room = hidden.new_empty(rows, -(-size // ALIGNMENT) * ALIGNMENT)
        sums = wide(hidden.dtype)
        loss = torch.zeros((), dtype=sums, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight, dtype=sums) if needs_gradient and not count else None
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=sums)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, count, rows):
                chunk = hidden[start : start + rows]
                targets = _Targets(labels[start : start + rows], size, vocabulary)
                logits = room[: len(chunk)]
                logits[:, size:] = -torch.inf  # padding takes no part in the softmax
                torch.mm(chunk, weight.T, out=logits[:, :size])
                if bias is not None:
                    logits[:, :size] += bias
                log_probabilities = _log_softmax(logits, vocabulary)
                loss -= targets.pick(log_probabilities).sum()
                if hidden_gradient is None:
                    continue
                gradient = targets.subtract(log_probabilities.exp_())[:, :size].to(hidden.dtype)
                torch.mm(gradient, weight, out=hidden_gradient[start : start + rows])
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(0, dtype=sums)
                if weight_gradient is None:
                    weight_gradient = (gradient.T @ chunk).to(sums)
                elif hidden.dtype == sums:
                    weight_gradient.addmm_(gradient.T, chunk)
                else:  # the sum over chunks is kept in more bits
                    weight_gradient += gradient.T @ chunk
        if vocabulary is not None:
            vocabulary.add(loss)
            if hidden_gradient is not None:
                vocabulary.add(hidden_gradient)
        ctx.gradients = hidden_gradient, weight_gradient, bias_gradient
        ctx.weight_dtype, ctx.scaled = weight.dtype, False
        return loss

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        """They are ours alone, so they are scaled in place: once, though some pipelines ask for each by itself."""
        hidden_gradient, weight_gradient, bias_gradient = ctx.gradients
        if not ctx.scaled:
            for gradient in (hidden_gradient, weight_gradient, bias_gradient):
                if gradient is not None:
                    gradient.mul_(output_gradients[0])
            ctx.scaled = True
        of_bias = None if bias_gradient is None else bias_gradient.to(ctx.weight_dtype)
        return hidden_gradient, weight_gradient.to(ctx.weight_dtype), of_bias, None, None


def _log_softmax(logits: Tensor, vocabulary: VocabularyShards | None) -> Tensor:
    """In the wide type, in the logits' own memory where they have that type already."""
    first = widen(logits[:, 0])
    if logits.dtype == first.dtype:
        first = first.clone()
        result = torch.log_softmax(logits, dim=-1, out=logits)
    else:
        result = F.log_softmax(widen(logits), dim=-1)
    if vocabulary is not None:
        log_sum = first - result[:, 0]  # what the softmax over the part here has subtracted
        result += (log_sum - vocabulary.join_log_sums(log_sum)).unsqueeze(-1)
    return result


class _Targets:
    """The columns of a chunk's targets, for the rows whose target is here and counts."""

    def __init__(self, labels: Tensor, size: int, vocabulary: VocabularyShards | None) -> None:
        self._counts = labels != IGNORED
        columns = labels if vocabulary is None else labels - vocabulary.first
        here = self._counts if vocabulary is None else self._counts & (columns >= 0) & (columns < size)
        self._rows = here.nonzero().squeeze(-1)
        self._columns = columns[self._rows]

    def pick(self, log_probabilities: Tensor) -> Tensor:
        """The log probability of each target that is here."""
        return log_probabilities[self._rows, self._columns]

    def subtract(self, probabilities: Tensor) -> Tensor:
        """The gradient of the logits, in place: softmax − one-hot, zero where the target is ignored."""
        probabilities[self._rows, self._columns] -= 1.0
        if not bool(self._counts.all()):
            probabilities *= self._counts.unsqueeze(-1)
        return probabilities
