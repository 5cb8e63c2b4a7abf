"""Samples for language modelling: windows of consecutive tokens, crossing document borders.

Training reads an endless row of tokens: every epoch is all documents in a new order, and a sample is the
`sequence_length + 1` tokens from where the last one's final token stood, over the borders of documents and of epochs.
The samples that begin in the same epoch come in a new order too. Megatron-LM makes its samples the same way, but its
orders depend on how many samples the run asks for, and need a rule for the last, partial epoch; here both orders are
a pure function of (seed, epoch), so that sample i is the same for every layout and for every length of a run.

Evaluation reads every token of its part in order, and asks for each once.

What a sample that crosses document borders may know of them (positions, attention and loss) is as in Megatron-LM.
Borders are where the end-of-document token stands; that token still belongs to its document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import ArrayCache
from paddock.data.config import CorpusConfig
from paddock.data.language.corpus import BLOCK, Corpus, Sample, TokenLocator, sequences_of
from paddock.data.language.epoch_index import EpochIndexes
from paddock.data.tokenizers.load import Tokenizer
from paddock.errors import ConfigError, DataError, bad_value
from paddock.models.config import IGNORED


@dataclass(frozen=True)
class DocumentEnds:
    """The end-of-document token, and what begins anew behind it."""

    token: int
    reset_positions: bool = False
    reset_attention: bool = False
    mask_loss: bool = False

    def mark(self, sample: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """A sample of `tokens` and `labels` with `positions` in the document, `segments` (the number of the document
        in the sample: tokens see only their own) and without labels at end-of-document tokens, as the options say."""
        tokens, marked = sample["tokens"], dict(sample)
        ends = np.flatnonzero(tokens == self.token)
        borders = np.concatenate([[0], ends + 1, [len(tokens)]])
        starts, lengths = borders[:-1], borders[1:] - borders[:-1]
        if self.reset_positions:
            marked["positions"] = np.arange(len(tokens)) - np.repeat(starts, lengths)
        if self.reset_attention:
            marked["segments"] = np.repeat(np.arange(len(starts)), lengths)
        if self.mask_loss:
            marked["labels"] = sample["labels"].copy()
            marked["labels"][ends] = IGNORED
        return marked


class TrainingSamples:
    """An endless sequence of training samples."""

    def __init__(
        self,
        corpus: Corpus,
        documents: range,
        sequence_length: int,
        seed: int,
        *,
        ends: DocumentEnds | None = None,
        cache: ArrayCache | None = None,
    ) -> None:
        self._epochs = EpochIndexes(corpus, documents, sequence_length, seed, cache)
        self._corpus, self._documents, self._length, self._ends = corpus, documents, sequence_length, ends
        self._locator: TokenLocator | None = None
        self.tokens = self._epochs.tokens
        if self.tokens < 2:
            raise DataError(
                "the training part is empty",
                why=f"its {len(documents)} documents hold {self.tokens} tokens",
                fix="give a larger corpus, or a data.split with more weight on training",
            )

    @property
    def samples_per_epoch(self) -> float:
        """How many samples one pass over the documents makes; epochs follow each other without a gap."""
        return self.tokens / self._length

    def __getitem__(self, index: int) -> Sample:
        epoch, borders = self._epochs.with_sample(index), self._corpus.documents
        number = epoch.first_sample + epoch.samples[index - epoch.first_sample]
        start = number * self._length - epoch.first_token
        position = int(epoch.ends.searchsorted(start, side="right"))
        offset = start - epoch.ends.item(position - 1) if position else start
        tokens = np.empty(self._length + 1, dtype=np.int64)
        filled = 0
        while filled < len(tokens):
            document = epoch.order.item(position)
            sequences = range(borders.item(document), borders.item(document + 1))
            if offset and len(sequences) > 1:
                sequences, offset = self._find(sequences, offset)
            filled += fill_tokens(tokens[filled:], self._corpus, sequences, offset)
            position, offset = position + 1, 0
        return _sample(tokens[:-1], tokens[1:], self._ends)

    def _find(self, sequences: range, offset: int) -> tuple[range, int]:
        """The sequences of a document from the one on that holds its token `offset`, and the place in that one."""
        if len(sequences) <= BLOCK:
            sequence, offset = TokenLocator(self._corpus, sequences).find(offset)
        else:
            if self._locator is None:
                self._locator = TokenLocator(self._corpus, sequences_of(self._corpus, self._documents))
            sequence, offset = self._locator.find(self._locator.number(sequences.start) + offset)
        return range(sequence, sequences.stop), offset


class EvaluationSamples(Sequence[Sample]):
    """Every token of some documents but the first, each as a label exactly once; the last window is padded."""

    def __init__(
        self, corpus: Corpus, documents: range, sequence_length: int, *, ends: DocumentEnds | None = None
    ) -> None:
        self._corpus, self._length, self._ends = corpus, sequence_length, ends
        self._sequences = sequences_of(corpus, documents)
        self._locator = TokenLocator(corpus, self._sequences)

    def __len__(self) -> int:
        return max(0, -(-(self._locator.tokens - 1) // self._length))

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._window(index * self._length)

    def _window(self, start: int) -> Sample:
        """The tokens from `start` on, and behind each the next one as its label."""
        sequence, offset = self._locator.find(start)
        tokens = np.zeros(self._length + 1, dtype=np.int64)
        filled = fill_tokens(tokens, self._corpus, range(sequence, self._sequences.stop), offset)
        labels = tokens[1:].copy()
        labels[filled - 1 :] = IGNORED
        return _sample(tokens[:-1], labels, self._ends)


class SlidingSamples(EvaluationSamples):
    """The same in windows that overlap: each begins `stride` tokens behind the one before, and is asked (`places`) for
    the tokens alone that none before it has, so that all but the first window's see at least `sequence_length - stride`
    others. These are the windows of Hugging Face's documentation, which predicts no token behind a window."""

    def __init__(
        self,
        corpus: Corpus,
        documents: range,
        sequence_length: int,
        stride: int,
        *,
        ends: DocumentEnds | None = None,
    ) -> None:
        assert 0 < stride < sequence_length, "else there are tokens that no window is asked for"
        super().__init__(corpus, documents, sequence_length, ends=ends)
        self._stride = stride

    def __len__(self) -> int:
        tokens = self._locator.tokens
        return 0 if tokens < 2 else 1 + max(0, -(-(tokens - self._length) // self._stride))

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self._stride
        window = self._window(start)
        seen = self._length - self._stride - 1 if index else 0
        places = np.arange(seen, min(self._length, self._locator.tokens - start) - 1)
        return {**window, "labels": window["labels"][places], "places": places}


def fill_tokens(tokens: NDArray[np.int64], corpus: Corpus, sequences: range, offset: int) -> int:
    """Read sequences, the first from `offset` on, until `tokens` is full; returns how many were read."""
    filled = 0
    for sequence in sequences:
        taken = min(corpus.sizes.item(sequence) - offset, len(tokens) - filled)
        tokens[filled : filled + taken] = corpus.slice(sequence, offset, offset + taken)
        filled, offset = filled + taken, 0
        if filled == len(tokens):
            break
    return filled


def _sample(tokens: NDArray[np.int64], labels: NDArray[np.int64], ends: DocumentEnds | None) -> Sample:
    sample = {"tokens": tokens, "labels": labels}
    return sample if ends is None else ends.mark(sample)


def find_document_ends(data: CorpusConfig, tokenizer: Tokenizer | None) -> DocumentEnds | None:
    """What the recipe asks for; None if it does not care about the ends of documents."""
    if not data.minds_document_ends:
        return None
    known = None if tokenizer is None else tokenizer.end_of_text_id
    token = data.eod if known is None else known
    if token is None:
        raise ConfigError(
            "the token that ends a document is not known",
            why="data.reset_position_ids, reset_attention_mask and eod_mask_loss look for it",
            fix="set --data.eod ID, or a tokenizer with an end_of_text",
        )
    if data.eod not in (None, token):
        raise bad_value("data.eod", data.eod, f"the tokenizer ends documents with token {token}", "leave it out")
    return DocumentEnds(token, data.reset_position_ids, data.reset_attention_mask, data.eod_mask_loss)
