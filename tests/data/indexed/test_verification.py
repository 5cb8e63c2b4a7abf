"""Verifying corpora: every kind of damage is found, counted and placed; sound ones have the known checksums."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from paddock.data.indexed import verification
from paddock.data.indexed.verification import verify
from paddock.data.indexed.writer import IndexedWriter
from paddock.testing.samples.corpora import INDEX, LEGACY, TOKENS, patched, write_raw_corpus


def nobody(count: int) -> None:
    """Hears of progress."""


def findings(prefix: Path, vocab_size: int | None = None) -> list[str]:
    return [str(finding) for finding in verify(prefix, vocab_size, nobody).findings]


@pytest.mark.parametrize("index", [INDEX, LEGACY, INDEX + b"\0\0\0"], ids=["mmap", "legacy", "multimodal"])
def test_a_sound_corpus(tmp_path: Path, index: bytes) -> None:
    heard: list[int] = []
    report = verify(write_raw_corpus(tmp_path, index), 5, heard.append)
    assert report.sound and (report.documents, report.sequences, report.tokens) == (2, 3, 4)
    assert (report.dtype, report.largest_token) == ("uint16", 4)
    assert report.sha256 == {
        "corpus.idx": hashlib.sha256(index).hexdigest(),
        "corpus.bin": hashlib.sha256(TOKENS).hexdigest(),
    }
    assert sum(heard) == len(index) + len(TOKENS)


def test_an_empty_corpus(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "empty", vocab=10):
        pass
    report = verify(tmp_path / "empty", 10, nobody)
    assert report.sound and report.largest_token is None


BROKEN = {
    "gap": (
        patched(INDEX, 54, "<q", 4),
        TOKENS,
        ["do not begin where the one before ended: sequence 1 begins at byte 4, not 6"],
    ),
    "first": (patched(INDEX, 46, "<q", 2), TOKENS, ["sequence 0 begins at byte 2, not 0"]),
    "unused": (INDEX, TOKENS + b"abc", ["the last 3 bytes of the .bin belong to no sequence"]),
    "outside": (
        INDEX,
        TOKENS[:-1],
        ["outside the 7 bytes of the .bin: sequence 1 has 1 tokens from byte 6; sequence 2"],
    ),
    "negative": (
        patched(INDEX, 34, "<i", -3),
        TOKENS,
        ["sequence 0 has -3 tokens from byte 0", "sequence 1 begins at byte 6, not -6"],
    ),
    "border": (
        patched(INDEX, 78, "<q", 4),
        TOKENS,
        ["documents that end before they begin: document 1 is sequences 4 to 3"],
    ),
    "last border": (patched(INDEX, 86, "<q", 2), TOKENS, ["borders go from 0 to 2, not from 0 to 3"]),
    "header": (INDEX[:20], TOKENS, ["cannot be read: it is truncated: 20 bytes"]),
    "legacy": (patched(LEGACY, 96, "<q", 2), TOKENS, ["sequence 0 has 3 tokens, but lies at 0 to 2"]),
    "several": (
        patched(patched(patched(INDEX, 86, "<q", 2), 54, "<q", 4), 78, "<q", 3),
        TOKENS + b"!",
        ["borders go from 0 to 2", "document 1 is sequences 3 to 2", "sequence 1 begins at byte 4", "the last 1 bytes"],
    ),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_damage(tmp_path: Path, damage: str) -> None:
    index, tokens, expected = BROKEN[damage]
    prefix = write_raw_corpus(tmp_path, index, tokens)
    found = findings(prefix)
    for message in expected:
        assert sum(message in finding for finding in found) == 1, found
    assert not verify(prefix, None, nobody).sound


def test_a_missing_corpus(tmp_path: Path) -> None:
    [finding] = findings(tmp_path / "nothing")
    assert "there is no" in finding and "nothing.idx" in finding


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reading fails")
def test_a_disk_that_fails(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "corpus", vocab=10):
        pass
    (tmp_path / "corpus.bin").unlink()
    (tmp_path / "corpus.bin").symlink_to("/proc/self/mem")
    [finding] = findings(tmp_path / "corpus")
    assert finding.endswith("corpus.bin cannot be read from byte 0 on: Input/output error")


def test_tokens_outside_the_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "CHUNK", 16)  # so that there are several
    tokens = np.arange(100)
    tokens[[3, 50]] = 5000
    with IndexedWriter(tmp_path / "corpus", vocab=10000) as writer:
        writer.add(tokens, np.array([10, 0, 90]), np.array([1, 2]))
    assert findings(tmp_path / "corpus", 5001) == []
    place = "5000 at position 3 of sequence 0 (document 0); 5000 at position 40 of sequence 2 (document 1)"
    assert findings(tmp_path / "corpus", 5000) == [f"tokens outside the vocabulary of 5000: {place}"]
    assert verify(tmp_path / "corpus", None, nobody).largest_token == 5000
    [finding] = verify(tmp_path / "corpus", 50, nobody).findings
    assert finding.count == 51 and len(finding.examples) == 5 and str(finding).endswith("; and 46 more")


def test_tokens_below_zero_and_without_a_place(tmp_path: Path) -> None:
    index = patched(patched(patched(INDEX, 17, "B", 3), 46, "<q", 2), 54, "<q", 0)
    prefix = write_raw_corpus(tmp_path, index, struct.pack("<4h", 1, -7, 3, 4))
    found = findings(prefix)
    assert found[-1] == "tokens below zero: -7 at byte 2" and "sequence 0 begins at byte 2" in found[0]


def test_much_damage_stays_short(tmp_path: Path) -> None:
    count = 100_000
    with IndexedWriter(tmp_path / "corpus", dtype="u1") as writer:
        writer.add(np.zeros(count, np.uint8), np.ones(count, np.int32), np.ones(count, np.int32))
    index = bytearray((tmp_path / "corpus.idx").read_bytes())
    start = 34 + 4 * count
    index[start : start + 8 * count] = (2 * np.arange(count, dtype="<i8")).tobytes()
    prefix = write_raw_corpus(tmp_path, bytes(index), bytes(2 * count - 1))
    [finding] = verify(prefix, None, nobody).findings
    assert finding.count == count - 1 and len(str(finding)) < 500
    assert "sequence 1 begins at byte 2, not 1" in str(finding)
