"""A GPT-2 and a T5 that write something worth comparing, in any layout: for a pool of processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from statistics import median
from typing import Any

from paddock.devices.config import WeightFormat
from paddock.inference.generation.decoder import Decoder, Room
from paddock.inference.generation.generate import Limits, check_prompts, room_for, write, writing
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.parallel_decoder import ParallelDecoder, Replica, follow, leading
from paddock.inference.generation.requests import TokenLogprobs
from paddock.models.build import build_part, complete_part
from paddock.models.config import ModelConfig
from paddock.models.layers.initialization import initialize
from paddock.models.layers.packing import set_format
from paddock.models.model import Model, allocate
from paddock.models.registry import build_model
from paddock.parallel.config import Layout, ParallelConfig, derive_layout
from paddock.parallel.mesh import build_mesh
from paddock.testing.layouts import small_recipe, small_t5, this_world

MODELS = ("gpt2", "t5", "mt5")
GREEDY = GenerationOptions(max_new_tokens=8, temperature=0, stop_token=3)
WAYS = {
    "greedy": GREEDY,
    "sampled": replace(GREEDY, temperature=1.5, top_k=50, top_p=0.98, seed=5, num_return_sequences=2),
    "beams": replace(GREEDY, num_beams=3, num_return_sequences=2),
}


FORMATS: tuple[WeightFormat, ...] = ("float32", "bfloat16", "int8", "int8-dynamic")
ROUNDING: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.2, "int8": 0.2, "int8-dynamic": 0.2}
"""What log probabilities may differ by where nothing but roundings does, as parts of what they differ by between one
prompt and another: several times what was seen."""


def config_of(name: str) -> ModelConfig:
    """Of a model whose initial weights make the context decide, not one favourite token."""
    if name == "gpt2":
        return small_recipe(model={"init_std": 0.6, "context": 40}).model
    return small_t5(name, model={"init_factor": 3.0}).model


def prompts_of(count: int) -> list[list[int]]:
    """Prompts of many lengths."""
    return [[(7 * number + 3 * place * place) % 101 for place in range(1 + number * 5 % 23)] for number in range(count)]


def write_alone(model: str, way: str, prompts: Sequence[Sequence[int]], sequences: int = 6) -> list[list[int]]:
    """What one process writes."""
    whole = whole_model(config_of(model))
    options = check_prompts(whole, prompts, WAYS[way])
    room = room_for(whole, prompts, options, Limits(sequences))
    return write(Generator(Decoder(whole, room)), prompts, options)


def whole_model(config: ModelConfig, format: WeightFormat = "float32") -> Model:
    """A model in one process."""
    whole = build_model(config).eval()
    initialize(whole, seed=1)
    set_format(whole, format)
    return whole


def write_together(
    rank: int, jobs: Sequence[tuple[str, str]], layouts: Sequence[dict[str, Any]], prompts: Sequence[Sequence[int]]
) -> list[dict[int, list[list[int]]]]:
    """For a pool: what each job, (model, way), gives in each layout; by the numbers of prompts, where this process
    leads a replica."""
    found: list[dict[int, list[list[int]]]] = []
    for values in layouts:
        for model, way in jobs:
            found.append({})
            with _leading(rank, config_of(model), values, "float32") as (replica, layout):
                if replica is None:
                    continue
                numbers = range(replica.mesh.data_rank, len(prompts), layout.data)
                mine = [prompts[number] for number in numbers]
                options = check_prompts(replica.model, mine, WAYS[way])
                room = room_for(replica.model, mine, options, Limits(6), layout.pipeline)
                results = write(Generator(ParallelDecoder(replica, room)), mine, options, numbers=numbers)
            copies = options.num_return_sequences
            found[-1] = {number: results[at * copies : (at + 1) * copies] for at, number in enumerate(numbers)}
    return found


@contextmanager
def _leading(
    rank: int, model: ModelConfig, parallel: dict[str, Any], format: WeightFormat
) -> Iterator[tuple[Replica | None, Layout]]:
    """The replica where this process leads one; None where it has followed."""
    world, config = this_world(), ParallelConfig(**parallel)
    layout = derive_layout(config, world.size)
    mesh = build_mesh(layout, rank, "cpu", reversed_stages=True)
    stage = build_part(model, config, mesh)
    allocate(stage, world.device)
    initialize(stage.model, seed=1)
    complete_part(stage, mesh)
    set_format(stage.model, format)
    replica = Replica(stage, mesh, world.device)
    if not replica.leads:
        follow(replica)
        yield None, layout
        return
    with leading(replica):
        yield replica, layout


# How near two writers are


Told = list[TokenLogprobs]
"""Of a sequence, how likely each token of the vocabulary was in each place."""


def steady(name: str) -> ModelConfig:
    """Of a model that does not magnify roundings: a T5 that is made to say something new would."""
    return config_of(name) if name == "gpt2" else small_t5(name).model


def tell_alone(model: str, format: WeightFormat, prompts: Sequence[Sequence[int]], sequences: int = 6) -> list[Told]:
    """What one process finds of every place, in which it takes the likeliest."""
    config = steady(model)
    return _tell(Generator(Decoder(whole_model(config, format), _room(sequences))), config, prompts)


def tell_together(
    rank: int,
    model: str,
    formats: Sequence[WeightFormat],
    layouts: Sequence[dict[str, Any]],
    prompts: Sequence[Sequence[int]],
) -> list[list[Told]]:
    """For a pool: the same of every layout without data parallelism, in every format; where this process leads."""
    config = steady(model)
    found: list[list[Told]] = []
    for values in layouts:
        for format in formats:
            with _leading(rank, config, values, format) as (replica, layout):
                found.append([])
                if replica is not None:
                    generator = Generator(ParallelDecoder(replica, replace(_room(3), groups=layout.pipeline)))
                    found[-1] = _tell(generator, config, prompts)
    return found


def _room(slots: int) -> Room:
    return Room(slots, capacity=40, source=40)


def _tell(generator: Generator, config: ModelConfig, prompts: Sequence[Sequence[int]]) -> list[Told]:
    options = replace(GREEDY, logprobs=config.vocabulary())
    tokens: list[list[int]] = [[] for _ in prompts]
    logprobs: list[Told] = [[] for _ in prompts]
    for _ in writing(generator, prompts, options, tokens, logprobs=logprobs):
        pass
    return logprobs


def same_but_for_roundings(found: Sequence[Told], expected: Sequence[Told], format: WeightFormat) -> bool:
    """Whether two writers of several prompts find about the same in every place, up to where both find two tokens about
    as likely and do not take the same one."""
    between_prompts = median(_difference(one, other) for one, other in combinations(expected, 2))
    worst = max(_difference(one, other) for one, other in zip(found, expected, strict=True))
    return worst <= ROUNDING[format] * between_prompts


def divergence(found: Sequence[Told], expected: Sequence[Told]) -> float:
    """Of the first tokens' probabilities from those that are expected, in the mean over prompts."""
    totals = []
    for one, other in zip(found, expected, strict=True):
        own = dict(one[0].likeliest)
        totals.append(sum(math.exp(likely) * (likely - own[token]) for token, likely in other[0].likeliest))
    return sum(totals) / len(totals)


def _difference(one: Told, other: Told) -> float:
    """The largest of log probabilities, as far as all tokens before are the same."""
    worst = 0.0
    for mine, theirs in zip(one, other, strict=False):
        own, others = dict(mine.likeliest), dict(theirs.likeliest)
        worst = max(worst, max(abs(own[token] - others[token]) for token in own))
        if mine.likeliest[0][0] != theirs.likeliest[0][0]:
            break
    return worst
