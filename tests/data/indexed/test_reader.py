"""Reading indexed files: byte for byte, past every 32-bit border, and files that are not what they should be."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.indexed.reader import IndexedTokens
from paddock.errors import DataError
from paddock.testing.samples.corpora import INDEX, LEGACY, TOKENS, patched, write_raw_corpus

CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
HUGE = 2**31


@pytest.mark.parametrize("index", [INDEX, LEGACY, INDEX + b"\0\1\0"], ids=["mmap", "legacy", "multimodal"])
def test_bytes_read(tmp_path: Path, index: bytes) -> None:
    corpus = IndexedTokens(write_raw_corpus(tmp_path, index))
    assert [corpus[sequence].tolist() for sequence in range(len(corpus))] == [[1, 2, 3], [4], []]
    assert (corpus.sizes.tolist(), corpus.pointers.tolist()) == ([3, 1, 0], [0, 6, 8])
    assert corpus.documents.tolist() == [0, 1, 3]
    assert (corpus.num_documents, len(corpus), corpus.num_tokens, corpus.num_bytes) == (2, 3, 4, 8)
    assert (corpus.sizes.dtype, corpus.pointers.dtype, corpus.documents.dtype) == (np.int32, np.int64, np.int64)
    assert (corpus.dtype, corpus.form) == (np.uint16, "legacy" if index == LEGACY else "mmap")
    assert corpus.has_modes == (len(index) == len(INDEX) + 3)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("legacy", [False, True])
def test_every_integer_type(tmp_path: Path, code: int, legacy: bool) -> None:
    dtype = np.dtype(CODES[code])
    limits = np.iinfo(dtype)
    values = [limits.min, 0, 1, limits.max]
    index = (
        patched(patched(LEGACY, 16, "<Q", code), 24, "<Q", dtype.itemsize) if legacy else patched(INDEX, 17, "B", code)
    )
    if not legacy:
        for sequence, pointer in enumerate([0, 3 * dtype.itemsize, 4 * dtype.itemsize]):
            index = patched(index, 46 + 8 * sequence, "<q", pointer)
    corpus = IndexedTokens(write_raw_corpus(tmp_path, index, np.array(values, dtype).tobytes()))
    assert corpus.dtype == dtype
    assert corpus[0].tolist() + corpus[1].tolist() == values


def test_slices(tmp_path: Path) -> None:
    corpus = IndexedTokens(write_raw_corpus(tmp_path))
    assert corpus.slice(0, 1, 3).tolist() == [2, 3] and corpus.slice(0, 3, 3).tolist() == []
    assert corpus.read(0, 3).tolist() == [1, 2, 3, 4] and corpus.read(1, 1).tolist() == []
    assert corpus.read(3, 3).tolist() == []
    assert np.shares_memory(corpus.read(0, 3), corpus[0])
    corpus.release()
    assert corpus[0].tolist() == [1, 2, 3]
    for start, stop in ((0, 4), (-1, 2), (2, 1), (4, 4), (0, 2**40)):
        with pytest.raises(DataError, match=f"no tokens {start} to {stop} in sequence 0(.|\n)*the sequence has 3"):
            corpus.slice(0, start, stop)
    with pytest.raises(IndexError):
        corpus[3]


def test_sequences_in_another_order_than_the_file(tmp_path: Path) -> None:
    """An index may choose among the tokens of a file; no writer does, but people do it by hand."""
    index = patched(patched(INDEX, 46, "<q", 2), 54, "<q", 0)
    corpus = IndexedTokens(write_raw_corpus(tmp_path, index))
    assert corpus[0].tolist() == [2, 3, 4] and corpus[1].tolist() == [1]
    assert corpus.read(0, 3).tolist() == [2, 3, 4, 1]


def test_an_empty_corpus(tmp_path: Path) -> None:
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 0, 1)
    corpus = IndexedTokens(write_raw_corpus(tmp_path, header + struct.pack("<q", 0), b""))
    assert (len(corpus), corpus.num_documents, corpus.num_tokens) == (0, 0, 0)


def test_a_copy_for_another_process_opens_the_files_again(tmp_path: Path) -> None:
    corpus = IndexedTokens(write_raw_corpus(tmp_path))
    message = pickle.dumps(corpus)
    assert len(message) < 500
    assert pickle.loads(message)[0].tolist() == [1, 2, 3]  # noqa: S301


@pytest.mark.parametrize("legacy", [False, True])
def test_beyond_31_and_32_bits(tmp_path: Path, legacy: bool) -> None:
    """The longest sequence there can be, and more behind it: tokens, bytes and their sums need 64 bits."""
    sizes = [HUGE - 1, 2, HUGE - 1, 3]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    if legacy:
        index = b"TNTIDX\x00\x00" + struct.pack("<6Q", 1, 8, 2, 4, 4, 2)
        index += struct.pack("<5q", *range(5)) + struct.pack("<5q", *offsets) + struct.pack("<4q", *sizes)
    else:
        index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 4, 2)
        index += struct.pack("<4i", *sizes) + struct.pack("<4q", *(2 * offset for offset in offsets[:-1]))
    prefix = write_raw_corpus(tmp_path, index + struct.pack("<2q", 0, 4), b"")
    with open(f"{prefix}.bin", "r+b") as stream:
        stream.truncate(2 * offsets[-1])
        for offset, tokens in ((HUGE - 2, [7, 8, 9]), (offsets[2], [10, 11]), (offsets[-1] - 4, [12, 13, 14, 15])):
            stream.seek(2 * offset)
            stream.write(np.array(tokens, "<u2").tobytes())
    corpus = IndexedTokens(prefix)
    assert corpus.num_tokens == offsets[-1] == 2 * HUGE + 3
    assert corpus.slice(0, HUGE - 3, HUGE - 1).tolist() == [0, 7]
    assert corpus[1].tolist() == [8, 9]
    assert corpus.slice(2, 0, 3).tolist() == [10, 11, 0] and corpus.slice(2, HUGE - 3, HUGE - 1).tolist() == [0, 12]
    assert corpus[3].tolist() == [13, 14, 15]
    assert len(corpus.read(0, 4)) == offsets[-1]
    os.truncate(f"{prefix}.bin", 2 * offsets[-1] - 1)
    with pytest.raises(DataError, match=f"is truncated(.|\n)*to byte {2 * offsets[-1]}, but"):
        IndexedTokens(prefix)


BROKEN = {
    "empty": (b"", "does not begin with MMIDIDX or TNTIDX"),
    "foreign": (b"GIF89a" + INDEX, "does not begin with MMIDIDX or TNTIDX"),
    "header": (INDEX[:20], "truncated: 20 bytes"),
    "short": (INDEX[:-1], r"3 sequences and 3 document borders take 94 bytes, but it has 93"),
    "long": (INDEX + b"\0", r"take 94 bytes, but it has 95"),
    "version": (patched(INDEX, 9, "<Q", 2), "version is 2"),
    "float": (patched(INDEX, 17, "B", 7), "dtype code is 7"),
    "sequences": (patched(INDEX, 18, "<Q", 2**60), "sequences and 3 document borders take"),
    "borders": (patched(INDEX, 26, "<Q", 2**62), "document borders take"),
    "no borders": (patched(INDEX, 26, "<Q", 0)[:70], "no document borders"),
    "negative size": (patched(INDEX, 34, "<i", -1), "sequence 0 has -1 tokens from byte 0"),
    "negative pointer": (patched(INDEX, 46, "<q", -8), "sequence 0 has 3 tokens from byte -8"),
    "overflowing pointer": (
        patched(INDEX, 46, "<q", 2**63 - 2),
        "sequence 0 has 3 tokens from byte 9223372036854775806",
    ),
    "far pointer": (
        patched(INDEX, 54, "<q", 7),
        "outside the 8 bytes of the .bin: sequence 1 has 1 tokens from byte 7",
    ),
    "first border": (patched(INDEX, 70, "<q", 1), "borders go from 1 to 3, not from 0 to 3"),
    "last border": (patched(INDEX, 86, "<q", 2), "borders go from 0 to 2, not from 0 to 3"),
    "falling border": (patched(INDEX, 78, "<q", 9), "document 1 is sequences 9 to 3"),
    "legacy header": (LEGACY[:50], "truncated: 50 bytes, and the header alone has 56"),
    "legacy short": (LEGACY[:-8], "3 items, 3 sizes and 3 document borders take 168 bytes, but it has 160"),
    "legacy version": (patched(LEGACY, 8, "<Q", 0), "version is 0"),
    "legacy float": (patched(LEGACY, 16, "<Q", 6), "dtype code is 6"),
    "legacy width": (patched(LEGACY, 24, "<Q", 4), "said to have 4 bytes, but uint16 has 2"),
    "legacy items": (patched(LEGACY, 32, "<Q", 2**61), "take"),
    "legacy sizes": (patched(LEGACY, 40, "<Q", 2)[:-8], "dimension offsets"),
    "legacy dimensions": (patched(LEGACY, 64, "<q", 2), "dimension offsets do not count"),
    "legacy offsets": (patched(LEGACY, 96, "<q", 2), "sequence 0 has 3 tokens, but lies at 0 to 2"),
    "legacy size": (patched(LEGACY, 120, "<q", 2**31), "sequence 0 has 2147483648 tokens"),
    "legacy border": (patched(LEGACY, 152, "<q", 4), "document 1 is sequences 4 to 3"),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_broken_indexes(tmp_path: Path, damage: str) -> None:
    index, message = BROKEN[damage]
    with pytest.raises(DataError, match=message) as caught:
        IndexedTokens(write_raw_corpus(tmp_path, index))
    assert caught.value.exit_code == 4 and "corpus.idx cannot be read" in str(caught.value)


def test_the_first_of_many_sequences_that_is_wrong(tmp_path: Path) -> None:
    """Checks run block by block: the place is counted over all of them."""
    count, wrong = 100_000, 77_777
    sizes, pointers = np.ones(count, "<i4"), np.arange(count, dtype="<i8")
    pointers[wrong] = count
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 1, count, count + 1)
    borders = np.arange(count + 1, dtype="<i8")
    prefix = write_raw_corpus(tmp_path, header + sizes.tobytes() + pointers.tobytes() + borders.tobytes(), bytes(count))
    with pytest.raises(DataError, match=f"sequence {wrong} has 1 tokens from byte {count}"):
        IndexedTokens(prefix)
    pointers[wrong], borders[wrong] = wrong, wrong + 2
    write_raw_corpus(tmp_path, header + sizes.tobytes() + pointers.tobytes() + borders.tobytes(), bytes(count))
    with pytest.raises(DataError, match=f"document {wrong} is sequences {wrong + 2} to {wrong + 1}"):
        IndexedTokens(prefix)


@pytest.mark.parametrize("index", [INDEX, LEGACY], ids=["mmap", "legacy"])
def test_truncated_tokens(tmp_path: Path, index: bytes) -> None:
    with pytest.raises(DataError, match=r"corpus\.bin is truncated(.|\n)*to byte 8, but the file has 7"):
        IndexedTokens(write_raw_corpus(tmp_path, index, TOKENS[:-1]))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*corpus\.idx(.|\n)*without \.bin"):
        IndexedTokens(tmp_path / "corpus")


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw_corpus(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root, who may run this test, may read all
    with pytest.raises(DataError, match=r"corpus\.idx cannot be read(.|\n)*you may not read it"):
        IndexedTokens(tmp_path / "corpus")


def open_or_refuse(prefix: Path) -> None:
    """Opening gives the clear error or a corpus that can be read, and takes no memory to speak of."""
    tracemalloc.start()
    try:
        corpus = IndexedTokens(prefix)
        for sequence in range(len(corpus)):
            assert len(corpus[sequence]) == corpus.sizes[sequence]
        assert sum(np.diff(corpus.documents)) == len(corpus)
    except DataError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for start in (b"", INDEX[:9], INDEX[:17], INDEX[:34], LEGACY[:8], LEGACY[:24], LEGACY[:56]):
        open_or_refuse(write_raw_corpus(folder, start + junk))


@pytest.mark.parametrize("index", [INDEX, LEGACY], ids=["mmap", "legacy"])
def test_any_single_bit(tmp_path: Path, index: bytes) -> None:
    for bit in range(8 * len(index)):
        flipped = bytearray(index)
        flipped[bit // 8] ^= 1 << bit % 8
        open_or_refuse(write_raw_corpus(tmp_path, bytes(flipped)))


@settings(max_examples=200)
@given(st.data())
def test_any_numbers_in_the_header(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    number = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1), st.sampled_from([2**31, 2**32, 2**61, 2**63 - 1]))
    counts = [data.draw(number) for _ in range(5)]
    folder = tmp_path_factory.mktemp("fuzz")
    open_or_refuse(write_raw_corpus(folder, INDEX[:18] + struct.pack("<2Q", *counts[:2]) + INDEX[34:]))
    open_or_refuse(write_raw_corpus(folder, LEGACY[:16] + struct.pack("<5Q", *counts) + LEGACY[56:]))
