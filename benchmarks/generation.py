"""Greedy generation on a CPU, beside transformers' `generate`: T5-small (eight sources of 64 tokens, 64 new ones) and
GPT-2 124M (one prompt and eight of 32 tokens, 128 new ones), float32; nothing ends before.

Settings take turns, a whole generation at a time. The peer runs as it comes (hf-eager), with our allocator's settings
(hf-tuned), and with a static cache and compiled steps besides (hf-static).
Run: python benchmarks/generation.py [--rounds 1] [--steps 8] [--settings …]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from comparison import Child, Result, compare, timed
from report import Row

WORKS: dict[str, tuple[str, int, int, int, int]] = {
    # recipe, sequences, tokens of each prompt, new tokens, beams
    "T5-small, 8": ("t5/small", 8, 64, 64, 1),
    "T5-small, 8, 4 beams": ("t5/small", 8, 64, 64, 4),
    "GPT-2 124M, 1": ("gpt2/117m", 1, 32, 128, 1),
    "GPT-2 124M, 8": ("gpt2/117m", 8, 32, 128, 1),
}
GOALS = {"T5-small, 8": "≥ 1.5", "GPT-2 124M, 1": "≥ 1.5 (static 1.3)", "GPT-2 124M, 8": "≥ 1.5"}
KINDS = ("eager", "tuned", "static")


def rows(found: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    out: list[Row] = [(f"{name}, tokens/s", result["speed"], "") for name, result in found.items()]
    for work in WORKS:
        ours = found[f"{work}: paddock"]
        if work == "GPT-2 124M, 1":
            # Every token reads all weights once, but for the rows of the embedding that are not looked up.
            out.append((f"{work}: weights read, GB/s", ours["fastest"] * 0.498, ""))
        for kind in KINDS:
            if (theirs := found.get(f"{work}: hf-{kind}")) is not None:
                out.append((f"{work}: ratio to hf-{kind}", ours["speed"] / theirs["speed"], GOALS.get(work, "")))
    return out


def prompts(sequences: int, length: int) -> Any:
    import torch

    return torch.randint(2, 32000, (sequences, length), generator=torch.Generator().manual_seed(1))


def huggingface(steps: int, work: str, kind: str) -> Result:
    import torch

    from paddock.benchmarking.peers import PEERS
    from paddock.config.load import load_recipe
    from paddock.devices import select

    recipe, sequences, length, new, beams = WORKS[work]
    if kind != "eager":
        select("cpu").prepare()
    torch.manual_seed(0)
    model: Any = PEERS["hf"].build(load_recipe(recipe).model).model.eval()
    tokens = prompts(sequences, length)
    settings = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
    settings["use_cache"] = True
    if kind == "static":
        settings["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward)
    mask = torch.ones_like(tokens)
    with torch.inference_mode():
        return timed(lambda: model.generate(tokens, attention_mask=mask, **settings), steps, sequences * new)


def paddock(steps: int, work: str) -> Result:
    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.inference.generate import generate
    from paddock.inference.options import GenerationOptions
    from paddock.models.layers.initialization import initialize
    from paddock.models.registry import build_model

    name, sequences, length, new, beams = WORKS[work]
    recipe, adapter = load_recipe(name), select("cpu")
    adapter.prepare()
    model = build_model(recipe.model).eval()
    initialize(model, recipe.train.seed)
    options = GenerationOptions(max_new_tokens=new, num_beams=beams, temperature=0.0)
    given = prompts(sequences, length).tolist()
    with adapter.using_products(adapter.choose_products("auto", recipe.model.num_parameters())):
        return timed(lambda: generate(model, given, options), steps, sequences * new)


CHILDREN: dict[str, Child] = {}
for _work, (*_, _beams) in WORKS.items():
    CHILDREN |= {
        f"{_work}: hf-{kind}": partial(huggingface, work=_work, kind=kind)
        for kind in (("tuned",) if _beams > 1 else KINDS)
    }
    CHILDREN[f"{_work}: paddock"] = partial(paddock, work=_work)

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows)
