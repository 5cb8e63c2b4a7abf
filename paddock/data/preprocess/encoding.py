"""From a chunk of documents to tokens: what every worker does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from paddock.data.config import TokenizerConfig
from paddock.data.indexed.index import dtype_for
from paddock.data.language.sentences import split_sentences
from paddock.data.preprocess.chunks import Chunk
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.data.preprocess.parsing import BadLine, parse_chunk
from paddock.data.preprocess.words import WordCache, find_border
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder
from paddock.errors import ConfigError, DataError


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents of one key: tokens back to back, the size of each sequence, the number of sequences of each."""

    tokens: NDArray[np.integer]
    sizes: NDArray[np.int64]
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedChunk:
    """What a chunk became: the documents of every key, and the lines that could not be used."""

    keys: list[EncodedDocuments]
    num_documents: int
    num_empty: int
    """Documents without a token, summed over the keys: they are left out."""
    bad: list[BadLine]


class ChunkEncoder:
    """Turns chunks into tokens. Every process has its own."""

    def __init__(self, job: PreprocessJob) -> None:
        self._job = job
        self.tokenizer = open_tokenizer(job.tokenizer)
        self.dtype = dtype_for(self.tokenizer.vocab_size)
        self._eod = self._end_of_document() if job.append_eod else None

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        documents = parse_chunk(chunk, self._job.json_keys)
        encoded = [self.encode(texts) for texts in documents.texts]
        count = len(documents.texts[0])
        num_empty = sum(count - len(part.documents) for part in encoded)
        return EncodedChunk(encoded, count, num_empty, documents.bad)

    def encode(self, texts: list[str]) -> EncodedDocuments:
        """The tokens of some documents. Sentences and documents that have none are left out."""
        document_of = np.arange(len(texts))
        if self._job.split_sentences:
            sentences = [split_sentences(text, self._job.keep_newlines) for text in texts]
            document_of = np.repeat(document_of, [len(part) for part in sentences])
            texts = list(chain.from_iterable(sentences))
        tokens, sizes = self._tokens_of(texts)
        document_of, sizes = document_of[sizes > 0], sizes[sizes > 0]
        _, documents = np.unique(document_of, return_counts=True)
        if self._eod is not None and len(documents):
            last = np.cumsum(documents) - 1
            tokens = np.insert(tokens, np.cumsum(sizes)[last], self._eod)
            sizes[last] += 1
        return EncodedDocuments(tokens, sizes, documents.astype(np.int64))

    @cached_property
    def _words(self) -> WordCache | None:
        border = find_border(self.tokenizer)
        return None if border is None else WordCache(self.tokenizer, border, self.dtype)

    def _tokens_of(self, texts: list[str]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        if self._words is not None:
            parts = self._words.encode(texts)
            sizes = np.fromiter(map(len, parts), np.int64, len(parts)) // self.dtype.itemsize
            return np.frombuffer(b"".join(parts), self.dtype), sizes
        ids = self.tokenizer.encode_batch(texts)
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(chain.from_iterable(ids), self.dtype, int(sizes.sum())), sizes

    def _end_of_document(self) -> int:
        if self.tokenizer.end_of_text_id is None:
            raise ConfigError(
                "--append-eod: the tokenizer has no end-of-text token",
                why="it has none of the usual names, <|endoftext|>, </s> or [SEP]",
                fix="name it: --end-of-text TOKEN",
            )
        return self.tokenizer.end_of_text_id


def open_tokenizer(source: TokenizerConfig | TokenizerFolder) -> Tokenizer:
    """The tokenizer of a job."""
    if isinstance(source, TokenizerConfig):
        tokenizer = load_tokenizer(source)
        assert tokenizer is not None, "a job names the files of its tokenizer"
        return tokenizer
    tokenizer = load_tokenizer_folder(source.path, source.end_of_text)
    if tokenizer is None:
        raise DataError(f"there is no tokenizer in {source.path}", fix="check the folder")
    return tokenizer
