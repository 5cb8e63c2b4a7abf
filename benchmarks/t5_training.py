"""T5-small on a CPU: training, beside Hugging Face's model.

Encoder 512, decoder 128, batch 4, float32, dropout as published and without. Every setting runs in a process of its
own; they take turns, a step at a time, and the figure of a setting is its median step. The peer runs as it comes
(hf-eager), with fused AdamW and our allocator's settings (hf-tuned), and with its blocks compiled besides
(hf-compiled); its best is the best of these. Run: python benchmarks/t5_training.py [--rounds 1] [--steps 8]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from comparison import Child, Result, compare, measure_gemm, timed
from report import Row

RECIPE = "t5/small"
BATCH, SOURCE, TARGET = 4, 512, 128


def rows(found: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    return table(found, RECIPE, {"": ("≥ 1.25", "≥ 1.1", ""), ", no dropout": ("", "", "")})


def table(found: dict[str, Result], recipe: str, goals: dict[str, tuple[str, str, str]]) -> list[Row]:
    """What was measured, and for each kind of work the ratios to the peer's default and best speed, and memory."""
    from paddock.config.load import load_recipe
    from paddock.models.config import SampleShape

    flops = 3 * load_recipe(recipe).model.forward_flops(SampleShape(SOURCE, TARGET))
    settings = [(name, result) for name, result in found.items() if name != "gemm"]
    out: list[Row] = [("best GEMM, GFLOP/s", found["gemm"]["speed"] / 1e9, "")]
    out += [(f"{name}, rows/s", result["speed"], "") for name, result in settings]
    out += [(f"{name}, peak MB", result["memory"] / 1e6, "") for name, result in settings]
    for work, (eager_goal, best_goal, memory_goal) in goals.items():
        ours, eager = found[f"paddock{work}"], found[f"hf-eager{work}"]
        peers = [found[f"hf-{kind}{work}"] for kind in ("eager", "tuned", "compiled") if f"hf-{kind}{work}" in found]
        best = max(peers, key=lambda result: result["speed"])
        out += [
            (f"train{work}: ratio to hf-eager", ours["speed"] / eager["speed"], eager_goal),
            (f"train{work}: ratio to hf's best", ours["speed"] / best["speed"], best_goal),
            (f"train{work}: peak memory ÷ hf-eager", ours["memory"] / eager["memory"], memory_goal),
            (f"train{work}: peak memory ÷ hf's best", ours["memory"] / best["memory"], memory_goal),
            (f"train{work}: fraction of the GEMM", ours["speed"] * flops / found["gemm"]["speed"], ""),
        ]
    return out


def huggingface(steps: int, recipe: str, kind: str, dropout: float | None) -> Result:
    import torch

    model = their_model(recipe, kind, dropout).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=None if kind == "eager" else True)
    source, target = inputs(model.config.vocab_size)
    mask = torch.ones_like(source)

    def step() -> None:
        model(input_ids=source, attention_mask=mask, labels=target).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, BATCH)


def paddock(steps: int, recipe: str, dropout: float | None) -> Result:
    import torch

    from paddock.training.optimizer import build_optimizer

    loaded, model = our_model(recipe, dropout)
    model.train()
    optimizer = build_optimizer(list(model.parameters()), loaded.optimizer)
    source, target = inputs(loaded.model.vocabulary())
    batch = {
        "tokens": source,
        "labels": target,
        "decoder_tokens": torch.nn.functional.pad(target[:, :-1], (1, 0)),
        "lengths": torch.full((BATCH,), SOURCE),
    }

    def step() -> None:
        (model(**batch) / target.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, BATCH)


def their_model(recipe: str, kind: str, dropout: float | None) -> Any:
    """Hugging Face's model of a recipe's shape. Where that has a head of its own, so has theirs, as when the published
    weights are loaded: built from a config alone, newer versions tie it, and leave out its gradient and moments."""
    import torch
    import transformers

    from paddock.config.load import load_recipe
    from paddock.models.t5.huggingface import to_huggingface_config

    if kind != "eager":
        from paddock.devices import select

        select("cpu").prepare()
    config = with_dropout(load_recipe(recipe).model, dropout)
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**to_huggingface_config(config)))
    if not config.tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    if kind == "compiled":
        for stack in (model.encoder, model.decoder):
            for block in stack.block:
                block.compile()
    return model


def our_model(recipe: str, dropout: float | None = None) -> tuple[Any, Any]:
    """The recipe and its model, with initial weights, on a CPU that is made ready as for a run."""
    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.models.layers.initialization import initialize
    from paddock.models.registry import build_model

    select("cpu").prepare()
    loaded = load_recipe(recipe)
    model = build_model(with_dropout(loaded.model, dropout))
    initialize(model, loaded.train.seed)
    return loaded, model


def with_dropout(config: Any, dropout: float | None) -> Any:
    return config if dropout is None else config.model_copy(update={"dropout": dropout})


def inputs(vocab: int) -> tuple[Any, Any]:
    """Full rows."""
    import torch

    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, vocab, (BATCH, SOURCE), generator=generator)
    return source, torch.randint(2, vocab, (BATCH, TARGET), generator=generator)


def children(recipe: str, kinds: tuple[str, ...], works: dict[str, float | None]) -> dict[str, Child]:
    """Every setting of the peer and ours, for each dropout."""
    found: dict[str, Child] = {"gemm": measure_gemm}
    for work, dropout in works.items():
        for kind in kinds:
            found[f"hf-{kind}{work}"] = partial(huggingface, recipe=recipe, kind=kind, dropout=dropout)
        found[f"paddock{work}"] = partial(paddock, recipe=recipe, dropout=dropout)
    return found


if __name__ == "__main__":
    works = {"": None, ", no dropout": 0.0}
    compare(__doc__ or "", __file__, children(RECIPE, ("eager", "tuned", "compiled"), works), rows)
