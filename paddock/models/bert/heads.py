"""What stands on BERT's encoder. Each head takes [batch, time, hidden] and labels, and returns its outputs in float32
or, given labels, its loss summed over those that count."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.bert.config import BertConfig
from paddock.models.labels import IGNORED
from paddock.models.layers.basic import Linear
from paddock.models.layers.cross_entropy import linear_cross_entropy
from paddock.models.layers.dropout import dropout
from paddock.models.layers.feed_forward import ACTIVATIONS
from paddock.models.layers.widen import widen
from paddock.parallel.vocabulary import VocabularyShards


class QuestionAnsweringHead(nn.Module):
    """How likely an answer begins, and ends, at each position."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.output = Linear(config.hidden, 2)

    def forward(self, x: Tensor, labels: Tensor | None, lengths: Tensor | None) -> Tensor:
        """Logits [batch, time, 2], as low as can be in padding. labels: [batch, 2], the first and the last position
        of the answer; the loss of a sample is the mean of both."""
        logits: Tensor = widen(self.output(x))
        if lengths is not None:
            padding = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(-1)
            logits = logits.masked_fill(padding.unsqueeze(-1), torch.finfo(logits.dtype).min)
        if labels is None:
            return logits
        return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED) / 2.0


class ClassificationHead(nn.Module):
    """How likely each class is, told from the first token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = Linear(config.hidden, config.hidden)
        self.output = Linear(config.hidden, config.classes)
        self.dropout = config.dropout

    def forward(self, x: Tensor, labels: Tensor | None, lengths: Tensor | None) -> Tensor:
        """Logits [batch, classes]; labels: [batch]. The first token is never padding."""
        pooled = dropout(torch.tanh(self.pooler(x[:, 0])), self.dropout, self.training)
        logits: Tensor = widen(self.output(pooled))
        if labels is None:
            return logits
        return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)


class TokenBias(nn.Module):
    """How likely each token is, whatever the text."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(vocab))


class MaskedLanguageHead(nn.Module):
    """Which token stands at a position: how alike a vector is to each token's own embedding."""

    vocabulary: VocabularyShards | None = None
    """How to join what other processes know, where each holds a part of the vocabulary."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden, config.hidden)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.decoder = TokenBias(config.vocab)

    def forward(self, x: Tensor, labels: Tensor | None, weight: Tensor) -> Tensor:
        """Logits [batch, time, vocabulary]; labels: [batch, time], of which few count, so that only their positions
        are looked at. `weight` is the token embedding."""
        bias: Tensor = self.decoder.bias
        if labels is None:
            if self.vocabulary is not None:
                weight, bias = self.vocabulary.whole(weight), self.vocabulary.whole(bias)
            return widen(F.linear(self._transform(x), weight, bias))
        asked = (labels != IGNORED).flatten().nonzero().squeeze(-1)
        rows = x.flatten(0, 1).index_select(0, asked)
        if self.vocabulary is not None:
            weight, bias = self.vocabulary.part_here(weight), self.vocabulary.part_here(bias)
        return linear_cross_entropy(self._transform(rows), weight, labels.flatten()[asked], self.vocabulary, bias)

    def _transform(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


HEADS: dict[str, type[nn.Module]] = {
    "masked_language_modeling": MaskedLanguageHead,
    "question_answering": QuestionAnsweringHead,
    "sequence_classification": ClassificationHead,
}


def build_head(config: BertConfig) -> nn.Module:
    """The head that a config names."""
    return HEADS[config.head](config)
