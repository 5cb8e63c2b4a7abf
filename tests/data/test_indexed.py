"""The indexed format: byte for byte, round trips, and files that are not what they should be."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.indexed import IndexedTokens, IndexedWriter
from paddock.errors import DataError

# Two documents, [[1, 2, 3]] and [[4], []], written out by hand from the format's description.
INDEX = (
    b"MMIDIDX\x00\x00"
    + struct.pack("<Q", 1)  # version
    + struct.pack("<B", 8)  # u16
    + struct.pack("<Q", 3)  # sequences
    + struct.pack("<Q", 3)  # document borders
    + struct.pack("<3i", 3, 1, 0)  # sizes
    + struct.pack("<3q", 0, 6, 8)  # byte pointers
    + struct.pack("<3q", 0, 1, 3)  # borders
)
TOKENS = struct.pack("<4H", 1, 2, 3, 4)


def put(folder: Path, index: bytes = INDEX, tokens: bytes = TOKENS) -> Path:
    (folder / "corpus.idx").write_bytes(index)
    (folder / "corpus.bin").write_bytes(tokens)
    return folder / "corpus"


def test_bytes_written(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "out", vocab=50257) as writer:
        writer.add_document([1, 2, 3])
        writer.add_document([4], [])
    assert (tmp_path / "out.idx").read_bytes() == INDEX
    assert (tmp_path / "out.bin").read_bytes() == TOKENS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.bin", "out.idx"]


def test_bytes_read(tmp_path: Path) -> None:
    corpus = IndexedTokens(put(tmp_path))
    assert [corpus[index].tolist() for index in range(len(corpus))] == [[1, 2, 3], [4], []]
    assert corpus.documents.tolist() == [0, 1, 3]
    assert corpus.slice(0, 1, 3).tolist() == [2, 3]


def test_modes_of_multimodal_files_are_ignored(tmp_path: Path) -> None:
    assert IndexedTokens(put(tmp_path, INDEX + b"\0\1\0"))[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("vocab", "code"), [(65499, 8), (65500, 4), (250112, 4)])
def test_the_smallest_type_that_holds_the_vocabulary(tmp_path: Path, vocab: int, code: int) -> None:
    with IndexedWriter(tmp_path / "out", vocab=vocab) as writer:
        writer.add_document([vocab - 1])
    assert (tmp_path / "out.idx").read_bytes()[17] == code
    assert IndexedTokens(tmp_path / "out")[0].tolist() == [vocab - 1]


@given(st.lists(st.lists(st.lists(st.integers(0, 60000), max_size=5), max_size=3), max_size=8))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]]) -> None:
    prefix = tmp_path_factory.mktemp("round") / "trip"
    with IndexedWriter(prefix, vocab=60001) as writer:
        for document in documents:
            writer.add_document(*document)
    corpus = IndexedTokens(prefix)
    assert [corpus[i].tolist() for i in range(len(corpus))] == [s for document in documents for s in document]
    assert np.diff(corpus.documents).tolist() == [len(document) for document in documents]


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), IndexedWriter(tmp_path / "out", vocab=10) as writer:
        writer.add_document([1])
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []


def patched(position: int, value: bytes) -> bytes:
    return INDEX[:position] + value + INDEX[position + len(value) :]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"", "does not begin with MMIDIDX"),
        (b"GIF89a" + INDEX, "does not begin with MMIDIDX"),
        (INDEX[:20], "truncated: 20 bytes"),
        (INDEX[:-1], r"take 94 bytes, but it has 93"),
        (patched(9, struct.pack("<Q", 2)), "version is 2"),
        (patched(17, b"\x07"), "dtype code is 7"),
        (patched(18, struct.pack("<Q", 2**60)), "sequences and 3 document borders take"),
        (patched(26, struct.pack("<Q", 2**62)), "document borders take"),
        (patched(34, struct.pack("<i", -1)), "negative size"),
        (patched(46, struct.pack("<q", -8)), "negative size or pointer"),
        (patched(70, struct.pack("<q", 1)), "do not rise from 0 to 3"),
        (patched(86, struct.pack("<q", 2)), "do not rise from 0 to 3"),
        (patched(78, struct.pack("<q", 9)), "do not rise from 0 to 3"),
        (patched(34, struct.pack("<i", 9)), "reaches to byte 18, but the file has 8"),
    ],
)
def test_broken_indexes(tmp_path: Path, index: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        IndexedTokens(put(tmp_path, index))
    assert caught.value.exit_code == 4


def test_truncated_tokens(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.bin is truncated(.|\n)*to byte 8, but the file has 7"):
        IndexedTokens(put(tmp_path, tokens=TOKENS[:-1]))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*corpus\.idx(.|\n)*without \.bin"):
        IndexedTokens(tmp_path / "corpus")


@given(st.binary(max_size=200))
def test_any_bytes_give_the_clear_error_or_a_corpus(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for index in (junk, INDEX[:17] + junk, INDEX[:34] + junk):
        try:
            corpus = IndexedTokens(put(folder, index))
        except DataError:
            continue
        for sequence in range(len(corpus)):
            corpus[sequence].sum()
