"""GPT-2 124M training on a CPU, beside Hugging Face's model and beside the machine's best matrix product.

Every setting runs in a process of its own; they take turns, a step at a time, so that a noisy machine disturbs all of
them alike, and the figure of a setting is its median step. Of several rounds the middle counts.
Run: python benchmarks/gpt2_training.py [--rounds 1] [--steps 8]
"""

from __future__ import annotations

import time

from comparison import Child, Result, compare, measure_gemm, paddock_train, timed
from report import Row

BATCH, SEQUENCE = 2, 512
TOKENS = BATCH * SEQUENCE


def rows(best: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    from paddock.config.load import load_recipe
    from paddock.models.config import SampleShape

    flops_per_token = 3 * load_recipe("gpt2/117m").model.forward_flops(SampleShape(SEQUENCE)) / SEQUENCE
    ours = best["paddock-loop"]
    return [
        ("best GEMM, GFLOP/s", best["gemm"]["speed"] / 1e9, ""),
        ("its fastest turn, GFLOP/s", best["gemm"]["fastest"] / 1e9, ""),
        ("its fastest single product, GFLOP/s", best["gemm"]["product"] / 1e9, ""),
        *((f"{name}, tokens/s", result["speed"], "") for name, result in best.items() if name != "gemm"),
        *((f"{name}, peak MB", result["memory"] / 1e6, "") for name, result in best.items() if name != "gemm"),
        ("ratio to hf-eager", ours["speed"] / best["hf-eager"]["speed"], "≥ 1.2"),
        ("ratio to hf-best", ours["speed"] / best["hf-best"]["speed"], "≥ 1.0"),
        ("fraction of the GEMM", ours["speed"] * flops_per_token / best["gemm"]["speed"], "≥ 0.77"),
        ("the same, each at its fastest", ours["fastest"] * flops_per_token / best["gemm"]["fastest"], ""),
        ("paddock train ÷ bare loop", best["paddock-train"]["speed"] / ours["speed"], "≥ 0.97"),
        ("first step, s", ours["first_step"], "≤ 20"),
        ("first step with --train.compile on, s", best["paddock-compiled"]["first_step"], "≤ 20"),
        ("peak memory ÷ hf-eager", ours["memory"] / best["hf-eager"]["memory"], "< 1"),
        ("peak memory ÷ hf-best", ours["memory"] / best["hf-best"]["memory"], "< 1"),
    ]


def huggingface(steps: int, tuned: bool) -> Result:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    if tuned:
        from paddock.devices import select

        select("cpu").prepare()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True if tuned else None)
    if tuned:
        for block in model.transformer.h:
            block.compile()
    tokens = torch.randint(0, 50257, (BATCH, SEQUENCE))

    def step() -> None:
        model(tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, TOKENS)


def paddock_loop(steps: int, compiled: bool = False) -> Result:
    """Our model and our optimizer, in a loop with nothing around it."""
    import torch

    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.models.layers.initialization import initialize
    from paddock.models.registry import build_model
    from paddock.training.compilation import compile_blocks
    from paddock.training.optimizer import build_optimizer

    adapter = select("cpu")
    adapter.prepare()
    recipe = load_recipe("gpt2/117m")
    model = build_model(recipe.model).train()
    initialize(model, recipe.train.seed)
    optimizer = build_optimizer(list(model.parameters()), recipe.optimizer)
    started = time.perf_counter()
    if compiled:
        assert compile_blocks(model.unit_modules(), "on", adapter, recipe.model.num_parameters())
    seconds = time.perf_counter() - started
    tokens = torch.randint(0, 50257, (BATCH, SEQUENCE + 1))

    def step() -> None:
        loss = model(tokens[:, :-1], labels=tokens[:, 1:]) / (BATCH * SEQUENCE)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    result = timed(step, steps, TOKENS)
    return {**result, "first_step": seconds + result["first_step"]}


def train_command(steps: int) -> Result:
    flags = ["gpt2/117m", "--data.source", "synthetic", "--data.sequence-length", str(SEQUENCE)]
    flags += ["--batch.micro", str(BATCH), "--batch.global", str(BATCH), "--schedule.warmup", "0"]
    return paddock_train(flags, steps, TOKENS)


# They start in this order: first those whose first step counts, while there is memory that nobody holds.
CHILDREN: dict[str, Child] = {
    "paddock-compiled": lambda steps: paddock_loop(steps, compiled=True),
    "paddock-loop": paddock_loop,
    "paddock-train": train_command,
    "hf-best": lambda steps: huggingface(steps, tuned=True),
    "hf-eager": lambda steps: huggingface(steps, tuned=False),
    "gemm": measure_gemm,
}

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows)
