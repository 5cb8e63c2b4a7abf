"""torch's layers without their own random beginnings: a model's weights are drawn by name, once it is built."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.widen import widen


class Linear(nn.Linear):
    """A linear layer whose weights are not drawn here."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""


class Embedding(nn.Embedding):
    """An embedding whose weights are not drawn here."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""


class LayerNorm(nn.LayerNorm):
    """A layer norm that takes its own parameters in fewer bits than its input: sharded weights are gathered so."""

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, widen(self.weight), widen(self.bias), self.eps)
