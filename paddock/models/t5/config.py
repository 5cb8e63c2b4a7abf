"""The shape of a T5 or an mT5, and what it costs."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from paddock.errors import bad_value
from paddock.models.config import BEGIN, FINISH, Exchange, SampleShape, UnitCost
from paddock.models.transformer.config import TransformerConfig


class T5Config(TransformerConfig):
    """An encoder that reads a source and a decoder that writes a target, with relative positions and no biases.

    T5 v1.0 is `activation: relu, gated: false, tied: true, scale_head: true`; T5 v1.1 and mT5 are the defaults here.
    """

    fields_without_shape: ClassVar[tuple[str, ...]] = (
        *("tied", "activation", "norm_eps", "scale_head", "max_distance", "decoder_start"),
    )

    family: Literal["t5"] = "t5"
    """The model family."""
    layers: int = Field(12, gt=0)
    """Encoder blocks."""
    decoder_layers: int | None = Field(None, gt=0)
    """Decoder blocks; None is as many as the encoder has."""
    head_size: int = Field(64, gt=0)
    """Width of an attention head; heads × head_size need not be hidden."""
    feed_forward: int | None = Field(2048, gt=0)
    """Width of the feed-forward layer; None is 4 × hidden."""
    vocab: int = Field(32128, gt=0)
    """Tokens in the vocabulary."""
    activation: Literal["gelu_tanh", "gelu", "relu"] = "gelu_tanh"
    """The feed-forward non-linearity."""
    gated: bool = True
    """Whether what the feed-forward layer widens is multiplied by a gate of its own (T5 v1.1, mT5)."""
    tied: bool = False
    """Whether the head is the token embedding (T5 v1.0)."""
    scale_head: bool = False
    """Whether what the head takes is scaled by 1 ÷ √hidden (T5 v1.0)."""
    position_buckets: int = Field(32, gt=3, multiple_of=2)
    """How many distances the relative position bias tells apart."""
    max_distance: int = Field(128, gt=0)
    """From this distance on all are one."""
    norm_eps: float = Field(1e-6, gt=0)
    """Added to the mean of squares in norms."""
    decoder_start: int = Field(0, ge=0)
    """The token that the decoder begins with; T5's is its padding."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """How much of each training label is spread evenly over all tokens; evaluations are without it."""
    init_factor: float = Field(1.0, gt=0)
    """All initial weights are multiplied by it."""

    @model_validator(mode="after")
    def _start_is_a_token(self) -> Self:
        if self.decoder_start >= self.vocab:
            raise bad_value(
                "model.decoder_start",
                self.decoder_start,
                f"the model's tokens are 0 to {self.vocab - 1}",
                "set it to the id of the tokenizer's padding, or of the token that begins a text",
            )
        return self

    @model_validator(mode="after")
    def _far_is_behind_near(self) -> Self:
        near = self.position_buckets // 2
        if self.max_distance <= near:
            raise bad_value(
                "model.max_distance",
                self.max_distance,
                f"of {self.position_buckets} buckets, {near} are for the distances below {near}, one each",
                f"more than {near}, or fewer position_buckets",
            )
        return self

    @property
    def num_decoder_layers(self) -> int:
        return self.decoder_layers or self.layers

    @property
    def inner(self) -> int:
        """Width of all attention heads together."""
        return self.heads * self.head_size

    def variant(self) -> str:
        kinds = {(False, True, True): "T5 v1.0", (True, False, False): "T5 v1.1 or mT5"}
        return kinds.get((self.gated, self.tied, self.scale_head), "")

    def in_words(self, field: str) -> str:
        if field == "tied":
            return "the head is the token embedding" if self.tied else "the head is a weight of its own"
        return super().in_words(field)

    def task(self) -> str:
        return "span_corruption"

    def tasks(self) -> tuple[str, ...]:
        return ("span_corruption", "sequence_to_sequence")

    def serves(self, task: str) -> bool:
        return task in self.tasks()

    def start_token(self) -> int:
        return self.decoder_start

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        hidden, tokens = self.hidden, self.vocab * self.hidden
        source, target = shape.source, shape.target
        embedding = {"embedding.token.weight": tokens}
        return [
            UnitCost(
                BEGIN,
                parameters=tokens,
                flops=0.0,
                saved=source,
                output=source * hidden,
                exchange=Exchange(0, (3 if sequence else 2) * source * hidden),
            ),
            *(self._encoder_cost(index, shape, sequence, recompute) for index in range(self.layers)),
            *(self._decoder_cost(index, shape, sequence, recompute) for index in range(self.num_decoder_layers)),
            UnitCost(
                FINISH,
                parameters=hidden + (0 if self.tied else tokens),
                flops=2.0 * target * tokens,
                saved=target * (3 * hidden + 2) + tokens,
                exchange=Exchange(2 * target * hidden, target * hidden if sequence else 0),
                shared=embedding if self.tied else {},
            ),
        ]

    def _encoder_cost(self, index: int, shape: SampleShape, sequence: bool, recompute: bool) -> UnitCost:
        length, hidden, wide = shape.source, self.hidden, self.feed_forward_width
        products = 4 * hidden * self.inner + self._feed_forward_products
        bias = self.position_buckets * self.heads
        return UnitCost(
            f"encoder.{index}",
            parameters=products + 2 * hidden + (0 if index else bias),
            flops=2.0 * length * (products + 2 * self.inner * length),
            saved=length * (4 * hidden + 4 * self.inner + self._widths * wide + self.heads * length + 2),
            output=length * hidden,
            exchange=self._exchange(2, length, sequence, recompute),
            shared={"position_bias.encoder.weight": bias} if index else {},
        )

    def _decoder_cost(self, index: int, shape: SampleShape, sequence: bool, recompute: bool) -> UnitCost:
        """Keys and values of cross-attention are made of the source; everything else is as long as the target."""
        source, target, hidden, wide = shape.source, shape.target, self.hidden, self.feed_forward_width
        here = 6 * hidden * self.inner + self._feed_forward_products
        there = 2 * hidden * self.inner
        bias = self.position_buckets * self.heads
        attention = 2.0 * target * self.inner * (2 * target + 2 * source)
        first = {"encoder_norm.weight": hidden, "position_bias.decoder.weight": bias}
        kept = target * (6 * hidden + 6 * self.inner + self._widths * wide + self.heads * (target + 1) + 3)
        return UnitCost(
            f"decoder.{index}",
            parameters=here + there + 3 * hidden + (0 if index else sum(first.values())),
            flops=2.0 * target * here + 2.0 * source * there + attention,
            saved=kept + source * 2 * self.inner,
            output=(source + target) * hidden,
            exchange=self._decoder_exchange(index, shape, sequence, recompute),
            shared={"position_bias.decoder.weight": bias} if index else {"embedding.token.weight": self.vocab * hidden},
        )

    @property
    def _widths(self) -> int:
        """How many tensors as wide as the feed-forward layer are kept of it."""
        return 4 if self.gated else 2

    @property
    def _feed_forward_products(self) -> int:
        return (3 if self.gated else 2) * self.hidden * self.feed_forward_width

    def _exchange(self, parts: int, length: int, sequence: bool, recompute: bool) -> Exchange:
        """Of a block with so many parts (attentions, the feed-forward layer), each of which takes its input from all
        processes and adds its output up over all; a gate takes it once more. Recomputing leaves out the very last."""
        again, inputs = int(recompute), parts + self.gated
        if sequence:
            compute, float32 = 2 * parts + again * (parts - 1), 2 * inputs + again * inputs
        else:
            compute, float32 = 2 * parts + again * 2 * (parts - 1), 2 * inputs
        return Exchange(compute * length * self.hidden, float32 * length * self.hidden)

    def _decoder_exchange(self, index: int, shape: SampleShape, sequence: bool, recompute: bool) -> Exchange:
        """Keys and values take what was read from all processes; the first block embeds the target."""
        block, again = self._exchange(3, shape.target, sequence, recompute), int(recompute)
        memory = shape.source * self.hidden * (2 + again * sequence)
        embedding = 0 if index else shape.target * self.hidden * (2 + sequence + 2 * again)
        return Exchange(block.compute, block.float32 + memory + embedding)
