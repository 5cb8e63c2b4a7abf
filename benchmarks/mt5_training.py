"""mT5-small on a CPU: training, beside Hugging Face's model, with its vocabulary of 250112 tokens.

As t5_training.py, with dropout as published. The head is most of the work, and its logits are most of the memory.
Run: python benchmarks/mt5_training.py [--rounds 1] [--steps 6]
"""

from __future__ import annotations

from comparison import Result, compare
from report import Row
from t5_training import children, table

RECIPE = "mt5/small"


def rows(found: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    return table(found, RECIPE, {"": ("≥ 1.2", "≥ 1.2", "≤ 0.6")})


if __name__ == "__main__":
    compare(__doc__ or "", __file__, children(RECIPE, ("eager", "tuned", "compiled"), {"": None}), rows, steps=6)
