"""Masked language modelling, what BERT learns from: some tokens are hidden, and the model says what they were.

A sample is [CLS] A [SEP], or with pairs [CLS] A [SEP] B [SEP], where B follows A in half of the samples and comes
from another document in the other half. 15 % of the text's tokens are chosen: 80 % of these become [MASK], 10 % a
random token, and 10 % stay as they are. Special tokens are never chosen, nor put in at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.data.language.corpus import Sample
from paddock.data.language.passages import Passages
from paddock.errors import ConfigError, DataError, bad_value
from paddock.models.config import IGNORED

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class MaskOptions:
    """How long samples are, and how much of them is hidden."""

    sequence_length: int = 512
    masking: float = 0.15
    """The part of the tokens that is chosen."""
    pairs: bool = False
    """Two texts a sample, for next-sentence prediction."""
    whole_words: bool = False
    """Choose all tokens of a word or none."""


@dataclass(frozen=True)
class MaskTokens:
    """The token ids with a meaning of their own, and how many ids the tokenizer has."""

    cls: int
    sep: int
    mask: int
    pad: int
    vocab: int


class MaskedLanguageModel:
    """Makes samples: tokens, token_types, mask and labels [sequence_length]; with pairs also is_next [].

    `continuation` says for every token id whether it continues a word; whole words need it. `unmarked` has for every
    token id the one that the model knows it by: a corpus with marks of Chinese words needs it. `is_next` is 1 where B
    follows A. (Hugging Face's next_sentence_label counts the other way round.)
    """

    def __init__(
        self,
        options: MaskOptions,
        tokens: MaskTokens,
        continuation: NDArray[np.bool_] | None = None,
        unmarked: Tokens | None = None,
    ) -> None:
        if not 0 < options.masking < 1:
            raise bad_value("masking", options.masking, "a part of every text is hidden and a part stays", "try 0.15")
        if options.whole_words and continuation is None:
            raise ConfigError(
                "whole_words needs a tokenizer that says which tokens continue a word",
                fix="use a WordPiece tokenizer, or set whole_words to false",
            )
        self.shortest = 2 if options.pairs else 1
        self.longest = options.sequence_length - (3 if options.pairs else 2)
        if self.longest < self.shortest:
            raise bad_value(
                "sequence_length", options.sequence_length, "[CLS] and [SEP] leave no room for text", "make it longer"
            )
        self.most_predictions = max(1, round(options.masking * options.sequence_length))
        self._options, self._special = options, tokens
        self._continues = continuation if options.whole_words else None
        self._ordinary = np.ones(tokens.vocab, dtype=np.bool_)
        self._ordinary[[tokens.cls, tokens.sep, tokens.mask, tokens.pad]] = False
        self._unmarked = np.arange(tokens.vocab) if unmarked is None else unmarked
        self._ordinary_ids = np.flatnonzero(self._ordinary & (self._unmarked == np.arange(tokens.vocab)))

    def check(self, passages: Passages) -> None:
        """Pairs need a second document to take other text from."""
        if self._options.pairs and len(passages.document_of(0)) == len(passages):
            raise DataError(
                "all text of this part lies in one document",
                why="half of the pairs take their second text from another one",
                fix="give a corpus of more documents, or set pairs to false",
            )

    def sample(self, passages: Passages, passage: int, generator: np.random.Generator) -> Sample:
        length, special = self._options.sequence_length, self._special
        texts, is_next = self._texts(passages, passage, generator)
        row: list[NDArray[np.int64]] = [np.array([special.cls])]
        for text in texts:
            row += [text, np.array([special.sep])]
        original = np.concatenate(row)
        if int(original.max()) >= special.vocab:
            raise DataError(
                f"the corpus has token {int(original.max())}, but the vocabulary only {special.vocab}",
                fix="preprocess it with the model's tokenizer, or set a larger vocabulary",
            )
        chosen = self._choose(original, generator)
        original = self._unmarked[original]
        tokens = np.full(length, special.pad)
        tokens[: len(original)] = original
        tokens[chosen] = self._mask(original[chosen], generator)
        labels = np.full(length, IGNORED)
        labels[chosen] = original[chosen]
        token_types, mask = np.zeros((2, length), dtype=np.int64)
        token_types[len(texts[0]) + 2 : len(original)] = 1
        mask[: len(original)] = 1
        sample = {"tokens": tokens, "token_types": token_types, "mask": mask, "labels": labels}
        return sample if is_next is None else sample | {"is_next": np.asarray(int(is_next))}

    def _texts(
        self, passages: Passages, passage: int, generator: np.random.Generator
    ) -> tuple[list[Tokens], bool | None]:
        """The one or two texts of a sample, and whether the second follows the first.

        A passage is parted at a sentence's end, or inside its only sentence."""
        sentences = passages.read(passage)
        text = np.concatenate(sentences, dtype=np.int64)
        if not self._options.pairs:
            return [text], None
        ends = np.cumsum([len(sentence) for sentence in sentences[:-1]]) if len(sentences) > 1 else range(1, len(text))
        middle = int(ends[generator.integers(len(ends))])
        is_next = bool(generator.random() < 0.5)
        if is_next:
            return [text[:middle], text[middle:]], True
        other = np.concatenate(passages.read(passages.elsewhere(passage, generator)), dtype=np.int64)
        return [text[:middle], other[: self.longest - middle]], False

    def _choose(self, row: Tokens, generator: np.random.Generator) -> NDArray[np.int64]:
        """The places to predict: words in random order, each taken if it still fits what may be hidden."""
        places = np.flatnonzero(self._ordinary[row])
        if not len(places):
            return places
        budget = min(self.most_predictions, max(1, round(self._options.masking * len(places))))
        if self._continues is None:
            return places[generator.choice(len(places), budget, replace=False, shuffle=False)]
        begins = np.append(True, (np.diff(places) > 1) | ~self._continues[row[places[1:]]])
        first = np.flatnonzero(begins)
        sizes = np.diff(first, append=len(places))
        taken = np.zeros(len(first), dtype=np.bool_)
        taken[_fill(sizes, budget, generator)] = True
        return places[np.repeat(taken, sizes)]

    def _mask(self, tokens: Tokens, generator: np.random.Generator) -> Tokens:
        """What the model sees of the chosen tokens."""
        lot = generator.random(len(tokens))
        random = self._ordinary_ids[generator.integers(len(self._ordinary_ids), size=len(tokens))]
        return np.where(lot < 0.8, self._special.mask, np.where(lot < 0.9, random, tokens))


def _fill(sizes: NDArray[np.int64], budget: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Go through words in random order and take each that fits what is left of the budget; at least one."""
    order = generator.permutation(len(sizes))
    left = sizes[order]
    taken = []
    while len(left):
        ends = np.cumsum(left)
        count = int(np.searchsorted(ends, budget, side="right"))
        if count:
            taken.append(order[:count])
            budget -= int(ends[count - 1])
        fitting = left[count:] <= budget
        order, left = order[count:][fitting], left[count:][fitting]
    return np.concatenate(taken) if taken else np.array([np.argmin(sizes)])
