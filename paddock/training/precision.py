"""Mixed precision: what is computed in fewer bits, and the factor that keeps float16 gradients from vanishing."""

from __future__ import annotations

import torch

from paddock.checkpoint.description import LossScaleState
from paddock.devices import DeviceAdapter
from paddock.errors import bad_value
from paddock.training.config import PrecisionConfig

LARGEST_SCALE = 2.0**32


def autocast_for(config: PrecisionConfig, adapter: DeviceAdapter) -> torch.autocast:
    """The context that forward passes run in."""
    if config.compute != "float32" and config.compute not in adapter.autocast:
        raise bad_value(
            "precision.compute",
            config.compute,
            f"the device {adapter.name} computes in float32{''.join(f', {name}' for name in adapter.autocast)}",
            "choose one of these",
        )
    dtype = getattr(torch, config.compute)
    return torch.autocast(adapter.torch_type, dtype=dtype, enabled=config.compute != "float32")


class LossScale:
    """float16's factor: halved when gradients overflow (that step is skipped), doubled after a window of good steps.

    Other precisions have a constant factor of one.
    """

    def __init__(self, config: PrecisionConfig, adapter: DeviceAdapter) -> None:
        needed = config.compute == "float16" and adapter.float16_needs_loss_scale
        self._dynamic = needed and config.loss_scale == "dynamic"
        self._window = config.scale_window
        self._good_steps = 0
        self.value = 1.0
        self.skipped = 0
        if needed:
            self.value = config.initial_scale if config.loss_scale == "dynamic" else float(config.loss_scale)

    @property
    def can_skip(self) -> bool:
        """Whether an overflow may still be the scale's fault rather than the model's."""
        return self._dynamic and self.value > 1.0

    def overflowed(self) -> None:
        """Gradients were not finite: try again with half the scale."""
        self.value = max(1.0, self.value / 2)
        self._good_steps = 0
        self.skipped += 1

    def succeeded(self) -> None:
        """Gradients were finite."""
        if not self._dynamic:
            return
        self._good_steps += 1
        if self._good_steps == self._window:
            self.value = min(LARGEST_SCALE, self.value * 2)
            self._good_steps = 0

    def state(self) -> dict[str, float]:
        return {"value": self.value, "good_steps": self._good_steps, "skipped": self.skipped}

    def restore(self, state: LossScaleState) -> None:
        """Go on from a checkpoint; a run in another precision keeps its own scale."""
        if self._dynamic and state.value > 1.0:
            self.value = state.value
            self._good_steps = state.good_steps
        self.skipped = state.skipped
