"""Looking into a corpus: the numbers, and what some documents say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddock.data.indexed import inspection
from paddock.data.indexed.inspection import inspect
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.tokenizers.load import train_tokenizer
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.corpora import LEGACY, write_raw_corpus


def test_numbers_do_not_depend_on_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    documents = [
        [generator.integers(0, 90, generator.integers(0, 40)) for _ in range(n)] for n in generator.integers(0, 4, 50)
    ]
    with IndexedWriter(tmp_path / "corpus", vocab=100) as writer:
        for document in documents:
            writer.add_document(*document)
    sequences = [len(sequence) for document in documents for sequence in document]
    lengths = [sum(map(len, document)) for document in documents]
    for block in (1, 7, 1000):
        monkeypatch.setattr(inspection, "BLOCK", block)
        report = inspect(tmp_path / "corpus", 0, None)
        assert (report.documents, report.sequences, report.tokens) == (50, len(sequences), sum(lengths))
        assert report.bytes == 2 * sum(lengths) and report.index_bytes == (tmp_path / "corpus.idx").stat().st_size
        assert report.document_lengths["mean"] == np.mean(lengths)
        assert report.document_lengths["longest"] == max(lengths)
        assert report.sequence_lengths["median"] == np.quantile(sequences, 0.5, method="inverted_cdf")
        assert sum(part.count for part in report.histogram) == 50 and report.samples == []


def test_samples_as_numbers(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "corpus", vocab=100) as writer:
        for first in range(9):
            writer.add_document([first], [], list(range(10, 40)))
    report = inspect(tmp_path / "corpus", 3, None)
    assert [sample.document for sample in report.samples] == [0, 4, 8]
    assert report.samples[1].ids == (4, *range(10, 29)) and report.samples[1].tokens == 31
    assert report.samples[1].text is None
    assert len(inspect(tmp_path / "corpus", 50, None).samples) == 9
    with pytest.raises(ConfigError, match="--documents = -1"):
        inspect(tmp_path / "corpus", -1, None)


def test_samples_as_text(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat " * 20], 300)
    with IndexedWriter(tmp_path / "corpus", tokenizer.vocab_size) as writer:
        for text in ("the cat sat", "on the mat " * 100):
            writer.add_document(tokenizer.encode(text))
    first, second = inspect(tmp_path / "corpus", 2, tokenizer).samples
    assert first.text == "the cat sat"
    assert second.text is not None and second.text.startswith("on the mat on the mat") and second.tokens > 100
    assert tokenizer.encode(second.text) == list(second.ids) and len(second.ids) == 100


def test_a_tokenizer_of_another_corpus(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["cat"], 300)
    with IndexedWriter(tmp_path / "corpus", vocab=5000) as writer:
        writer.add_document([4999])
    with pytest.raises(DataError, match=r"does not fit(.|\n)*has token 4999, but the tokenizer has"):
        inspect(tmp_path / "corpus", 1, tokenizer)


def test_other_corpora(tmp_path: Path) -> None:
    report = inspect(write_raw_corpus(tmp_path, LEGACY), 5, None)
    assert (report.form, report.dtype) == ("legacy", "uint16")
    assert [(sample.document, sample.ids) for sample in report.samples] == [(0, (1, 2, 3)), (1, (4,))]
    with IndexedWriter(tmp_path / "empty", vocab=10):
        pass
    report = inspect(tmp_path / "empty", 5, None)
    assert (report.documents, report.tokens, report.histogram, report.samples) == (0, 0, [], [])
