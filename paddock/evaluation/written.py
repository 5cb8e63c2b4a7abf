"""What a model writes for held-out samples, beside what is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from torch import nn

from paddock.evaluation.text_scores import TextScorer
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.replica_leader import lead_replica_of
from paddock.models.config import ModelConfig
from paddock.models.model import Model
from paddock.parallel.config import Layout
from paddock.parallel.world import World
from paddock.phases import phase
from paddock.process import progress
from paddock.tasks.task import Judgement, Writing

Write = Callable[[Sequence[Sequence[int]], GenerationOptions], list[list[int]]]
"""What a model makes of prompts."""
OpenModel = Callable[[], AbstractContextManager[Write | None]]
"""Gives a model that writes; None, after the others have written, where another process leads."""
AT_ONCE = 64
"""Samples whose texts are in memory together; how many the model computes at once is the generator's choice."""


def judge_written(writing: Writing, samples: Sequence[int], scorer: TextScorer, open_model: OpenModel) -> Judgement:
    """Sums over the samples of these numbers, which all processes of a replica are given and one of them judges. The
    same whatever writes beside it, since greedy and beam search draw nothing by chance."""
    with open_model() as write:
        return Judgement() if write is None else _judge(writing, samples, scorer, write)


def _judge(writing: Writing, samples: Sequence[int], scorer: TextScorer, write: Write) -> Judgement:
    options = GenerationOptions(
        max_new_tokens=writing.max_new_tokens,
        temperature=0.0,
        num_beams=writing.num_beams,
        stop_token=writing.stop_token,
    )
    found = Judgement()
    with phase("writing texts") as told:
        for first in range(0, len(samples), AT_ONCE):
            part = samples[first : first + AT_ONCE]
            for sample, tokens in zip(part, write([writing.source(one) for one in part], options), strict=True):
                found.add(Judgement(scorer.sums(writing.decode(tokens), writing.reference(sample))))
            progress()
            told.update(first + len(part), len(samples))
    return found


@contextmanager
def whole_model(model: nn.Module) -> Iterator[Write]:
    """A model that is in this process, to write."""
    assert isinstance(model, Model)
    yield partial(generate, model)


@contextmanager
def model_in_parts(
    config: ModelConfig, fill: Callable[[Model], object], layout: Layout, world: World
) -> Iterator[Write | None]:
    """A model that nobody has the whole of: every process fills its part of it, and one of a replica leads."""
    with lead_replica_of(config, fill, layout, world) as replica:
        yield None if replica is None else partial(generate, replica.model, replica=replica)
