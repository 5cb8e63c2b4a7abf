"""Prompts as tokens, and whether a model can take them: its shape and its tokenizer tell, before weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from paddock.data.tokenizers.interface import Tokenizer
from paddock.errors import ConfigError, DataError, bad_value
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.trained import read_trained_config, read_trained_tokenizer
from paddock.models.config import ModelConfig
from paddock.models.registry import build_model


class PromptCheck:
    """Looks at prompts as the model that `source` names will see them."""

    def __init__(self, source: str, options: GenerationOptions) -> None:
        self._config, self._options = read_trained_config(source), options
        with torch.device("meta"):
            writes = build_model(self._config).writes
        check_writes(writes, source)
        self._continues = writes == "tokens"
        self._tokenizer = read_trained_tokenizer(source)
        check_tokenizer(self._tokenizer, self._config, source)
        check_options(self._config, replace(options, stop_token=self._tokenizer.end_of_text_id))

    def check(self, named: Sequence[tuple[str, str]]) -> None:
        """Raise for the first that the model cannot take, by its name."""
        found = prompt_ids(self._tokenizer, [prompt for _, prompt in named], self._continues)
        for (where, _), ids in zip(named, found, strict=True):
            check_prompt(self._config, where, ids, self._options)


def prompt_ids(tokenizer: Tokenizer, prompts: Sequence[str], continues: bool) -> list[list[int]]:
    """The tokens of prompts: to be continued, or, each with its end, to be read. Where nothing is said, a document
    begins: with the token that ends the one before."""
    found, end = tokenizer.encode_batch(list(prompts)), tokenizer.end_of_text_id
    if end is None:
        return found
    return [(ids or [end]) if continues else [*ids, end] for ids in found]


def check_writes(writes: str | None, origin: str | Path) -> None:
    """Raise ConfigError for a model that writes no text."""
    if writes is None:
        raise ConfigError(f"{origin} does not write text", fix=f"paddock predict {origin} … uses it for what it does")


def check_tokenizer(tokenizer: Tokenizer, config: ModelConfig, origin: str | Path) -> None:
    """Raise DataError for a tokenizer with more tokens than the model has. Special ones that were added behind them do
    no harm unless a prompt has one, which is then refused by itself."""
    vocab, ids = config.vocabulary(), range(tokenizer.vocab_size)
    special = {*tokenizer.sentinel_ids, *map(tokenizer.id_of, tokenizer.special.values())}
    if any(id not in special and tokenizer.token_at(id) for id in ids[vocab:]):
        raise DataError(
            f"the tokenizer of {origin} has {len(ids):,} tokens",
            why=f"the model's vocabulary has {vocab:,}: the tokenizer is not this model's",
            fix="put the tokenizer there that the model was trained with",
        )


def check_options(config: ModelConfig, options: GenerationOptions) -> None:
    """Raise a UserError for options that this model's vocabulary has no room for."""
    vocab = config.vocabulary()
    if options.top_k is not None and options.top_k > vocab:
        raise bad_value("top_k", options.top_k, f"the vocabulary has {vocab} tokens", f"at most {vocab}")
    if options.logprobs is not None and options.logprobs > vocab:
        raise bad_value("logprobs", options.logprobs, f"the vocabulary has {vocab} tokens", f"at most {vocab}")
    if options.num_beams > vocab:
        raise bad_value("num_beams", options.num_beams, f"the vocabulary has {vocab} tokens", f"at most {vocab}")
    if options.stop_token is not None and not 0 <= options.stop_token < vocab:
        why = f"the vocabulary has {vocab} tokens: the model would never stop there"
        raise bad_value("stop_token", options.stop_token, why, "use the tokenizer the model was trained with")


def check_prompt(config: ModelConfig, where: str, ids: Sequence[int], options: GenerationOptions) -> None:
    """Raise a UserError for tokens that the model cannot go on from; `where` is what the prompt is called."""
    vocab, context = config.vocabulary(), config.longest_sequence()
    if not ids:
        raise ConfigError(
            f"{where} is empty",
            why="the model continues from at least one token, and its tokenizer has none that ends a text",
            fix="give some text",
        )
    foreign = next((token for token in ids if not 0 <= token < vocab), None)
    if foreign is not None:
        raise DataError(
            f"{where} has the token {foreign}",
            why=f"the model's vocabulary has {vocab} tokens: the tokenizer is not this model's",
            fix="use the tokenizer the model was trained with",
        )
    if context is not None:
        _check_room(where, len(ids), options.max_new_tokens, context)


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
