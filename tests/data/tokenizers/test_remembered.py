"""The tokenizer that a corpus was made with: kept beside it, and told from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.language.embedded import embedded_documents
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.run import preprocess
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.data.tokenizers.remembered import (
    common_tokenizer,
    remember_tokenizer,
    remembered_tokenizer,
    tell_apart,
    tokenizer_folder,
)
from paddock.errors import DataError
from paddock.testing.samples.texts import train_sentencepiece, word_tokenizer, write_lines


def vocabulary(folder: Path) -> str:
    """A vocab.txt in which no line is twice."""
    (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "name", "##s"]))
    return str(folder / "words.txt")


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir()
    tokenizer.save(folder)
    return folder


def test_preprocessing_keeps_it(tmp_path: Path) -> None:
    folder = saved(train_tokenizer(embedded_documents()[:5], 400, "<end>"), tmp_path / "mine")
    config = TokenizerConfig(kind="file", path=str(folder / "tokenizer.json"), end_of_text="<end>")
    lines = write_lines(tmp_path / "in.jsonl", ["Names refer to objects."])
    job = PreprocessJob((str(lines),), str(tmp_path / "out"), config, json_keys=("text", "other"))
    lines.write_text('{"text": "a name", "other": "an object"}')
    preprocess(job)
    for key in job.json_keys:
        found = remembered_tokenizer(job.output(key))
        assert found is not None and found.end_of_text == "<end>"
        assert found.content() == load_tokenizer(config).content()  # type: ignore[union-attr]


def test_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    trained = train_tokenizer(embedded_documents()[:5], 400)
    trained.engine.model.save(str(tmp_path))
    files = TokenizerConfig(kind="gpt2", vocab=str(tmp_path / "vocab.json"), merges=str(tmp_path / "merges.txt"))
    pieces = TokenizerConfig(kind="sentencepiece", model=str(train_sentencepiece(tmp_path)), extra_ids=7)
    words = TokenizerConfig(kind="wordpiece", vocab=vocabulary(tmp_path), lower_case=True, extra_ids=3)
    for name, config in {"files": files, "pieces": pieces, "words": words}.items():
        tokenizer = load_tokenizer(config)
        assert tokenizer is not None
        remember_tokenizer(tokenizer, tmp_path / name)
        found = remembered_tokenizer(tmp_path / name)
        assert found is not None and tell_apart(found, tokenizer) is None
        assert found.encode("the name <extra_id_0>") == tokenizer.encode("the name <extra_id_0>")
        assert found.special == tokenizer.special and found.vocab_size == tokenizer.vocab_size


def test_a_corpus_of_somebody_else_remembers_none(tmp_path: Path) -> None:
    assert remembered_tokenizer(tmp_path / "theirs") is None
    tokenizer_folder(tmp_path / "theirs").mkdir()
    with pytest.raises(DataError, match=r"no tokenizer in .*theirs\.tokenizer(.|\n)*remove the folder"):
        remembered_tokenizer(tmp_path / "theirs")


def test_another_takes_the_place_of_the_first(tmp_path: Path) -> None:
    remember_tokenizer(word_tokenizer(tmp_path), tmp_path / "corpus")
    pieces = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(train_sentencepiece(tmp_path))))
    assert pieces is not None
    remember_tokenizer(pieces, tmp_path / "corpus")
    names = {path.name for path in tokenizer_folder(tmp_path / "corpus").iterdir()}
    assert names == {"spiece.model", "tokenizer_config.json"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_tells_two_apart(tmp_path: Path) -> None:
    one = train_tokenizer(embedded_documents()[:5], 400)
    other = load_tokenizer_folder(saved(one, tmp_path / "again"))
    assert other is not None and tell_apart(one, other) is None
    assert tell_apart(one, train_tokenizer(embedded_documents()[:5], 400, extra_ids=0)) is None
    smaller = train_tokenizer(embedded_documents()[:5], 399)
    assert tell_apart(one, smaller) == "there are 399 and 398 tokens besides special ones"
    foreign = train_tokenizer(["other words, otherwise"] * 9 + embedded_documents()[5:9], 400)
    assert str(tell_apart(one, foreign)).startswith("token ")


def test_special_tokens_may_be_added(tmp_path: Path) -> None:
    """A vocabulary with sentinels behind it numbers texts as it does without; so do other numbers of sentinels."""
    model, vocab = str(train_sentencepiece(tmp_path)), vocabulary(tmp_path)
    for configs in (
        [TokenizerConfig(kind="sentencepiece", model=model, extra_ids=count) for count in (0, 10, 100)],
        [TokenizerConfig(kind="wordpiece", vocab=vocab, extra_ids=count) for count in (None, 10)],
    ):
        first, *others = (load_tokenizer(config) for config in configs)
        assert first is not None
        assert [tell_apart(first, other) for other in others if other is not None] == [None] * len(others)


def test_the_tokenizer_of_several(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(embedded_documents()[:5], 400)
    for name in ("a", "b"):
        remember_tokenizer(tokenizer, tmp_path / name)
    found = common_tokenizer([tmp_path / "silent", tmp_path / "a", tmp_path / "b"])
    assert found is not None and found[0] == tmp_path / "a" and tell_apart(found[1], tokenizer) is None
    assert common_tokenizer([tmp_path / "silent"]) is None
    remember_tokenizer(train_tokenizer(embedded_documents()[:5], 300), tmp_path / "b")
    with pytest.raises(DataError, match=r"b was made with another tokenizer than .*a(.|\n)*399 and 299 tokens"):
        common_tokenizer([tmp_path / "a", tmp_path / "b"])
