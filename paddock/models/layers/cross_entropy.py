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

CHUNK_ELEMENTS = 2**26
"""How many logits are held at once: large enough for full-speed matrix products, 256 MiB in float32."""

ALIGNMENT = 64
"""Rows of logits begin at multiples of this: with 50257 columns side by side the product is a third slower."""


def linear_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of `hidden @ weight.T` against `labels`, summed over the labels that count.

    hidden: [..., width]; weight: [vocabulary, width]; labels: [...], IGNORED where a position does not count.
    """
    hidden = hidden.reshape(-1, hidden.shape[-1])
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    if not torch.is_grad_enabled():
        # An autograd function is told which inputs require gradients, not that nobody will ask for them.
        hidden, weight = hidden.detach(), weight.detach()
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, labels.reshape(-1))
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        needs_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        count, vocabulary = hidden.shape[0], weight.shape[0]
        chunks = max(1, -(-count * vocabulary // CHUNK_ELEMENTS))
        size = -(-count // chunks)
        padded = -(-vocabulary // ALIGNMENT) * ALIGNMENT
        room = hidden.new_empty(size, padded)
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if needs_gradient else None
        weight_gradient: Tensor | None = None
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, count, size):
                chunk, targets = hidden[start : start + size], labels[start : start + size]
                logits = room[: len(chunk)]
                logits[:, vocabulary:] = -torch.inf  # padding takes no part in the softmax
                torch.mm(chunk, weight.T, out=logits[:, :vocabulary])
                log_probabilities = _log_softmax(logits)
                loss += F.nll_loss(log_probabilities, targets, ignore_index=IGNORED, reduction="sum")
                if hidden_gradient is None:
                    continue
                gradient = _logit_gradient(log_probabilities, targets)[:, :vocabulary].to(hidden.dtype)
                torch.mm(gradient, weight, out=hidden_gradient[start : start + size])
                if weight_gradient is None:
                    weight_gradient = (gradient.T @ chunk).float()
                elif hidden.dtype == torch.float32:
                    weight_gradient.addmm_(gradient.T, chunk)
                else:  # the sum over chunks stays in float32
                    weight_gradient += gradient.T @ chunk
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        ctx.weight_dtype = weight.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scale = output_gradients[0]
        # In place: they are ours alone, and a second backward would find them changed and say so.
        return hidden_gradient.mul_(scale), weight_gradient.mul_(scale).to(ctx.weight_dtype), None


def _log_softmax(logits: Tensor) -> Tensor:
    """In float32, in the logits' own memory where they have that type already."""
    if logits.dtype == torch.float32:
        return torch.log_softmax(logits, dim=-1, out=logits)
    return F.log_softmax(logits.float(), dim=-1)


def _logit_gradient(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """softmax − one-hot, zero where the target is ignored; overwrites its input."""
    counts = targets != IGNORED
    gradient = log_probabilities.exp_()
    gradient[torch.arange(len(targets), device=targets.device), targets.clamp_min(0)] -= 1.0
    if not bool(counts.all()):
        gradient *= counts.unsqueeze(-1)
    return gradient
