"""Writing indexed files: byte for byte, never a wrapped number, and going on after a kill at any moment."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.indexed import writer as module
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter, WriterPosition
from paddock.errors import DataError, MachineError
from paddock.testing.samples.corpora import INDEX, TOKENS

DTYPES = ["u1", "i1", "i2", "i4", "i8", "u2"]
Documents = list[list[list[int]]]


def documents_of(largest: int) -> st.SearchStrategy[Documents]:
    return st.lists(st.lists(st.lists(st.integers(0, largest), max_size=5), max_size=3), max_size=8)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(prefix: Path) -> tuple[bytes, bytes]:
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


def write(prefix: Path, documents: Documents) -> tuple[bytes, bytes]:
    with IndexedWriter(prefix, vocab=300) as writer:
        for document in documents:
            writer.add_document(*document)
    return content(prefix)


def test_bytes_written(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=50257) as writer:
        writer.add_document([1, 2, 3])
        writer.add_document([4], [])
    assert content(tmp_path / "out") == (TOKENS, INDEX)
    assert names(tmp_path) == ["out.bin", "out.idx"]


def test_many_documents_at_once(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=50257) as writer:
        writer.add(np.array([1, 2, 3, 4]), np.array([3, 1, 0]), np.array([1, 2]))
        writer.add(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        assert writer.flush() == WriterPosition(tokens=4, sequences=3, documents=2)
    assert content(tmp_path / "out") == (TOKENS, INDEX)


def test_nothing_written(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=70000):
        pass
    assert content(tmp_path / "out") == (b"", b"MMIDIDX\x00\x00" + struct.pack("<QBQQq", 1, 4, 0, 1, 0))


@pytest.mark.parametrize(("vocab", "code"), [(65499, 8), (65500, 4), (250112, 4)])
def test_the_smallest_type_that_holds_the_vocabulary(tmp_path: Path, vocab: int, code: int) -> None:
    with IndexedWriter(tmp_path / "out", vocab=vocab) as writer:
        writer.add_document([vocab - 1])
    assert (tmp_path / "out.idx").read_bytes()[17] == code
    assert IndexedTokens(tmp_path / "out")[0].tolist() == [vocab - 1]


@settings(max_examples=60)
@given(documents_of(127), st.sampled_from(DTYPES))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: Documents, dtype: str) -> None:
    prefix = tmp_path_factory.mktemp("round") / "trip"
    with IndexedWriter(prefix, dtype=dtype) as writer:
        for document in documents:
            writer.add_document(*document)
    corpus = IndexedTokens(prefix)
    assert corpus.dtype == np.dtype(dtype)
    assert [corpus[i].tolist() for i in range(len(corpus))] == [s for document in documents for s in document]
    assert np.diff(corpus.documents).tolist() == [len(document) for document in documents]
    assert corpus.read(0, len(corpus)).tolist() == [token for document in documents for s in document for token in s]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_that_does_not_fit(tmp_path: Path, dtype: str) -> None:
    limits = np.iinfo(dtype)
    for token in (limits.min - 1, limits.max + 1):
        with pytest.raises(DataError), IndexedWriter(tmp_path / "out", dtype=dtype) as writer:
            writer.add_document([0, token])
    with IndexedWriter(tmp_path / "out", dtype=dtype) as writer:
        writer.add_document([limits.min, limits.max])
    assert IndexedTokens(tmp_path / "out")[0].tolist() == [limits.min, limits.max]


def test_the_error_says_what_fits(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=100) as writer:
        with pytest.raises(DataError, match=r"token 65536 cannot(.|\n)*uint16, which holds 0 to 65535"):
            writer.add_document([1, 65536])
        with pytest.raises(DataError, match="token -1 cannot"):
            writer.add_document(np.array([1, -1]))
        with pytest.raises(DataError, match="no integers"):
            writer.add_document([0.5])  # type: ignore[list-item]
        writer.add_document([1, 2])  # what was refused has left no trace
    assert content(tmp_path / "out")[0] == struct.pack("<2H", 1, 2)


def test_the_longest_sequence(tmp_path: Path) -> None:
    """An array of 2^31 tokens that takes no memory: each is the same one."""
    tokens = np.broadcast_to(np.uint16(7), 2**31)
    with IndexedWriter(tmp_path / "out", vocab=100) as writer:
        with pytest.raises(DataError, match=r"sequence of 2147483648 tokens(.|\n)*2147483647 is the most"):
            writer.add(tokens, np.array([2**31]), np.array([1]))
        assert writer.flush() == WriterPosition()


def test_beyond_31_and_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that goes on behind 2^31 tokens (a sparse file here) puts everything in its place."""
    sizes = [2**31 - 1, 2**31 - 1, 5]
    (tmp_path / "out.sizes.partial").write_bytes(struct.pack("<3i", *sizes))
    (tmp_path / "out.documents.partial").write_bytes(struct.pack("<2q", 1, 3))
    with open(tmp_path / "out.bin.partial", "wb") as stream:
        stream.truncate(2 * sum(sizes))
    monkeypatch.setattr(module, "checksum_of", lambda path, length: 0)  # of eight gigabytes
    with IndexedWriter(tmp_path / "out", vocab=100, resume_at=WriterPosition(sum(sizes), 3, 2)) as writer:
        writer.add_document([7, 8], [9])
        assert writer.flush() == WriterPosition(2**32 + 6, 5, 3)
    corpus = IndexedTokens(tmp_path / "out")
    assert corpus.num_tokens == 2**32 + 6
    assert corpus.pointers.tolist() == [0, 2**32 - 2, 2**33 - 4, 2**33 + 6, 2**33 + 10]
    assert corpus[3].tolist() == [7, 8] and corpus[4].tolist() == [9]


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), IndexedWriter(tmp_path / "out", vocab=10) as writer:
        writer.add_document([1])
        raise RuntimeError("interrupted")
    assert names(tmp_path) == []


