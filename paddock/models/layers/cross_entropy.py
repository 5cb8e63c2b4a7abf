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

CHUNK_ELEMENTS = 2**25
"""How many logits are held at once: large enough for full-speed matrix products, 128 MiB in float32."""


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
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if needs_gradient else None
        weight_gradient: Tensor | None = None
        chunks = max(1, -(-hidden.shape[0] * weight.shape[0] // CHUNK_ELEMENTS))
        with torch.autocast(hidden.device.type, enabled=False):
            for rows in torch.arange(hidden.shape[0]).chunk(chunks):
                start, stop = int(rows[0]), int(rows[-1]) + 1
                chunk, targets = hidden[start:stop], labels[start:stop]
                log_probabilities = F.log_softmax((chunk @ weight.T).float(), dim=-1)
                loss += F.nll_loss(log_probabilities, targets, ignore_index=IGNORED, reduction="sum")
                if hidden_gradient is None:
                    continue
                gradient = _logit_gradient(log_probabilities, targets).to(hidden.dtype)
                torch.mm(gradient, weight, out=hidden_gradient[start:stop])
                if weight_gradient is None:
                    weight_gradient = gradient.T @ chunk
                else:
                    weight_gradient.addmm_(gradient.T, chunk)
        ctx.save_for_backward(hidden_gradient, weight_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scale = output_gradients[0]
        return hidden_gradient * scale, weight_gradient * scale, None


def _logit_gradient(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """softmax − one-hot, zero where the target is ignored; overwrites its input."""
    counts = targets != IGNORED
    gradient = log_probabilities.exp_()
    gradient[torch.arange(len(targets), device=targets.device), targets.clamp_min(0)] -= 1.0
    if not bool(counts.all()):
        gradient *= counts.unsqueeze(-1)
    return gradient
