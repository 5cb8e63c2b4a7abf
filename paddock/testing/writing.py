"""A GPT-2 and a T5 that write something worth comparing, in any layout: for a pool of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paddock.inference.generation.decoder import Decoder
from paddock.inference.generation.generate import Limits, check_prompts, room_for, write
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.parallel_decoder import ParallelDecoder, Replica, follow, leading
from paddock.models.build import build_part, complete_part
from paddock.models.config import ModelConfig
from paddock.models.layers.initialization import initialize
from paddock.models.model import allocate
from paddock.models.registry import build_model
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.parallel.mesh import build_mesh
from paddock.testing.layouts import small_recipe, small_t5, this_world

MODELS = ("gpt2", "t5", "mt5")
GREEDY = GenerationOptions(max_new_tokens=8, temperature=0, stop_token=3)
WAYS = {
    "greedy": GREEDY,
    "sampled": replace(GREEDY, temperature=1.5, top_k=50, top_p=0.98, seed=5, num_return_sequences=2),
    "beams": replace(GREEDY, num_beams=3, num_return_sequences=2),
}


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
    whole = build_model(config_of(model)).eval()
    initialize(whole, seed=1)
    options = check_prompts(whole, prompts, WAYS[way])
    room = room_for(whole, prompts, options, Limits(sequences))
    return write(Generator(Decoder(whole, room)), prompts, options)


def write_together(
    rank: int, jobs: Sequence[tuple[str, str]], layouts: Sequence[dict[str, Any]], prompts: Sequence[Sequence[int]]
) -> list[dict[int, list[list[int]]]]:
    """For a pool: what each job, (model, way), gives in each layout; by the numbers of prompts, where this process
    leads a replica."""
    world = this_world()
    found: list[dict[int, list[list[int]]]] = []
    for values in layouts:
        parallel = ParallelConfig(**values)
        layout = derive_layout(parallel, world.size)
        mesh = build_mesh(layout, rank, "cpu", reversed_stages=True)
        for model, way in jobs:
            stage = build_part(config_of(model), parallel, mesh)
            allocate(stage, world.device)
            initialize(stage.model, seed=1)
            complete_part(stage, mesh)
            replica = Replica(stage, mesh, world.device)
            numbers = range(mesh.data_rank, len(prompts), layout.data)
            found.append({})
            if not replica.leads:
                follow(replica)
                continue
            mine = [prompts[number] for number in numbers]
            with leading(replica):
                options = check_prompts(replica.model, mine, WAYS[way])
                room = room_for(replica.model, mine, options, Limits(6), layout.pipeline)
                results = write(Generator(ParallelDecoder(replica, room)), mine, options, numbers=numbers)
            copies = options.num_return_sequences
            found[-1] = {number: results[at * copies : (at + 1) * copies] for at, number in enumerate(numbers)}
    return found
