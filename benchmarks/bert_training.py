"""BERT-base question answering on a CPU: training, beside Hugging Face's model.

Every setting runs in a process of its own; they take turns, a step at a time, and the figure of a setting is its median
step. Run: python benchmarks/bert_training.py [--rounds 1] [--steps 8]
"""

from __future__ import annotations

from typing import Any

from comparison import Child, Result, compare, measure_gemm, timed
from report import Row

BATCH, SEQUENCE = 4, 384


def rows(best: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    return [*figures(best, "train", 3), *ratios(best, "train")]


def figures(best: dict[str, Result], work: str, cost: int) -> list[Row]:
    """What was measured; `work` of a row takes so many times the operations of a forward pass."""
    from paddock.config.load import load_recipe
    from paddock.models.config import SampleShape

    flops = cost * load_recipe("bert/base-uncased-squad").model.forward_flops(SampleShape(SEQUENCE))
    table: list[Row] = [("best GEMM, GFLOP/s", best["gemm"]["speed"] / 1e9, "")]
    table += [(f"{name}, rows/s", result["speed"], "") for name, result in best.items() if name != "gemm"]
    table += [(f"{name}, peak MB", result["memory"] / 1e6, "") for name, result in best.items() if name != "gemm"]
    return [*table, (f"{work}: fraction of the GEMM", best["paddock"]["speed"] * flops / best["gemm"]["speed"], "")]


def ratios(best: dict[str, Result], work: str) -> list[Row]:
    """Beside the peer with its defaults and at its best."""
    ours, eager, tuned = (best[name] for name in ("paddock", "hf-eager", "hf-best"))
    return [
        (f"{work}: ratio to hf-eager", ours["speed"] / eager["speed"], "≥ 1.15"),
        (f"{work}: ratio to hf-best", ours["speed"] / tuned["speed"], "≥ 1.0"),
        (f"{work}: peak memory ÷ hf-eager", ours["memory"] / eager["memory"], ""),
    ]


def huggingface(steps: int, tuned: bool) -> Result:
    import torch

    model, asked, answers = their_model(BATCH, tuned)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True if tuned else None)

    def step() -> None:
        model(**asked, start_positions=answers[:, 0], end_positions=answers[:, 1]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, BATCH)


def paddock(steps: int) -> Result:
    import torch

    from paddock.training.optimization.optimizer import build_optimizer

    recipe, model = our_model()
    model.train()
    optimizer = build_optimizer(list(model.parameters()), recipe.optimizer)
    tokens, types, answers = inputs(BATCH)
    lengths = torch.full((BATCH,), SEQUENCE)

    def step() -> None:
        (model(tokens, answers, types, lengths) / BATCH).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, BATCH)


def their_model(batch: int, tuned: bool) -> tuple[Any, dict[str, Any], Any]:
    """Hugging Face's model, in evaluation, as it comes or at its best; what it is asked, and the answers."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    if tuned:
        from paddock.devices import select

        select("cpu").prepare()
    torch.manual_seed(0)
    model = BertForQuestionAnswering(BertConfig()).eval()
    if tuned:
        for block in model.bert.encoder.layer:
            block.compile()
    tokens, types, answers = inputs(batch)
    return model, {"input_ids": tokens, "token_type_ids": types, "attention_mask": torch.ones_like(tokens)}, answers


def our_model() -> tuple[Any, Any]:
    """The recipe and its model, with initial weights, on a CPU that is made ready as for a run."""
    from paddock.config.load import load_recipe
    from paddock.devices import select
    from paddock.models.layers.initialization import initialize
    from paddock.models.registry import build_model

    select("cpu").prepare()
    recipe = load_recipe("bert/base-uncased-squad")
    model = build_model(recipe.model).eval()
    initialize(model, recipe.train.seed)
    return recipe, model


def inputs(batch: int) -> tuple[Any, Any, Any]:
    """Tokens, their types and answers: full rows."""
    import torch

    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 30522, (batch, SEQUENCE), generator=generator)
    types = (torch.arange(SEQUENCE) >= 64).long().expand(batch, SEQUENCE).contiguous()
    return tokens, types, torch.randint(0, SEQUENCE, (batch, 2), generator=generator)


CHILDREN: dict[str, Child] = {
    "gemm": measure_gemm,
    "hf-eager": lambda steps: huggingface(steps, tuned=False),
    "hf-best": lambda steps: huggingface(steps, tuned=True),
    "paddock": paddock,
}

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows)
