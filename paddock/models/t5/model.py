"""T5 and mT5, on one device, as plain PyTorch. Parallelism stands beside them, never inside them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.basic import ACTIVATIONS, Embedding, Linear, widen
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.cross_entropy import VocabularyHead
from paddock.models.layers.dropout import Dropout
from paddock.models.layers.initialization import Initial
from paddock.models.layers.rms_norm import RMSNorm
from paddock.models.model import Batch, Carry, Model
from paddock.models.t5.attention import CrossAttention, RelativePositionBias, SelfAttention
from paddock.models.t5.config import T5Config


class InputEmbedding(nn.Module):
    """Tokens as vectors, of the source and of the target alike; where they stand is told by attention."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.token = Embedding(config.vocab, config.hidden)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.token(tokens))


class WideLinear(Linear):
    """A product whose results float16 cannot hold: there it is made in float32."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or not _narrows(x):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x, widen(self.weight))


class FeedForward(nn.Module):
    """Widen, bend, and narrow; what is widened may have a gate."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.input = Linear(config.hidden, config.feed_forward_width, bias=False)
        if config.gated:
            self.gate = Linear(config.hidden, config.feed_forward_width, bias=False)
        self.output = WideLinear(config.feed_forward_width, config.hidden, bias=False)
        self.dropout = Dropout(config.dropout)
        self.gated = config.gated

    def forward(self, x: Tensor) -> Tensor:
        wide = self.input(x)
        if _narrows(wide):  # T5's activations grow beyond float16 here
            wide = widen(wide)
        wide = self.activation(self.gate(x)) * wide if self.gated else self.activation(wide)
        return self.output(self.dropout(wide))


def _narrows(x: Tensor) -> bool:
    """Whether products are made in float16."""
    device = x.device.type
    if x.dtype == torch.float16:
        return True
    enabled = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return enabled and torch.get_autocast_dtype(device) == torch.float16


class EncoderBlock(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps)
        self.attention = SelfAttention(config, causal=False)
        self.feed_forward_norm = RMSNorm(config.hidden, config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, bias: Tensor, lengths: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), bias, lengths))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class DecoderBlock(nn.Module):
    """The same, with a look at what the encoder read in between."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps)
        self.attention = SelfAttention(config, causal=True)
        self.cross_attention_norm = RMSNorm(config.hidden, config.norm_eps)
        self.cross_attention = CrossAttention(config)
        self.feed_forward_norm = RMSNorm(config.hidden, config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        y: Tensor,
        memory: Tensor | None,
        bias: Tensor,
        lengths: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        y = y + self.dropout(self.attention(self.attention_norm(y), bias, cache=cache))
        y = y + self.dropout(self.cross_attention(self.cross_attention_norm(y), memory, lengths, cache))
        return y + self.dropout(self.feed_forward(self.feed_forward_norm(y)))


class T5(Model):
    """An encoder, a decoder that looks at what it read, and a head.

    tokens: [batch, source], of which `lengths` [batch] count: the others are padding, and nobody sees them.
    decoder_tokens, labels: [batch, target]; each label is the decoder token behind it. Outputs are logits [batch,
    target, vocabulary]; of `targets` [batch, target], which are as labels, only what the head finds of them. With a
    cache, a batch without tokens goes on writing about those that were read before.
    """

    inputs: ClassVar = ("tokens", "labels", "decoder_tokens", "lengths", "targets")
    writes: ClassVar = "decoder_tokens"
    derived: ClassVar = ("position_bias",)
    config: T5Config

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config)
        self.position_bias = nn.ModuleDict(
            {name: RelativePositionBias(config, both_ways=name == "encoder") for name in ("encoder", "decoder")}
        )
        # Dictionaries, so that a block keeps its name when a pipeline stage holds only some of them.
        self.encoder = nn.ModuleDict({str(index): EncoderBlock(config) for index in range(config.layers)})
        self.encoder_norm = RMSNorm(config.hidden, config.norm_eps)
        self.decoder = nn.ModuleDict({str(index): DecoderBlock(config) for index in range(config.num_decoder_layers)})
        self.decoder_norm = RMSNorm(config.hidden, config.norm_eps)
        self.dropout = Dropout(config.dropout)
        if not config.tied:
            self.output = Embedding(config.vocab, config.hidden)
        self.head = VocabularyHead()

    def begin(self, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        if "tokens" not in batch:
            return {"y": self.embedding(batch["decoder_tokens"])}
        return {"x": self.embedding(batch["tokens"])}

    def units(self) -> list[str]:
        return [f"{stack}.{name}" for stack in ("encoder", "decoder") for name in getattr(self, stack, {})]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        block, lengths = self.get_submodule(unit), batch.get("lengths")
        if unit.startswith("encoder"):
            if "tokens" not in batch:
                return carry
            bias = self._bias("encoder", carry, batch["tokens"].shape[1])
            return {"x": block(carry["x"], bias, lengths), "position_bias": bias}
        if "x" in carry:
            memory = self.dropout(self.encoder_norm(carry["x"]))
            carry = {"y": self.embedding(batch["decoder_tokens"]), "memory": memory}
        bias = self._bias("decoder", carry, batch["decoder_tokens"].shape[1], cache)
        return {**carry, "y": block(carry["y"], carry.get("memory"), bias, lengths, cache), "position_bias": bias}

    def _bias(self, stack: str, carry: Carry, length: int, cache: KeyValueCache | None = None) -> Tensor:
        """That of the stack, made by the first of its blocks that is here."""
        if "position_bias" in carry:
            return carry["position_bias"]
        found: Tensor = self.position_bias[stack](length, cache)
        return found

    def finish(self, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Tensor:
        y = carry["y"] if cache is None else cache.last(carry["y"])
        y = self.dropout(self.decoder_norm(y))
        if self.config.scale_head:
            y = y * self.config.hidden**-0.5
        weight = self.embedding.token.weight if self.config.tied else self.output.weight
        smoothing = self.config.label_smoothing if self.training else 0.0
        scores: Tensor = self.head(y, weight, batch.get("labels"), smoothing=smoothing, targets=batch.get("targets"))
        return scores

    def initial(self, name: str) -> Initial:
        """As Mesh TensorFlow begins: attention is not scaled, so that queries begin smaller. A head of its own begins
        as a product does, so that the first loss is about that of a guess; transformers', with numbers around 1, begins
        at several times that."""
        config, module = self.config, name.removesuffix(".weight").rsplit(".", 1)[-1]
        factor, into = config.init_factor, config.init_factor * config.hidden**-0.5
        if "norm" in name:
            return Initial(constant=factor)
        if name == "embedding.token.weight":
            return Initial(std=factor)
        if name == "output.weight":
            return Initial(std=into)
        if module == "qkv":
            smaller = config.head_size**-0.5
            return Initial(std=into, rows=((config.head_size, smaller), (2 * config.head_size, 1.0)))
        if module == "query":
            return Initial(std=into * config.head_size**-0.5)
        if module == "output":
            return Initial(std=factor * (config.inner if "attention" in name else config.feed_forward_width) ** -0.5)
        return Initial(std=into)
