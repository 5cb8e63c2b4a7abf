"""Joining corpora: nothing lost, nothing changed, and nothing written where something is wrong."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.indexed import merging
from paddock.data.indexed.merging import plan_merge, prefixes_in
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.corpora import INDEX, LEGACY, patched, write_raw_corpus

Documents = list[list[list[int]]]
corpora = st.lists(
    st.tuples(
        st.lists(st.lists(st.lists(st.integers(0, 127), max_size=4), max_size=3), max_size=5),
        st.sampled_from(["u1", "i1", "i2", "i4", "i8", "u2"]),
    ),
    min_size=1,
    max_size=4,
)


def documents_in(corpus: IndexedTokens) -> Documents:
    borders = itertools.pairwise(corpus.documents.tolist())
    return [[corpus[sequence].tolist() for sequence in range(*pair)] for pair in borders]


def nobody(count: int) -> None:
    """Hears of progress."""


@settings(max_examples=40)
@given(corpora, st.integers(1, 3))
def test_all_documents_in_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[Documents, str]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    for number, (documents, dtype) in enumerate(parts):
        with IndexedWriter(folder / str(number), dtype=dtype) as writer:
            for document in documents:
                writer.add_document(*document)
    heard: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "BLOCK", block)
        plan = plan_merge([str(folder / str(number)) for number in range(len(parts))], str(folder / "all"))
        plan.run(heard.append)
    merged = IndexedTokens(folder / "all")
    assert documents_in(merged) == [document for documents, _ in parts for document in documents]
    assert merged.dtype == plan.dtype == np.result_type(*(dtype for _, dtype in parts))
    assert (plan.documents, plan.sequences, plan.tokens) == (merged.num_documents, len(merged), merged.num_tokens)
    assert sum(heard) == plan.num_bytes


def test_the_same_bytes_as_written_at_once(tmp_path: Path) -> None:
    documents = [[[1, 2], [3]], [], [[]], [[4, 5, 6]], [[7]]]
    for name, part in {"all": documents, "a": documents[:2], "b": documents[2:3], "c": documents[3:]}.items():
        with IndexedWriter(tmp_path / name, vocab=100) as writer:
            for document in part:
                writer.add_document(*document)
    plan_merge([str(tmp_path / name) for name in "abc"], str(tmp_path / "merged")).run(nobody)
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"merged{suffix}").read_bytes() == (tmp_path / f"all{suffix}").read_bytes()


def test_other_forms_become_todays(tmp_path: Path) -> None:
    write_raw_corpus(tmp_path, LEGACY, name="legacy")
    plan_merge([str(tmp_path / "legacy")], str(tmp_path / "out")).run(nobody)
    assert (tmp_path / "out.idx").read_bytes() == INDEX
    # Sequences that lie in another order, or with gaps, come out back to back.
    write_raw_corpus(tmp_path, patched(patched(INDEX, 46, "<q", 2), 54, "<q", 0), name="shuffled")
    plan_merge([str(tmp_path / "shuffled")], str(tmp_path / "tidy")).run(nobody)
    assert (tmp_path / "tidy.idx").read_bytes() == INDEX
    assert documents_in(IndexedTokens(tmp_path / "tidy")) == [[[2, 3, 4]], [[1], []]]


def test_what_changes_is_said(tmp_path: Path) -> None:
    write_raw_corpus(tmp_path, INDEX + b"\0\1\0", name="modes")
    with IndexedWriter(tmp_path / "wide", vocab=70000) as writer:
        writer.add_document([69999])
    plan = plan_merge([str(tmp_path / "modes"), str(tmp_path / "wide")], str(tmp_path / "out"))
    assert "multimodal" in plan.notes[0] and "all become int32" in plan.notes[1]
    plan.run(nobody)
    assert IndexedTokens(tmp_path / "out").read(0, 4).tolist() == [1, 2, 3, 4, 69999]


def test_a_broken_corpus_stops_it_before_anything_is_written(tmp_path: Path) -> None:
    write_raw_corpus(tmp_path, name="good")
    write_raw_corpus(tmp_path, INDEX[:-1], name="bad")
    with pytest.raises(DataError, match=r"bad\.idx cannot be read"):
        plan_merge([str(tmp_path / "good"), str(tmp_path / "bad")], str(tmp_path / "out"))
    assert not list(tmp_path.glob("out*"))


def test_names_that_cannot_be_meant(tmp_path: Path) -> None:
    write_raw_corpus(tmp_path, name="a")
    write_raw_corpus(tmp_path, name="b")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    with pytest.raises(ConfigError, match="nothing to merge"):
        plan_merge([], a)
    with pytest.raises(ConfigError, match="is one of the inputs"):
        plan_merge([a, b], str(tmp_path / "." / "b"), overwrite=True)
    with pytest.raises(ConfigError, match="is given twice"):
        plan_merge([a, b, a], str(tmp_path / "out"))
    with pytest.raises(ConfigError, match=r"b\.bin is already there(.|\n)*--overwrite"):
        plan_merge([a], b)
    (tmp_path / "c.idx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"c\.idx is already there"):
        plan_merge([a], str(tmp_path / "c"))
    plan_merge([a], b, overwrite=True).run(nobody)


def test_the_corpora_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.1", "c", "a"):
        write_raw_corpus(tmp_path, name=name)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert prefixes_in(tmp_path) == [str(tmp_path / name) for name in ("a", "b.1", "c")]
    (tmp_path / "c.idx").unlink()
    with pytest.raises(DataError, match="only one file of c"):
        prefixes_in(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        prefixes_in(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there is no corpus in"):
        prefixes_in(tmp_path / "empty")
