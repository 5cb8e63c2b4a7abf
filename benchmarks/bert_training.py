"""BERT-base question answering on a CPU, training and prediction, beside Hugging Face's model.

Every setting runs in a process of its own; they take turns, a step at a time, and the figure of a setting is its median
step. Prediction is of full rows; what rows of like length together save is counted apart, over lengths as SQuAD has
them. Run: python benchmarks/bert_training.py [--rounds 1] [--steps 8]
"""

from __future__ import annotations

from typing import Any

from comparison import Child, Result, compare, measure_gemm, timed
from report import Row

TRAIN, PREDICT, SEQUENCE = 4, 8, 384
MANY = 64
"""Rows of different lengths."""


def rows(best: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    from paddock.config.load import load_recipe

    flops = load_recipe("bert/base-uncased-squad").model.forward_flops(SEQUENCE)
    table: list[Row] = [("best GEMM, GFLOP/s", best["gemm"]["speed"] / 1e9, "")]
    table += [(f"{name}, rows/s", result["speed"], "") for name, result in best.items() if name != "gemm"]
    table += [(f"{name}, peak MB", result["memory"] / 1e6, "") for name, result in best.items() if name != "gemm"]
    for work, cost in (("train", 3), ("predict", 1)):
        ours, eager, tuned = (best[f"{who}-{work}"] for who in ("paddock", "hf-eager", "hf-best"))
        table += [
            (f"{work}: ratio to hf-eager", ours["speed"] / eager["speed"], "≥ 1.15"),
            (f"{work}: ratio to hf-best", ours["speed"] / tuned["speed"], "≥ 1.0"),
            (f"{work}: fraction of the GEMM", ours["speed"] * cost * flops / best["gemm"]["speed"], ""),
            (f"{work}: peak memory ÷ hf-eager", ours["memory"] / eager["memory"], ""),
        ]
    padded, bucketed = best["paddock-predict-padded"]["speed"], best["paddock-predict-by-length"]["speed"]
    return [*table, ("predict: rows of like length ÷ all padded to 384", bucketed / padded, "")]


def huggingface(steps: int, tuned: bool, train: bool) -> Result:
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    if tuned:
        from paddock.devices import select

        select("cpu").prepare()
    torch.manual_seed(0)
    model = BertForQuestionAnswering(BertConfig()).train(train)
    if tuned:
        for block in model.bert.encoder.layer:
            block.compile()
    batch = TRAIN if train else PREDICT
    tokens, types, answers = inputs(batch)
    asked = {"input_ids": tokens, "token_type_ids": types, "attention_mask": torch.ones_like(tokens)}
    if not train:
        with torch.inference_mode():
            return timed(lambda: model(**asked), steps, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True if tuned else None)

    def step() -> None:
        model(**asked, start_positions=answers[:, 0], end_positions=answers[:, 1]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, batch)


def paddock_training(steps: int) -> Result:
    import torch

    from paddock.training.optimizer import build_optimizer

    recipe, model = our_model()
    model.train()
    optimizer = build_optimizer(list(model.parameters()), recipe.optimizer)
    tokens, types, answers = inputs(TRAIN)
    lengths = torch.full((TRAIN,), SEQUENCE)

    def step() -> None:
        (model(tokens, answers, types, lengths) / TRAIN).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(step, steps, TRAIN)


def paddock_prediction(steps: int) -> Result:
    import torch

    from paddock.inference.rows import outputs_of

    _, model = our_model()
    tokens, types, _ = inputs(PREDICT)
    batch = {"tokens": tokens, "token_types": types, "lengths": torch.full((PREDICT,), SEQUENCE)}
    return timed(lambda: outputs_of(model, batch), steps, PREDICT)


def paddock_lengths(steps: int, bucketed: bool) -> Result:
    """Rows of many lengths: each filled up to 384, or to the longest of a batch of like ones."""
    import torch

    from paddock.data.text_rows import by_length, pad_rows
    from paddock.inference.rows import outputs_of

    _, model = our_model()
    generator = torch.Generator().manual_seed(2)
    # Rows of SQuAD: half of them between 120 and 200 tokens, few above 300.
    lengths = (torch.randn(MANY, generator=generator) * 60 + 165).clamp(60, SEQUENCE).long().tolist()
    fill_to = None if bucketed else SEQUENCE
    samples = [{"tokens": [1] * length, "token_types": [0] * length, "length": fill_to} for length in lengths]
    parts = by_length(lengths, PREDICT)
    batches = [pad_rows([samples[place] for place in part], 0, SEQUENCE) for part in parts]

    def step() -> None:
        for batch in batches:
            outputs_of(model, batch)

    return timed(step, max(1, steps // 4), MANY)


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
    "hf-eager-train": lambda steps: huggingface(steps, tuned=False, train=True),
    "hf-best-train": lambda steps: huggingface(steps, tuned=True, train=True),
    "paddock-train": paddock_training,
    "hf-eager-predict": lambda steps: huggingface(steps, tuned=False, train=False),
    "hf-best-predict": lambda steps: huggingface(steps, tuned=True, train=False),
    "paddock-predict": paddock_prediction,
    "paddock-predict-padded": lambda steps: paddock_lengths(steps, bucketed=False),
    "paddock-predict-by-length": lambda steps: paddock_lengths(steps, bucketed=True),
}

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows)
