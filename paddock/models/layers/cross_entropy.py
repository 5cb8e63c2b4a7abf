"""Scores for every token of a vocabulary, and in one step their cross-entropy, or how likely they find given tokens, a
chunk of rows at a time.

Logits for a whole batch are the largest tensor of a language model (batch × time × vocabulary). Here they live
for one chunk only: the chunk's gradients are computed while its logits are at hand, so nothing is computed twice.
No value is read back from the device: rows that do not count are multiplied by zero, never looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import Packed, adapter_of
from paddock.devices.config import CompressedFormat
from paddock.models.config import IGNORED
from paddock.models.layers.basic import wide, widen
from paddock.parallel.vocabulary import VocabularyPartition

CHUNK_ELEMENTS = 2**26
"""How many logits are held at once: large enough for full-speed matrix products, 256 MiB in float32."""

ALIGNMENT = 64
"""Rows of logits begin at multiples of this: with 50257 columns side by side the product is a third slower."""


class VocabularyHead(nn.Module):
    """How alike a vector is to each token's own: scores, or their cross-entropy. The weights belong to whoever calls.

    Tensor parallelism cuts the vocabulary over processes and tells the head so (`partition`), from outside.
    """

    partition: VocabularyPartition | None = None
    """How to join what other processes know, where each holds a part of the vocabulary."""
    packed_for: int | None = None
    """While a model writes (`packed_weights`), how many rows the weights are packed for, when they are first seen."""
    format: CompressedFormat | None = None
    """What the weights are compressed to, when they are first seen, where a model does nothing but write."""
    packed: Packed | None = None

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor | None,
        bias: Tensor | None = None,
        *,
        smoothing: float = 0.0,
        targets: Tensor | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """Scores [..., vocabulary]; given labels, the cross-entropy summed over those that count, of which `smoothing`
        is spread over the vocabulary; or, given targets, what `linear_target_scores` says of them.

        With `places` [batch, places], of `hidden` [batch, time, width] these alone are looked at, and labels or targets
        [batch, places] are theirs: nothing is multiplied that nobody asks for."""
        if places is not None:
            hidden = hidden.take_along_dim(places.unsqueeze(-1), dim=1)
        if self.partition is not None:
            weight = self.partition.local(weight)
            bias = None if bias is None else self.partition.local(bias)
        if labels is not None and self.format is None:
            return linear_cross_entropy(hidden, weight, labels, self.partition, bias, smoothing)
        if targets is not None:
            return linear_target_scores(hidden, weight, targets, self.partition, bias)
        packed = self._pack(weight)
        scores = F.linear(hidden, weight, bias) if packed is None else packed.multiply(hidden, bias)
        scores = scores if self.partition is None else self.partition.gather_columns(scores)
        if labels is None:
            return scores
        # What the model would write is told by what it computes with, so its loss is, too.
        columns = scores.flatten(0, -2).float()
        return F.cross_entropy(columns, labels.flatten(), ignore_index=IGNORED, reduction="sum")

    def _pack(self, weight: Tensor) -> Packed | None:
        if self.packed is None and (self.format is not None or self.packed_for is not None):
            adapter = adapter_of(weight.device)
            compressed = None if self.format is None else adapter.compress(weight, self.format)
            self.packed = compressed or adapter.pack(weight, self.packed_for or 1)
        return self.packed

    def unpack(self) -> None:
        """Forget the packed weights."""
        self.packed_for = self.packed = None


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    partition: VocabularyPartition | None = None,
    bias: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of `hidden @ weight.T + bias` against `labels`, summed over the labels that count.

    hidden: [..., width]; weight: [vocabulary, width]; bias: [vocabulary]; labels: [...], IGNORED where a position
    does not count. With `partition`, `weight` and `bias` are this process's rows, and every process that holds
    others makes the same call. `smoothing` is torch's label smoothing: that part of each label is spread evenly over
    the vocabulary.
    """
    hidden, weight, bias = _in_compute_type(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    if not torch.is_grad_enabled():
        # An autograd function is told which inputs require gradients, not that nobody will ask for them.
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, labels.reshape(-1), partition, smoothing)
    return loss