def test_an_older_corpus_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    before = write(tmp_path / "out", [[[1, 2]], [[3]]])
    with pytest.raises(RuntimeError), IndexedWriter(tmp_path / "out", vocab=10) as writer:
        writer.add_document([9])
        raise RuntimeError("interrupted")
    assert content(tmp_path / "out") == before
    write(tmp_path / "out", [[[5]]])
    assert IndexedTokens(tmp_path / "out")[0].tolist() == [5] and names(tmp_path) == ["out.bin", "out.idx"]


@settings(max_examples=40)
@given(documents_of(299), st.data())
def test_going_on_from_any_flush(
    tmp_path_factory: pytest.TempPathFactory, documents: Documents, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("resume")
    expected = write(folder / "whole", documents)
    flushed = data.draw(st.integers(0, len(documents)))
    lost = data.draw(st.integers(flushed, len(documents)))
    with pytest.raises(RuntimeError), IndexedWriter(folder / "part", vocab=300, keep_partial=True) as writer:
        for document in documents[:flushed]:
            writer.add_document(*document)
        position = writer.flush()
        for document in documents[flushed:lost]:
            writer.add_document(*document)
        raise RuntimeError("killed")
    with IndexedWriter(folder / "part", vocab=300, resume_at=position) as writer:
        for document in documents[flushed:]:
            writer.add_document(*document)
    assert content(folder / "part") == expected
    assert names(folder) == ["part.bin", "part.idx", "whole.bin", "whole.idx"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("over_an_older_corpus", [False, True])
@pytest.mark.parametrize("survived", range(6))
def test_going_on_after_a_kill_while_finishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, over_an_older_corpus: bool
) -> None:
    """Whatever was renamed or removed already: from the last flush, the result is the same."""
    documents = [[[1, 2, 3]], [[4], []], [], [[5, 6]]]
    expected = write(tmp_path / "whole", documents)
    if over_an_older_corpus:
        write(tmp_path / "part", [[[9] * 50], [[8]], [[7]], [[6]]])
    steps = 0

    def dying(operation: Callable[..., None]) -> Callable[..., None]:
        def step(*arguments: Any, **options: Any) -> None:
            nonlocal steps
            if steps == survived:
                raise Killed
            steps += 1
            operation(*arguments, **options)

        return step

    with monkeypatch.context() as patch, pytest.raises(Killed):
        writer = IndexedWriter(tmp_path / "part", vocab=300, keep_partial=True)
        with writer:
            for document in documents[:2]:
                writer.add_document(*document)
            position = writer.flush()
            for document in documents[2:]:
                writer.add_document(*document)
            patch.setattr(os, "replace", dying(os.replace))
            patch.setattr(os, "unlink", dying(os.unlink))
        raise Killed  # after all
    assert steps == min(survived, 5)
    with IndexedWriter(tmp_path / "part", vocab=300, resume_at=position) as writer:
        for document in documents[2:]:
            writer.add_document(*document)
    assert content(tmp_path / "part") == expected
    assert names(tmp_path) == ["part.bin", "part.idx", "whole.bin", "whole.idx"]


def test_partial_files_that_are_not_those(tmp_path: Path) -> None:
    position = WriterPosition(3, 2, 1)
    with pytest.raises(DataError, match=r"cannot go on(.|\n)*there is no .*out\.bin\.partial"):
        IndexedWriter(tmp_path / "out", vocab=10, resume_at=position)
    with pytest.raises(RuntimeError), IndexedWriter(tmp_path / "out", vocab=10, keep_partial=True) as writer:
        writer.add_document([1], [2, 3])
        position = writer.flush()
        raise RuntimeError("killed")
    with pytest.raises(DataError, match=r"out\.bin\.partial has 6 bytes, but 8 were written"):
        IndexedWriter(tmp_path / "out", vocab=10, resume_at=WriterPosition(4, 2, 1))
    for counts, file in (((2, 2, 1), "bin"), ((3, 1, 1), "sizes"), ((3, 2, 0), "documents")):
        with pytest.raises(DataError, match=rf"out\.{file}\.partial is no longer what was written"):
            IndexedWriter(tmp_path / "out", vocab=10, resume_at=WriterPosition(*counts, position.checksums))
    with IndexedWriter(tmp_path / "out", vocab=10, resume_at=position):
        pass
    assert IndexedTokens(tmp_path / "out")[1].tolist() == [2, 3]


def test_two_writers_of_one_corpus(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=10) as writer:
        writer.add_document([1])
        with pytest.raises(DataError, match="another process is writing"):
            IndexedWriter(tmp_path / "out", vocab=10)
    assert IndexedTokens(tmp_path / "out")[0].tolist() == [1]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(MachineError, match="No space left"), IndexedWriter(tmp_path / "out", vocab=10) as writer:
        writer.add_document([1])
        monkeypatch.setattr(os, "fsync", full)
    assert names(tmp_path) == []


def test_folders_are_made(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "out", [[[1]]])
    assert names(tmp_path / "a" / "b") == ["out.bin", "out.idx"]
