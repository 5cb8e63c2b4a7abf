"""T5-small on a CPU: greedy generation, beside transformers' `generate`.

Eight sources of 64 tokens, 64 new tokens each (nothing ends before), float32. Settings take turns, a whole generation
at a time. The peer runs as it comes (hf-eager), with our allocator's settings (hf-tuned), and with a static cache and
compiled steps (hf-static). Run: python benchmarks/t5_generation.py [--rounds 1] [--steps 8]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from comparison import Child, Result, compare, timed
from report import Row
from t5_training import our_model, their_model

RECIPE = "t5/small"
BATCH, SOURCE, NEW = 8, 64, 64


def rows(found: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    out: list[Row] = [(f"{name}, tokens/s", result["speed"], "") for name, result in found.items()]
    for beams, goal in (("", "≥ 1.5"), (", 4 beams", "")):
        ours = found[f"paddock{beams}"]["speed"]
        for kind in ("eager", "tuned", "static"):
            if f"hf-{kind}{beams}" in found:
                out.append((f"generate{beams}: ratio to hf-{kind}", ours / found[f"hf-{kind}{beams}"]["speed"], goal))
    return out


def sources() -> Any:
    import torch

    return torch.randint(2, 32000, (BATCH, SOURCE), generator=torch.Generator().manual_seed(1))


def huggingface(steps: int, kind: str, beams: int) -> Result:
    import torch

    model = their_model(RECIPE, "eager" if kind == "eager" else "tuned", None).eval()
    tokens = sources()
    settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": beams}
    if kind == "static":
        settings["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward)
    mask = torch.ones_like(tokens)
    with torch.inference_mode():
        return timed(lambda: model.generate(tokens, attention_mask=mask, **settings), steps, BATCH * NEW)


def paddock(steps: int, beams: int) -> Result:
    from paddock.inference.generate import generate
    from paddock.inference.options import GenerationOptions

    _, model = our_model(RECIPE)
    model.eval()
    options = GenerationOptions(max_new_tokens=NEW, num_beams=beams)
    given = sources().tolist()
    return timed(lambda: generate(model, given, options), steps, BATCH * NEW)


CHILDREN: dict[str, Child] = {
    "hf-eager": partial(huggingface, kind="eager", beams=1),
    "hf-tuned": partial(huggingface, kind="tuned", beams=1),
    "hf-static": partial(huggingface, kind="static", beams=1),
    "paddock": partial(paddock, beams=1),
    "hf-tuned, 4 beams": partial(huggingface, kind="tuned", beams=4),
    "paddock, 4 beams": partial(paddock, beams=4),
}

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows)
