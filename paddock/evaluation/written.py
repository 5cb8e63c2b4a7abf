"""What a model writes for held-out samples, beside what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddock.evaluation.text_scores import TextScorer
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.models.model import Model
from paddock.process import progress
from paddock.tasks.task import Judgement, Writing

Generate = Callable[[Model, Sequence[Sequence[int]], GenerationOptions], list[list[int]]]
AT_ONCE = 64
"""Samples whose texts are in memory together; how many the model computes at once is the generator's choice."""


def judge_written(
    writing: Writing,
    model: Model,
    samples: Sequence[int],
    scorer: TextScorer,
    write: Generate = generate,
) -> Judgement:
    """Sums over the samples of these numbers. The model is a whole one, in this process; the same whatever writes
    beside it, since greedy and beam search draw nothing by chance."""
    options = GenerationOptions(
        max_new_tokens=writing.max_new_tokens,
        temperature=0.0,
        num_beams=writing.num_beams,
        stop_token=writing.stop_token,
    )
    found = Judgement()
    for first in range(0, len(samples), AT_ONCE):
        part = samples[first : first + AT_ONCE]
        for sample, tokens in zip(part, write(model, [writing.source(one) for one in part], options), strict=True):
            found.add(Judgement(scorer.sums(writing.decode(tokens), writing.reference(sample))))
        progress()
    return found
