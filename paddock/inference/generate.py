"""Continuing prompts with a language model: each token is computed once, and drawn for its own sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from paddock.errors import ConfigError, DataError, NumericsError, bad_value
from paddock.inference.sampling import SamplingOptions, choose
from paddock.models.layers.cache import KeyValueCache
from paddock.models.model import evaluating
from paddock.parallel.seeds import seed_for

OnToken = Callable[[int, int], None]
"""Called with the number of the sequence and each of its tokens, as soon as there is one."""

MAX_BATCH = 32
"""Sequences that are computed together at most."""

CACHE_BYTES = 2**31
"""What the keys and values of several prompts may take together."""


def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    on_token: OnToken | None = None,
) -> list[list[int]]:
    """The new tokens of every sequence, without its prompt and without the stop token.

    Prompt p's continuations are the sequences p × num_return_sequences and following. Prompts of equal length
    are computed together, without padding; each sequence draws from its own generator, seeded by the options'
    seed and its own place alone, so what a prompt gives does not depend on the others.
    """
    options.check()
    _check(model, prompts, options)
    copies = options.num_return_sequences
    results: list[list[int]] = [[] for _ in range(len(prompts) * copies)]

    def report(sequence: int, token: int) -> None:
        results[sequence].append(token)
        if on_token is not None:
            on_token(sequence, token)

    with torch.inference_mode(), evaluating(model):
        for batch in _batches(model, prompts, options):
            _continue(model, prompts, batch, options, report)
    return results


def _continue(
    model: Any, prompts: Sequence[Sequence[int]], batch: list[int], options: SamplingOptions, report: OnToken
) -> None:
    """Continue the prompts numbered in `batch`, all of one length, until each has stopped."""
    device = next(model.parameters()).device
    copies = options.num_return_sequences
    sequences = [prompt * copies + copy for prompt in batch for copy in range(copies)]
    generators = [
        torch.Generator().manual_seed(seed_for(options.seed, "generate", prompt, copy))
        for prompt in batch
        for copy in range(copies)
    ]
    tokens = torch.tensor([list(prompts[prompt]) for prompt in batch], device=device)
    cache = KeyValueCache(model, len(batch), tokens.shape[1] + options.max_new_tokens - 1)
    logits = model(tokens, cache=cache).squeeze(1)
    if copies > 1:  # a prompt is computed once, whatever comes of it
        rows = torch.arange(len(batch), device=device).repeat_interleave(copies)
        cache.reorder(rows)
        logits = logits[rows]
    for step in range(options.max_new_tokens):
        _check_finite(logits)
        chosen = choose(logits, options, generators)
        going = []
        for row, token in enumerate(chosen.tolist()):
            if token != options.stop_token:
                report(sequences[row], token)
                going.append(row)
        if not going or step == options.max_new_tokens - 1:
            return
        if len(going) < len(sequences):
            rows = torch.tensor(going, device=device)
            cache.reorder(rows)
            chosen = chosen[rows]
            sequences = [sequences[row] for row in going]
            generators = [generators[row] for row in going]
        logits = model(chosen.unsqueeze(1), cache=cache).squeeze(1)


def _batches(model: Any, prompts: Sequence[Sequence[int]], options: SamplingOptions) -> Iterator[list[int]]:
    """Numbers of prompts of equal length, as many at a time as memory should bear."""
    bytes_a_token = KeyValueCache(model, 1, 1).num_bytes
    by_length = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    for length, numbers in groupby(by_length, key=lambda number: len(prompts[number])):
        fitting = CACHE_BYTES // ((length + options.max_new_tokens - 1) * bytes_a_token)
        size = max(1, min(MAX_BATCH, fitting) // options.num_return_sequences)
        same = list(numbers)
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _check(model: Any, prompts: Sequence[Sequence[int]], options: SamplingOptions) -> None:
    context, vocab = model.config.longest_sequence(), model.config.vocab
    if options.top_k is not None and options.top_k > vocab:
        raise bad_value("top_k", options.top_k, f"the vocabulary has {vocab} tokens", f"at most {vocab}")
    if options.stop_token is not None and not 0 <= options.stop_token < vocab:
        why = f"the vocabulary has {vocab} tokens: the model would never stop there"
        raise bad_value("stop_token", options.stop_token, why, "use the tokenizer the model was trained with")
    for number, prompt in enumerate(prompts):
        where = f"prompt {number + 1} of {len(prompts)}" if len(prompts) > 1 else "the prompt"
        if not prompt:
            raise ConfigError(
                f"{where} is empty",
                why="the model continues from at least one token",
                fix="give some text, or begin with the end-of-text token",
            )
        foreign = [token for token in prompt if not 0 <= token < vocab]
        if foreign:
            raise DataError(
                f"{where} has the token {foreign[0]}",
                why=f"the model's vocabulary has {vocab} tokens: the tokenizer is not this model's",
                fix="use the tokenizer the model was trained with",
            )
        if context is not None:
            _check_room(where, len(prompt), options.max_new_tokens, context)


def _check_room(where: str, length: int, new: int, context: int) -> None:
    if length >= context:
        raise ConfigError(
            f"{where} has {length} tokens",
            why=f"the model's context is {context}: no room for a new one",
            fix=f"shorten it to at most {context - 1} tokens",
        )
    if length + new > context:
        raise ConfigError(
            f"{where} has {length} tokens + max_new_tokens {new} = {length + new}",
            why=f"the model's context is {context}",
            fix=f"--max-new-tokens {context - length}, or a shorter prompt",
        )


def _check_finite(logits: Tensor) -> None:
    if not bool(logits.isfinite().all()):
        raise NumericsError(
            "the model's logits are not finite",
            why="its weights are broken, or the precision is too low for them",
            fix="generate in float32; if that fails too, the checkpoint is damaged",
        )
