"""Preparing a corpus: tokenizers, the cache, and what cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.config import CorpusConfig, TokenizerConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language import prepare as preparing
from paddock.data.language.embedded import embedded_documents
from paddock.data.language.prepare import prepare
from paddock.data.tokenizers.load import load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.errors import ConfigError, DataError, MachineError

TRAINED = TokenizerConfig(kind="trained")


def test_the_embedded_corpus_is_prose() -> None:
    documents = embedded_documents()
    assert sum(map(len, documents)) > 300_000
    assert sum(" the " in document for document in documents) > 50


def test_text_becomes_indexed_tokens_and_back(tmp_path: Path) -> None:
    prepared = prepare(CorpusConfig(source="embedded", cache=str(tmp_path)), TRAINED, vocab=600)
    assert prepared.tokenizer is not None
    corpus, tokenizer = IndexedTokens(prepared.prefixes[0][1]), prepared.tokenizer
    assert tokenizer.vocab_size == 600
    for index, text in enumerate(embedded_documents()):
        tokens = corpus[index].tolist()
        assert tokens[-1] == tokenizer.end_of_text_id
        assert tokenizer.decode(tokens[:-1]) == text


def test_a_prepared_corpus_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = CorpusConfig(source="embedded", cache=str(tmp_path))
    first = prepare(data, TRAINED, vocab=300)
    monkeypatch.setattr(preparing, "train_tokenizer", lambda *_: pytest.fail("built again"))
    assert prepare(data, TRAINED, vocab=300).prefixes == first.prefixes
    with pytest.raises(pytest.fail.Exception, match="built again"):
        prepare(data, TRAINED, vocab=301)  # other settings are another corpus
    tokenizer, corpus = sorted(path.name for path in tmp_path.iterdir())  # and no lock or partial folder
    assert tokenizer.startswith("bpe-") and corpus == first.prefixes[0][1].parent.name


def test_it_is_made_as_a_user_would_make_it(tmp_path: Path) -> None:
    prefix = prepare(CorpusConfig(source="embedded", cache=str(tmp_path)), TRAINED, vocab=300).prefixes[0][1]
    assert prefix.name == "corpus_text_document"
    assert {path.name for path in prefix.parent.iterdir()} == {
        *("corpus.jsonl", "corpus_text_document.bin", "corpus_text_document.idx"),
        "corpus_text_document.tokenizer",
    }


def test_another_vocabulary_under_the_same_name_is_another_corpus(tmp_path: Path) -> None:
    data, files = CorpusConfig(source="embedded", cache=str(tmp_path / "cache")), tmp_path / "tokenizer.json"
    config, prefixes = TokenizerConfig(kind="file", path=str(files)), set()
    for vocab in (300, 400):
        train_tokenizer(embedded_documents()[:5], vocab).save(tmp_path)
        prefixes.add(prepare(data, config, vocab=500).prefixes[0][1])
    assert len(prefixes) == 2


def test_a_damaged_cache_says_what_to_remove(tmp_path: Path) -> None:
    data = CorpusConfig(source="embedded", cache=str(tmp_path))
    prefix = prepare(data, TRAINED, vocab=300).prefixes[0][1]
    Path(f"{prefix}.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"damaged(.|\n)*truncated(.|\n)*remove "):
        prepare(data, TRAINED, vocab=300)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        prepare(CorpusConfig(source="embedded", cache=str(tmp_path / "file" / "cache")), TRAINED, vocab=300)


def test_an_empty_corpus(tmp_path: Path) -> None:
    with IndexedWriter(tmp_path / "empty", vocab=10):
        pass
    with pytest.raises(DataError, match=r"empty\.bin holds no tokens"):
        prepare(CorpusConfig(path=str(tmp_path / "empty")), TokenizerConfig(), vocab=10)


def test_a_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    train_tokenizer(embedded_documents()[:5], 400, "<end>").save(tmp_path)
    config = TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json"), end_of_text="<end>")
    with pytest.raises(ConfigError, match=r"model\.vocab = 399(.|\n)*has 400 tokens(.|\n)*--model\.vocab 400"):
        prepare(CorpusConfig(source="embedded", cache=str(tmp_path)), config, vocab=399)


def test_tokenizers_from_files(tmp_path: Path) -> None:
    trained = train_tokenizer(embedded_documents()[:5], 400, "<|endoftext|>")
    trained.save(tmp_path)
    trained.engine.model.save(str(tmp_path))  # vocab.json and merges.txt, as GPT-2's
    text = "Names refer to objects; größer, 对象."
    ids = trained.encode(text)
    gpt2 = TokenizerConfig(kind="gpt2", vocab=str(tmp_path / "vocab.json"), merges=str(tmp_path / "merges.txt"))
    for tokenizer in (load_tokenizer(gpt2), load_tokenizer_folder(tmp_path)):
        assert tokenizer is not None
        assert tokenizer.encode(text) == ids and tokenizer.decode(ids) == text
        assert tokenizer.end_of_text_id == 0
    (tmp_path / "tokenizer.json").unlink()
    assert load_tokenizer_folder(tmp_path).encode(text) == ids  # type: ignore[union-attr]
    assert load_tokenizer_folder(tmp_path / "nowhere") is None


def test_the_real_gpt2_vocabulary() -> None:
    folder = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "gpt2"
    if not folder.is_dir():
        pytest.skip("the vocabulary of GPT-2 is not on this machine")
    tokenizer = load_tokenizer_folder(folder)
    assert tokenizer is not None and tokenizer.vocab_size == 50257
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert tokenizer.end_of_text_id == 50256


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"kind": "file", "path": "nowhere.json"}, DataError, "no tokenizer file nowhere.json"),
        ({"kind": "gpt2", "vocab": "a.json", "merges": "b.txt"}, DataError, "no tokenizer file a.json"),
    ],
)
def test_missing_tokenizers(config: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load_tokenizer(TokenizerConfig(**config))


def test_foreign_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"is no tokenizer\.json"):
        load_tokenizer(TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json")))
    train_tokenizer(["some text"], 300, "<end>").save(tmp_path)
    with pytest.raises(ConfigError, match="has no such token"):
        load_tokenizer(TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json"), end_of_text="</s>"))
