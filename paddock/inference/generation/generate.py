"""Continuing prompts with a language model, or answering them with an encoder-decoder model: all of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paddock.inference.generation.decoder import Decoder, Room
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.parallel_decoder import ParallelDecoder, Replica
from paddock.inference.generation.prompts import check_options, check_prompt
from paddock.inference.generation.requests import Request, TokenLogprobs
from paddock.models.layers.packing import packed_weights
from paddock.models.model import Model, evaluating

OnToken = Callable[[int, int], bool | None]
"""Called with the number of the sequence and each of its tokens, as soon as there is one. True ends the sequence."""
OnEnd = Callable[[int], None]
"""Called with the number of a sequence that has its last token."""


@dataclass(frozen=True)
class Limits:
    """How much is computed at once, at most; every prompt is, however large it is."""

    sequences: int = 32
    cache_bytes: int = 2**31
    """What the keys and values of all of them may take together, in one process."""


def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    on_token: OnToken | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    numbers: Sequence[int] | None = None,
    replica: Replica | None = None,
) -> list[list[int]]:
    """The new tokens of every sequence, without its prompt and without the stop token.

    Prompt p's continuations are the sequences p × num_return_sequences and following. Prompts of about equal length
    are read together; each sequence draws from its own generator, seeded by the options' seed and its own place
    alone (`numbers`, where these are not all prompts), so what a prompt gives does not depend on the others. Where
    several processes hold the model, this one leads the `replica`.
    """
    results: list[list[int]] = [[] for _ in range(len(prompts) * options.num_return_sequences)]
    for _ in generating(model, prompts, options, results, on_token, limits, numbers, replica):
        pass
    return results


def generating(
    model: Model,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    results: list[list[int]],
    on_token: OnToken | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    numbers: Sequence[int] | None = None,
    replica: Replica | None = None,
    logprobs: list[list[TokenLogprobs]] | None = None,
    on_end: OnEnd | None = None,
) -> Iterator[None]:
    """The same, step by step: the new tokens are in `results`, how likely each of them was in `logprobs`, and all were
    told, whenever it gives way."""
    options = check_prompts(model, prompts, options)
    if not prompts:
        return
    groups = 1 if replica is None else replica.mesh.layout.pipeline
    room = room_for(model, prompts, options, limits, groups)
    with evaluating(model), packed_weights(model, room.slots):
        decoder = Decoder(model, room) if replica is None else ParallelDecoder(replica, room)
        yield from writing(Generator(decoder), prompts, options, results, on_token, numbers, logprobs, on_end)


def writing(
    generator: Generator,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    results: list[list[int]],
    on_token: OnToken | None = None,
    numbers: Sequence[int] | None = None,
    logprobs: list[list[TokenLogprobs]] | None = None,
    on_end: OnEnd | None = None,
) -> Iterator[None]:
    """The same, by a generator that has room for them."""
    copies = options.num_return_sequences
    by_length = sorted(range(len(prompts)), key=lambda place: -len(prompts[place]))
    number_of = range(len(prompts)) if numbers is None else numbers
    place_of = {generator.add(Request(prompts[place], options, number_of[place])): place for place in by_length}
    while generator.busy:
        for event in generator.step():
            sequence = place_of[event.request] * copies + event.sequence
            results[sequence] += event.tokens
            if logprobs is not None and event.logprobs is not None:
                logprobs[sequence].append(event.logprobs)
            enough = [on_token(sequence, token) for token in event.tokens] if on_token is not None else []
            if any(enough) and not event.ended:
                generator.end(event.request, event.sequence)
            if on_end is not None and (event.ended or any(enough)):
                on_end(sequence)
        yield


def write(
    generator: Generator,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    numbers: Sequence[int] | None = None,
) -> list[list[int]]:
    """The same, all at once."""
    results: list[list[int]] = [[] for _ in range(len(prompts) * options.num_return_sequences)]
    for _ in writing(generator, prompts, options, results, numbers=numbers):
        pass
    return results


def room_for(
    model: Model, prompts: Sequence[Sequence[int]], options: GenerationOptions, limits: Limits, groups: int = 1
) -> Room:
    """As many slots as are needed, or as memory should bear, and how many tokens each has room for."""
    longest, new = max(len(prompt) for prompt in prompts), options.max_new_tokens
    capacity, source = (longest + new - 1, 0) if model.writes == "tokens" else (new, longest)
    width = max(options.num_beams, options.num_return_sequences)
    bearable = min(limits.sequences, limits.cache_bytes // Room(1, capacity, source).num_bytes(model)) // groups
    needed = -(-len(prompts) // groups) * width
    return Room(max(width, min(bearable, needed)), capacity, source, groups)


def check_prompts(model: Model, prompts: Sequence[Sequence[int]], options: GenerationOptions) -> GenerationOptions:
    """The options as this model means them; raises a UserError for what it cannot write."""
    options = options.with_temperature(continues=model.writes == "tokens")
    options.check()
    check_options(model.config, options)
    for number, prompt in enumerate(prompts):
        where = f"prompt {number + 1} of {len(prompts)}" if len(prompts) > 1 else "the prompt"
        check_prompt(model.config, where, prompt, options)
    return options
