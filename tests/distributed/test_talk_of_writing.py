"""What processes that write together say to each other, and when: logits and never the embedding; and stages of a
pipeline work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.inference.generation.decoder import Decoder, Pass
from paddock.inference.generation.generate import Limits, generate
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.parallel_decoder import FIRST_MESSAGE, HEADER, ParallelDecoder, Replica
from paddock.inference.generation.replica_leader import lead_replica_of
from paddock.models.layers.initialization import initialize
from paddock.parallel.config import Layout
from paddock.testing.collectives import Collectives
from paddock.testing.layouts import small_recipe, this_world
from paddock.testing.pool import ProcessPool
from paddock.testing.processes import wait_for
from paddock.testing.writing import config_of, prompts_of

PoolOf = Callable[[int], ProcessPool]
Talk = list[tuple[str, list[tuple[int, ...]]]]
TENSOR, PIPELINE = Layout(data=1, tensor=2, pipeline=1), Layout(data=1, tensor=1, pipeline=2)
HIDDEN, PART = small_recipe().model.hidden, -(-config_of("gpt2").vocabulary() // 2)
PROMPTS = prompts_of(9)
ROWS = 6
"""That are written at once."""
GREEDY = GenerationOptions(max_new_tokens=8, temperature=0)


def write(layout: Layout, prompts: Sequence[Sequence[int]]) -> None:
    """All of them, by a small GPT-2 over the processes of a pool."""
    with lead_replica_of(config_of("gpt2"), lambda model: initialize(model, seed=1), layout, this_world()) as replica:
        if replica is not None:
            generate(replica.model, prompts, GREEDY, limits=Limits(ROWS), replica=replica)


def talk(rank: int, layout: Layout) -> tuple[int, Talk]:
    """For a pool: how many passes this process computes, and all that it says and hears meanwhile."""
    passes, join, compute = 0, Replica.__init__, Decoder.compute

    def joined(*arguments: Any) -> None:
        join(*arguments)
        seen.found.clear()  # making groups and weights is before

    def counted(decoder: Decoder, work: Pass) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return compute(decoder, work)

    with Collectives() as seen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "__init__", joined)
        patch.setattr(Decoder, "compute", counted)
        write(layout, PROMPTS)
    return passes, seen.found


def of(name: str, said: Talk) -> list[tuple[int, ...]]:
    """The shapes that a kind of collective was given."""
    return [shape for one, shapes in said if one == name for shape in shapes]


def test_logits_are_gathered_and_the_embedding_is_not(pool_of: PoolOf) -> None:
    """Of every process's part of the vocabulary, one score for each row that is written; everything else that goes over
    the tensor group is a sum of hidden vectors."""
    for passes, said in pool_of(2).run(talk, TENSOR):
        assert {name for name, _ in said} == {"broadcast", "allgather", "allreduce"}
        assert passes > GREEDY.max_new_tokens and [name for name, _ in said].count("allgather") == passes
        for shape in of("allgather", said):
            assert shape[0] <= ROWS and shape[1:] == (1, PART), "not the scores of the last token of each row"
        assert all(shape[-1] == HIDDEN and shape[0] <= ROWS for shape in of("allreduce", said))
        assert set(of("broadcast", said)) == {(FIRST_MESSAGE + 1,)}


def test_a_pipeline_hands_on_hidden_vectors_alone(pool_of: PoolOf) -> None:
    """Neither logits, which are chosen from where they are, nor the embedding, which both ends have."""
    for passes, said in pool_of(2).run(talk, PIPELINE):
        names = {name for name, _ in said}
        assert names in ({"broadcast", "send"}, {"broadcast", "recv"})
        (message,) = names - {"broadcast"}
        assert len(of(message, said)) == 2 * passes
        assert {shape[-1] for shape in of(message, said) if shape != (HEADER,)} == {HIDDEN}


EQUAL = [[number, 5, 7] for number in range(4)]
PASSES = 2 * GREEDY.max_new_tokens
"""Of two groups, none of whose sequences ends before the others."""


def overlap(rank: int, folder: str) -> list[int]:
    """For a pool: a pass ends on the last stage only when the first has begun the next one. The groups of all passes,
    as this process computed them."""
    began: list[int] = []
    launched, compute, launch = 0, Decoder.compute, ParallelDecoder.launch

    def noted(decoder: ParallelDecoder, work: Pass) -> None:
        nonlocal launched
        launched += 1
        launch(decoder, work)

    def watched(decoder: Decoder, work: Pass) -> torch.Tensor:
        began.append(work.group)
        leads = isinstance(decoder, ParallelDecoder)
        if not leads:
            Path(folder, str(len(began))).touch()
        found = compute(decoder, work)
        if leads and len(began) < PASSES:
            assert launched > len(began), "the other group's next pass is launched when this one has ended"
            wait_for(Path(folder, str(len(began) + 1)).exists)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParallelDecoder, "launch", noted)
        patch.setattr(Decoder, "compute", watched)
        write(PIPELINE, EQUAL)
    return began


def test_stages_of_a_pipeline_work_at_the_same_time(pool_of: PoolOf, tmp_path: Path) -> None:
    for groups in pool_of(2).run(overlap, str(tmp_path)):
        assert groups == [0, 1] * GREEDY.max_new_tokens
