"""Span corruption shown as text: some passages of a corpus, what the encoder would read of them, and what the decoder
would write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paddock.data.config import SpanConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.passages import Passages
from paddock.data.tokenizers.load import Tokenizer
from paddock.errors import DataError
from paddock.tasks.span_corruption import span_objective


@dataclass(frozen=True)
class SpanPreview:
    """A passage before and after."""

    document: int
    tokens: int
    """In the passage."""
    spans: int
    passage: str
    source: str
    """What the encoder reads: each span is its sentinel."""
    target: str
    """What the decoder writes: each span behind its sentinel."""
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


def preview_spans(prefix: str, data: SpanConfig, tokenizer: Tokenizer, count: int, seed: int) -> list[SpanPreview]:
    """The first passages of `count` documents, spread over the corpus, with spans cut out as in training."""
    corpus = IndexedTokens(prefix)
    if len(corpus) == corpus.num_documents:
        raise DataError(
            f"{prefix} is not split into sentences",
            why=f"each of its {corpus.num_documents:,} documents is one sequence, and passages are made of sentences",
            fix="preprocess it with --split-sentences; training cuts such documents wherever a passage is full",
        )
    objective = span_objective(data, tokenizer)
    chosen = np.unique(np.linspace(0, corpus.num_documents - 1, min(count, corpus.num_documents)).astype(np.int64))
    found = []
    for document in chosen.tolist():
        passages = Passages(corpus, range(document, document + 1), objective.longest, objective.shortest)
        if not len(passages):  # too short for a span
            continue
        highest = max(int(part.max()) for part in passages.read(0))
        if highest >= tokenizer.vocab_size:
            raise DataError(
                f"the tokenizer does not fit {prefix}",
                why=f"document {document} has token {highest}, but the tokenizer has {tokenizer.vocab_size} tokens",
                fix="give the one it was made with",
            )
        text = objective.text(passages, 0)
        source, target = objective.corrupt(text, np.random.default_rng([seed, document]))
        spans = len(source) + len(target) - len(text) - 2 >> 1  # a sentinel in each, and both end
        rows = (text.tolist(), source.tolist(), target.tolist())
        words = [tokenizer.decode_named(row) for row in rows]
        found.append(SpanPreview(document, len(text), spans, words[0], words[1], words[2], *map(tuple, rows[1:])))
    if count and not found:
        raise DataError(f"none of {len(chosen)} documents of {prefix} has {objective.shortest} tokens")
    return found
