"""What stands on BERT's encoder. Each head takes [batch, time, hidden] and the batch, and returns its outputs in
float32 or, where the batch has labels, its loss summed over those that count."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.bert.config import BertConfig
from paddock.models.config import IGNORED
from paddock.models.layers.basic import ACTIVATIONS, LayerNorm, Linear, widen
from paddock.models.layers.cross_entropy import VocabularyHead
from paddock.models.layers.dropout import Dropout
from paddock.models.model import Batch


class QuestionAnsweringHead(nn.Module):
    """How likely an answer begins, and ends, at each position."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.output = Linear(config.hidden, 2)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Logits [batch, time, 2], as low as can be in padding. labels: [batch, 2], the first and the last position
        of the answer; the loss of a sample is the mean of both."""
        labels, lengths = batch.get("labels"), batch.get("lengths")
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
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Logits [batch, classes]; labels: [batch]. The first token is never padding."""
        logits: Tensor = widen(self.output(self.dropout(torch.tanh(self.pooler(x[:, 0])))))
        labels = batch.get("labels")
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

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden, config.hidden)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.decoder = TokenBias(config.vocab)
        self.scores = VocabularyHead()

    def forward(self, x: Tensor, batch: Batch, weight: Tensor) -> Tensor:
        """Logits [batch, time, vocabulary]. `weight` is the token embedding.

        labels: [batch, time]; or [batch, asked], where `places` [batch, asked] say of which positions. Few are asked
        about, so that training looks at those alone.
        """
        places = batch.get("places")
        if places is not None:
            x = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        scores = self.scores(self.norm(self.activation(self.dense(x))), weight, batch.get("labels"), self.decoder.bias)
        return widen(scores)


HEADS: dict[str, type[nn.Module]] = {
    "masked_language_modeling": MaskedLanguageHead,
    "question_answering": QuestionAnsweringHead,
    "sequence_classification": ClassificationHead,
}


def build_head(config: BertConfig) -> nn.Module:
    """The head that a config names."""
    return HEADS[config.head](config)
