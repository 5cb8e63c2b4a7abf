"""Language modelling: a corpus of one document is split inside it; a document a sample, filled up."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.config import CorpusConfig
from paddock.data.language.corpus import CutDocument, count_tokens, split_documents
from paddock.data.language.prepare import PreparedCorpus
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.tasks.language_modeling import LanguageModeling
from paddock.testing.samples.corpora import NumberedCorpus, tokens_of, write_corpus


def task_over(folder: Path, *corpora: list[list[int]], **settings: Any) -> LanguageModeling:
    names = [chr(ord("a") + number) for number in range(len(corpora))]
    for name, documents in zip(names, corpora, strict=True):
        write_corpus(folder / name, documents)
    data = CorpusConfig(path=names, **{"sequence_length": 8, "split": (8, 1, 1), **settings})
    return LanguageModeling(data, PreparedCorpus([(None, folder / name) for name in names], None), 2**20, seed=0)


def labels_of(samples: Any) -> list[int]:
    labels = np.concatenate([sample["labels"] for sample in samples])
    return labels[labels != IGNORED].tolist()


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    weights=st.tuples(*[st.integers(0, 5)] * 3).filter(any),
)
def test_a_document_is_cut_between_tokens(sizes: list[int], weights: tuple[int, int, int]) -> None:
    whole = NumberedCorpus([sizes])
    cut = CutDocument(whole, weights)
    assert len(cut.documents) == 4 and cut.documents[-1] == len(cut.sizes)
    parts = [tokens_of(cut, number) for number in range(3)]
    assert [token for part in parts for token in part] == tokens_of(whole, 0)
    assert [len(part) for part in parts] == [len(part) for part in split_documents(sum(sizes), weights)]
    assert [count_tokens(cut, range(number, number + 1)) for number in range(3)] == list(map(len, parts))
    for number, size in enumerate(cut.sizes.tolist()):
        assert cut.slice(number, 1, size).tolist() == cut.slice(number, 0, size).tolist()[1:]


def test_a_corpus_of_one_document_is_split_inside(tmp_path: Path) -> None:
    task = task_over(tmp_path, [[60, 40]])
    assert labels_of(task.validation_samples()) == list(range(81, 90))
    samples = task.training_samples()
    assert samples.samples_per_epoch == 10
    assert {int(token) for index in range(20) for token in samples[index]["tokens"]} == set(range(80))
    assert task.notes() == ["the corpus is one document, split inside it: 80 + 10 + 10 tokens by data.split"]
    again = pickle.loads(pickle.dumps(task))  # noqa: S301 (our own bytes): what loader processes get
    assert again.training_samples()[3]["tokens"].tolist() == samples[3]["tokens"].tolist()
    assert task.fingerprint() != task_over(tmp_path, [[60, 40]], split=(1, 0, 0)).fingerprint()


def test_a_single_document_for_one_part_stays_whole(tmp_path: Path) -> None:
    task = task_over(tmp_path, [[100]], split=(1, 0, 0))
    assert task.training_samples().samples_per_epoch == 100 / 8 and task.notes() == []
    with pytest.raises(DataError, match=r"the validation part is empty(.|\n)*0 of 1 documents(.|\n)*--data\.split"):
        task.validation_samples()


def test_documents_are_not_cut_where_there_are_others(tmp_path: Path) -> None:
    """As Megatron-LM has it: whole documents, and so it is in a blend."""
    with pytest.raises(DataError, match=r"the validation part is empty(.|\n)*--data\.split"):
        task_over(tmp_path, [[50], [50]]).validation_samples()
    blend = task_over(tmp_path, [[100]], [[10]] * 10)
    assert labels_of(blend.validation_samples()) == list(range(81, 90)) and blend.notes() == []


def test_a_document_a_sample(tmp_path: Path) -> None:
    task = task_over(tmp_path, [[2 + number % 6] for number in range(20)], samples="padded")
    assert task.training_samples().samples_per_epoch == 16
    held_out = task.validation_samples()
    assert [int(task.count({"labels": sample["labels"]})) for sample in held_out] == [5, 6]
    assert task.notes() == []
    told = task_over(tmp_path, [[2 + number % 6] for number in range(20)], samples="padded", reset_position_ids=True)
    assert set(told.training_samples()[0]) == {"tokens", "labels"}  # positions count from 0 by themselves
    packed = task_over(tmp_path, [[2 + number % 6] for number in range(20)])
    assert task.fingerprint() == {**packed.fingerprint(), "data.samples": "padded"}
    assert task.held_out_fingerprint() == {**packed.held_out_fingerprint(), "data.samples": "padded"}


def test_long_documents_are_an_error_or_cut_and_counted(tmp_path: Path) -> None:
    corpora = [[4]] * 17 + [[30]] * 3, [[12]] * 20
    with pytest.raises(DataError, match=r"document 18 of the corpus has 30 tokens(.|\n)*--data\.truncate"):
        task_over(tmp_path, corpora[0], samples="padded").validation_samples()
    task = task_over(tmp_path, *corpora, samples="padded", truncate=True)
    for _ in range(2):  # counted once, however often they are asked for
        task.training_samples()
        task.validation_samples()
    assert task.notes() == ["16 training documents and 3 validation documents have more than 9 tokens: they are cut"]
    assert {len(sample["tokens"]) for sample in task.validation_samples()} == {8}


def test_a_blend_of_padded_documents(tmp_path: Path) -> None:
    task = task_over(tmp_path, [[5]] * 20, [[7]] * 10, samples="padded")
    samples = task.training_samples()
    assert samples.samples_per_epoch == 24
    assert set(task.collate([samples[0], samples[1]])) == {"tokens", "labels"}