@torch.no_grad()
def linear_target_scores(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    partition: VocabularyPartition | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Of each target its log probability, zero where it is IGNORED, and the likeliest token in its place: [..., 2].

    Arguments as in `linear_cross_entropy`; no gradients. Of tokens that are alike the first counts, as in greedy
    decoding; its number is exact up to 2 ** 24.
    """
    shape = targets.shape
    hidden, weight, bias = _in_compute_type(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    targets = targets.reshape(-1)
    likely = torch.empty(len(targets), dtype=wide(hidden.dtype), device=hidden.device)
    highest, likeliest = torch.empty_like(likely), torch.empty_like(likely)
    with _without_autocast(hidden.device.type):
        for rows, logits in _logits_in_chunks(hidden, weight, bias):
            best = logits.max(-1)  # before the softmax, whose rounding depends on the part
            highest[rows], likeliest[rows] = best.values.to(likely.dtype), best.indices.to(likely.dtype)
            log_probabilities = _log_softmax(logits, partition)
            likely[rows] = _Targets(targets[rows], weight.shape[0], partition).pick(log_probabilities).squeeze(-1)
    if partition is not None:
        partition.all_reduce_sum(likely)
        everywhere = partition.all_reduce_max(highest.clone())
        first = torch.where(highest == everywhere, -(likeliest + partition.first), -torch.inf)
        likeliest = -partition.all_reduce_max(first)
    return torch.stack([likely, likeliest], dim=-1).reshape(*shape, 2)


def _in_compute_type(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """As autocast would cast them."""
    if torch.amp.is_autocast_available(hidden.device.type) and torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        return hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    return hidden, weight, bias


def _logits_in_chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Which rows a chunk has, and their logits, in memory that the next chunk takes over. Columns behind the
    vocabulary's are padding, and take no part in a softmax.

    A product into given memory is torch's own, past the table of `devices/products.py`: oneDNN cannot write aligned
    rows, and is no faster than MKL where it does."""
    count, size = hidden.shape[0], weight.shape[0]
    chunks = max(1, -(-count * size // CHUNK_ELEMENTS))
    rows = max(1, -(-count // chunks))
    room = hidden.new_empty(rows, -(-size // ALIGNMENT) * ALIGNMENT)
    for start in range(0, count, rows):
        chunk = hidden[start : start + rows]
        logits = room[: len(chunk)]
        logits[:, size:] = -torch.inf
        torch.mm(chunk, weight.T, out=logits[:, :size])
        if bias is not None:
            logits[:, :size] += bias
        yield slice(start, start + len(chunk)), logits


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        partition: VocabularyPartition | None,
        smoothing: float,
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:3])
        size = weight.shape[0]
        spread = smoothing / (size if partition is None else partition.size)
        sums = wide(hidden.dtype)
        loss = torch.zeros((), dtype=sums, device=hidden.device)
        hidden_gradient = torch.empty_like(hidden) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight, dtype=sums) if needs_gradient and not len(hidden) else None
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=sums)
        with _without_autocast(hidden.device.type):
            for rows, logits in _logits_in_chunks(hidden, weight, bias):
                targets = _Targets(labels[rows], size, partition)
                log_probabilities = _log_softmax(logits, partition)
                loss -= (1 - smoothing) * targets.pick(log_probabilities).sum()
                if smoothing:
                    loss -= spread * targets.only_counted(log_probabilities[:, :size].sum(-1)).sum()
                if hidden_gradient is None:
                    continue
                gradient = targets.subtract(log_probabilities.exp_(), 1 - smoothing)[:, :size]
                if smoothing:
                    gradient -= spread
                gradient = gradient.to(hidden.dtype)
                # Rows that do not count are cancelled in what is narrow: a pass over the logits would cost more.
                counts = targets.counts.to(hidden.dtype).unsqueeze(-1)
                torch.mm(gradient, weight, out=hidden_gradient[rows]).mul_(counts)
                if bias_gradient is not None:
                    bias_gradient += (gradient * counts).sum(0, dtype=sums)
                counted = hidden[rows] * counts
                if weight_gradient is None:
                    weight_gradient = (gradient.T @ counted).to(sums)
                elif hidden.dtype == sums:
                    weight_gradient.addmm_(gradient.T, counted)
                else:  # the sum over chunks is kept in more bits
                    weight_gradient += gradient.T @ counted
        if partition is not None:
            partition.all_reduce_sum(loss)
            if hidden_gradient is not None:
                partition.all_reduce_sum(hidden_gradient)
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.weight_dtype, ctx.scaled = weight.dtype, False
        return loss

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        """They are ours alone, so they are scaled in place: once, though some pipelines ask for each by itself. What is
        saved goes when the graph goes, before anybody adds up gradients: a parameter takes over the one that it is
        given, instead of a copy."""
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        if not ctx.scaled:
            for gradient in (hidden_gradient, weight_gradient, bias_gradient):
                if gradient is not None:
                    gradient.data.mul_(output_gradients[0])  # what is saved may not change, in autograd's eyes
            ctx.scaled = True
        of_bias = None if bias_gradient is None else bias_gradient.to(ctx.weight_dtype)
        return hidden_gradient, weight_gradient.to(ctx.weight_dtype), of_bias, None, None, None


def _without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """The types here are chosen; some devices, such as meta, know no others."""
    known = torch.amp.is_autocast_available(device_type)
    return torch.autocast(device_type, enabled=False) if known else nullcontext()


def _log_softmax(logits: Tensor, partition: VocabularyPartition | None) -> Tensor:
    """In the wide type, in the logits' own memory where they have that type already."""
    first = widen(logits[:, 0])
    if logits.dtype == first.dtype:
        first = first.clone()
        result = torch.log_softmax(logits, dim=-1, out=logits)
    else:
        result = F.log_softmax(widen(logits), dim=-1)
    if partition is not None:
        log_sum = first - result[:, 0]  # what the softmax over the part here has subtracted
        result += (log_sum - partition.join_log_sums(log_sum)).unsqueeze(-1)
    return result


class _Targets:
    """The columns of a chunk's targets. Where a row has none here, it points at column 0 with weight 0."""

    def __init__(self, labels: Tensor, size: int, partition: VocabularyPartition | None) -> None:
        self.counts = labels != IGNORED
        columns = labels if partition is None else labels - partition.first
        here = self.counts if partition is None else self.counts & (columns >= 0) & (columns < size)
        self._columns = torch.where(here, columns, 0).unsqueeze(-1)
        self._here = here.unsqueeze(-1)

    def pick(self, log_probabilities: Tensor) -> Tensor:
        """The log probability of each target that is here, zero for the others."""
        return log_probabilities.gather(1, self._columns).masked_fill_(~self._here, 0.0)

    def only_counted(self, sums: Tensor) -> Tensor:
        """Sums over a row, zero for rows that do not count."""
        return sums.masked_fill_(~self.counts, 0.0)

    def subtract(self, probabilities: Tensor, weight: float) -> Tensor:
        """The gradient of the logits, in place: softmax − weight × one-hot. Rows that are ignored are for others to
        cancel."""
        return probabilities.scatter_add_(1, self._columns, -weight * self._here.to(probabilities.dtype))
