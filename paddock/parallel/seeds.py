"""Seeds as pure functions of what they are for, so that there is no random state to save or to agree on."""

from __future__ import annotations

import hashlib

import torch


def seed_for(seed: int, *labels: object) -> int:
    """A seed of 63 bits for one purpose: well mixed, and the same on every machine."""
    text = "/".join(map(str, (seed, *labels)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def seed_step(seed: int, step: int, *place: int) -> None:
    """Seed dropout for one step. A resumed run draws what an uninterrupted one would have drawn.

    `place` is the data replica and the pipeline process: those that share a layer begin with the same seed.
    """
    torch.manual_seed(seed_for(seed, "step", step, *place))
