"""What a model writes for held-out samples, beside what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from paddock.evaluation.text_scores import TextScorer
from paddock.inference.generate import generate
from paddock.inference.sampling import SamplingOptions
from paddock.inference.sequence_to_sequence import target_options
from paddock.process import progress
from paddock.tasks.task import Judgement, Writing

Generate = Callable[[nn.Module, Sequence[Sequence[int]], SamplingOptions], list[list[int]]]
AT_ONCE = 64
"""Samples whose texts are in memory together; how many the model computes at once is the generator's choice."""


def judge_written(
    writing: Writing,
    model: nn.Module,
    samples: Sequence[int],
    scorer: TextScorer,
    write: Generate = generate,
) -> Judgement:
    """Sums over the samples of these numbers. The model is a whole one, in this process; the same whatever writes
    beside it, since greedy and beam search draw nothing by chance."""
    options = target_options(writing.max_new_tokens, writing.num_beams, writing.stop_token)
    found = Judgement()
    for first in range(0, len(samples), AT_ONCE):
        part = samples[first : first + AT_ONCE]
        for sample, tokens in zip(part, write(model, [writing.source(one) for one in part], options), strict=True):
            found.add(Judgement(scorer.sums(writing.decode(tokens), writing.reference(sample))))
        progress()
    return found
