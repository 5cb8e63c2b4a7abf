"""BERT-base question answering on a CPU: prediction, beside Hugging Face's model.

As in bert_training.py the settings take turns, and the median step counts; it is short, and needs more of them. Rows
are full; what rows of like length together save is counted apart, over lengths as SQuAD has them. Run:
python benchmarks/bert_prediction.py [--rounds 1] [--steps 24]
"""

from __future__ import annotations

from bert_training import SEQUENCE, figures, inputs, our_model, ratios, their_model
from comparison import Child, Result, compare, measure_gemm, timed
from report import Row

BATCH = 8
MANY = 64
"""Rows of different lengths."""


def rows(best: dict[str, Result]) -> list[Row]:
    """The ratios that the project promises."""
    saved = best["paddock-by-length"]["speed"] / best["paddock-padded"]["speed"]
    table = [*figures(best, "predict", 1), *ratios(best, "predict")]
    return [*table, ("predict: rows of like length ÷ all padded to 384", saved, "")]


def huggingface(steps: int, tuned: bool) -> Result:
    import torch

    model, asked, _ = their_model(BATCH, tuned)
    with torch.inference_mode():
        return timed(lambda: model(**asked), steps, BATCH)


def paddock(steps: int) -> Result:
    import torch

    from paddock.inference.outputs import outputs_of

    _, model = our_model()
    tokens, types, _ = inputs(BATCH)
    batch = {"tokens": tokens, "token_types": types, "lengths": torch.full((BATCH,), SEQUENCE)}
    return timed(lambda: outputs_of(model, batch), steps, BATCH)


def paddock_lengths(steps: int, bucketed: bool) -> Result:
    """Rows of many lengths: each filled up to 384, or to the longest of a batch of like ones."""
    import torch

    from paddock.data.loading.loader import pad_rows
    from paddock.data.loading.sampler import by_length
    from paddock.inference.outputs import outputs_of

    _, model = our_model()
    generator = torch.Generator().manual_seed(2)
    # Rows of SQuAD: half of them between 120 and 200 tokens, few above 300.
    lengths = (torch.randn(MANY, generator=generator) * 60 + 165).clamp(60, SEQUENCE).long().tolist()
    fill_to = None if bucketed else SEQUENCE
    samples = [{"tokens": [1] * length, "token_types": [0] * length, "length": fill_to} for length in lengths]
    parts = by_length(lengths, BATCH)
    batches = [pad_rows([samples[place] for place in part], 0, SEQUENCE) for part in parts]

    def step() -> None:
        for batch in batches:
            outputs_of(model, batch)

    return timed(step, max(1, steps // 8), MANY)


CHILDREN: dict[str, Child] = {
    "gemm": measure_gemm,
    "hf-eager": lambda steps: huggingface(steps, tuned=False),
    "hf-best": lambda steps: huggingface(steps, tuned=True),
    "paddock": paddock,
    "paddock-padded": lambda steps: paddock_lengths(steps, bucketed=False),
    "paddock-by-length": lambda steps: paddock_lengths(steps, bucketed=True),
}

if __name__ == "__main__":
    compare(__doc__ or "", __file__, CHILDREN, rows, steps=24)
