"""torch's layers without their own random beginnings: a model's weights are drawn by name, once it is built."""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """A linear layer whose weights are not drawn here."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""


class Embedding(nn.Embedding):
    """An embedding whose weights are not drawn here."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""
