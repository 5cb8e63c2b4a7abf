"""The shape of a GPT-2, and what it costs."""

from __future__ import annotations

from typing import Literal

from paddock.models.config import BEGIN, FINISH, Exchange, SampleShape, UnitCost
from paddock.models.transformer.config import StackConfig


class GPT2Config(StackConfig):
    """A decoder-only transformer with learned positions and a head tied to the token embedding. Initial weights of
    projections into the residual stream are smaller: init_std ÷ √(2 × layers)."""

    family: Literal["gpt2"] = "gpt2"
    """The model family."""

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        length, hidden, again = shape.source, self.hidden, int(recompute)
        activation = length * hidden
        tokens = self.vocab * hidden
        if sequence:
            first, block, last = (0, 3), (4 + again, 4 + 2 * again), (2, 1)
        else:  # recomputing a block leaves out its very last exchange
            first, block, last = (0, 2), (4 + 2 * again, 4), (2, 0)
        begin, layer, finish = (Exchange(*(count * activation for count in pair)) for pair in (first, block, last))
        return [
            UnitCost(BEGIN, tokens + self.context * hidden, 0.0, output=activation, exchange=begin, saved=2 * length),
            *(self.block_cost(f"layers.{index}", length, layer) for index in range(self.layers)),
            UnitCost(
                FINISH,
                parameters=2 * hidden,
                flops=2.0 * length * tokens,
                saved=length * (2 * hidden + 2) + tokens,
                exchange=finish,
                shared={"embedding.token.weight": tokens},
            ),
        ]
