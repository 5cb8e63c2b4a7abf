"""Span corruption, what T5 and mT5 learn from: short spans are cut out of a passage, and the decoder fills them in.

As in the T5 paper: 15 % of the tokens, in spans of 3 on average. A passage begins with text that stays and ends with
a span that goes; no two spans touch. In the input each span is replaced by its sentinel; the target is every span
behind its sentinel. Both end with the end token. There is no further sentinel behind the last span: the paper's
figure draws one, but T5's own code, and the Hugging Face example after it, write none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.data.language.corpus import Sample
from paddock.data.language.passages import Passages
from paddock.errors import ConfigError, bad_value
from paddock.models.config import IGNORED

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class SpanOptions:
    """How long samples are, and how much of a passage is cut out."""

    encoder_length: int = 512
    decoder_length: int = 128
    masking: float = 0.15
    """The part of the tokens that is cut out."""
    mean_span: float = 3.0
    """Tokens in a span, on average."""


@dataclass(frozen=True)
class SpanTokens:
    """The token ids with a meaning of their own."""

    pad: int
    end: int
    sentinels: tuple[int, ...]
    start: int | None = None
    """What the decoder begins with; None: `pad`, as T5 does."""


class SpanCorruption:
    """Makes samples: tokens and mask [encoder_length], decoder_tokens and labels [decoder_length].

    A passage is as long as it can be without its input or its target passing their lengths. `unmarked` has for every
    token id the one that the model knows it by: a corpus with marks of Chinese words needs it.
    """

    shortest = 2

    def __init__(self, options: SpanOptions, tokens: SpanTokens, unmarked: Tokens | None = None) -> None:
        if not 0 < options.masking < 1:
            raise bad_value("masking", options.masking, "a part of every passage goes and a part stays", "try 0.15")
        if options.mean_span < 1:
            raise bad_value("mean_span", options.mean_span, "a span has at least one token", "try 3")
        self._options, self.tokens, self._unmarked = options, tokens, unmarked
        self._sentinels = np.asarray(tokens.sentinels, dtype=np.int64)
        lengths = np.arange(int(options.encoder_length / (1 - options.masking)) + 3)
        self._removed, self._spans = removed, spans = _amounts(lengths, options)
        fits = (lengths - removed + spans < options.encoder_length) & (removed + spans < options.decoder_length)
        self.longest = int(np.argmin(fits)) - 1
        if self.longest < self.shortest:
            raise ConfigError(
                f"encoder_length = {options.encoder_length}, decoder_length = {options.decoder_length}",
                why="not even a passage of two tokens fits with its sentinel and the end token",
                fix="make both at least 3",
            )
        needed = int(spans[self.longest])
        if needed > len(tokens.sentinels):
            raise ConfigError(
                f"a passage of {self.longest} tokens has {needed} spans, but the tokenizer {len(tokens.sentinels)} "
                "sentinels",
                why="each span is named by a sentinel of its own",
                fix="give the tokenizer more with --tokenizer.extra-ids, set a larger mean_span, or shorter samples",
            )

    def check(self, passages: Passages) -> None:
        """Any passage will do."""

    def sample(self, passages: Passages, passage: int, generator: np.random.Generator) -> Sample:
        options, special = self._options, self.tokens
        source, target = self.corrupt(self.text(passages, passage), generator)
        tokens = np.full(options.encoder_length, special.pad)
        tokens[: len(source)] = source
        mask = np.zeros(options.encoder_length, dtype=np.int64)
        mask[: len(source)] = 1
        labels = np.full(options.decoder_length, IGNORED)
        labels[: len(target)] = target
        decoder_tokens = np.full(options.decoder_length, special.pad)
        decoder_tokens[0] = special.pad if special.start is None else special.start
        decoder_tokens[1 : len(target) + 1] = target[: options.decoder_length - 1]
        return {"tokens": tokens, "mask": mask, "decoder_tokens": decoder_tokens, "labels": labels}

    def text(self, passages: Passages, passage: int) -> Tokens:
        """A passage as the model reads it, before anything is cut out."""
        text = np.concatenate(passages.read(passage), dtype=np.int64)
        return text if self._unmarked is None else self._unmarked[text]

    def corrupt(self, text: Tokens, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """A passage's input and target, without padding."""
        removed, spans = int(self._removed[len(text)]), int(self._spans[len(text)])
        kept_before = _ends(len(text) - removed, spans, generator)
        removed_until = _ends(removed, spans, generator)
        begins = kept_before.copy()
        begins[1:] += removed_until[:-1]
        change = np.zeros(len(text) + 1, dtype=np.int8)
        change[begins] = 1
        change[kept_before + removed_until] = -1
        goes = np.cumsum(change, dtype=np.int8).view(np.bool_)
        # A sentinel takes the place of a span's first token in the input, and of the token before it in the target.
        return self._name_spans(text, ~goes, begins), self._name_spans(text, goes, begins - 1)

    def _name_spans(self, text: Tokens, keep: NDArray[np.bool_], places: NDArray[np.int64]) -> Tokens:
        """The text that is kept, with the sentinels at their places and the end token behind."""
        row = np.empty(len(text) + 1, dtype=np.int64)
        row[:-1] = text
        row[-1] = self.tokens.end
        row[places] = self._sentinels[: len(places)]
        keep[places] = keep[-1] = True
        return row[keep]


def _amounts(lengths: NDArray[np.int64], options: SpanOptions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tokens go from passages of these lengths, and in how many spans."""
    removed = np.clip(np.round(lengths * options.masking).astype(np.int64), 1, lengths - 1)
    spans = np.round(removed / options.mean_span).astype(np.int64)
    return removed, np.clip(spans, 1, np.minimum(removed, lengths - removed))


def _ends(total: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Where `parts` non-empty parts of `total` end; every way to cut it is equally likely."""
    ends = np.empty(parts, dtype=np.int64)
    ends[:-1] = generator.permutation(total - 1)[: parts - 1] + 1
    ends[-1] = total
    ends.sort()
    return ends
