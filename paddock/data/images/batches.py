"""Images as the numbers that a model computes with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from paddock.data.images.decode import Pixels
from paddock.devices import adapter_of


def stack(images: Sequence[Pixels]) -> Tensor:
    """[batch, height, width, 3] in one piece, which numpy's own stack does not promise."""
    batch = np.empty((len(images), *images[0].shape), dtype=np.uint8)
    for place, image in zip(batch, images, strict=True):
        place[:] = image
    return torch.from_numpy(batch)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Images [batch, height, width, 3] of bytes as [batch, 3, height, width] in float32, on their device.

    In memory the colours of a pixel stay side by side (channels last), and a row of pixels is one long vector for the
    arithmetic. On the host the memory is numpy's, which asks for large pages: else it takes longer to get than to fill.
    """
    count, height, width, colours = images.shape
    factor = images.new_tensor(1 / (255 * np.asarray(std)), dtype=torch.float32).repeat(width)
    shift = images.new_tensor(-np.asarray(mean) / np.asarray(std), dtype=torch.float32).repeat(width)
    shape = (count, height, width * colours)
    if adapter_of(images.device).computes_on_host:
        batch = torch.from_numpy(np.empty(shape, dtype=np.float32))
    else:
        batch = images.new_empty(shape, dtype=torch.float32)
    batch.copy_(images.view(shape)).mul_(factor).add_(shift)
    return batch.view(count, height, width, colours).permute(0, 3, 1, 2)
