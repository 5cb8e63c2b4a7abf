"""`paddock convert --trim-vocab`: a smaller vocabulary, and the same model for the text that it was made for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.cli.main import run
from paddock.data.config import TokenizerConfig
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.embedded import embedded_documents
from paddock.data.preprocess.token_use import used_tokens
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.data.tokenizers.trimming import trim_tokenizer
from paddock.inference.trained import open_trained
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5
from paddock.testing.samples.texts import train_sentencepiece

Captured = pytest.CaptureFixture[str]
LINES = [
    "The following constructs bind names: formal parameters to functions.",
    "größer than 对象, <extra_id_1> and a zebra; 1 + 2 = 3",
    " tabs\tand  spaces ",
]
KINDS = {"t5": {"tied": True, "scale_head": True, "gated": False, "activation": "relu"}, "mt5": {}}


def same_pieces(before: Tokenizer, after: Tokenizer, lines: list[str]) -> None:
    for line in lines:
        ids, fewer = before.encode(line), after.encode(line)
        assert [before.token_at(id) for id in ids] == [after.token_at(id) for id in fewer], line
    assert after.vocab_size < before.vocab_size
    assert {before.token_at(id) for id in before.sentinel_ids} == {after.token_at(id) for id in after.sentinel_ids}
    assert after.special == before.special


def model_folder(folder: Path, kind: str, tokenizer: Tokenizer, more: int = 7) -> T5:
    """A folder with random weights, and a vocabulary that is larger than the tokenizer's, as the published ones."""
    sizes: dict[str, Any] = {"layers": 2, "hidden": 16, "heads": 2, "head_size": 8, "feed_forward": 16, "dropout": 0.0}
    model = T5(T5Config(vocab=tokenizer.vocab_size + more, **sizes, **KINDS[kind])).eval()
    initialize(model, 1)
    save_folder(model.state_dict(), model.config, folder, add_files=tokenizer.save)
    return model


def spiece(folder: Path, **options: Any) -> Tokenizer:
    found = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(train_sentencepiece(folder, **options))))
    assert found is not None
    return found


def corpus_of(folder: Path) -> Path:
    (folder / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    return folder / "corpus.txt"


@pytest.mark.parametrize("to", ["huggingface", "paddock"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_logits_on_the_corpus(tmp_path: Path, kind: str, to: str, capsys: Captured) -> None:
    tokenizer = spiece(tmp_path)
    model = model_folder(tmp_path / "model", kind, tokenizer)
    corpus = corpus_of(tmp_path)
    arguments = [str(tmp_path / "model"), str(tmp_path / "small"), "--to", to, "--trim-vocab", str(corpus)]
    assert run(["convert", *arguments]) == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'small'}\n" and f"tokens      {tokenizer.vocab_size:,} → " in told.err
    trained = open_trained(str(tmp_path / "small"), torch.device("cpu"))
    smaller = trained.tokenizer
    assert smaller is not None and (tmp_path / "small" / "spiece.model").is_file()
    same_pieces(tokenizer, smaller, LINES)
    assert trained.model.config.vocabulary() == smaller.vocab_size  # type: ignore[attr-defined]
    kept = [tokenizer.id_of(smaller.token_at(id)) for id in range(smaller.vocab_size)]
    for line in LINES:
        logits = []
        for one, used in ((model, tokenizer), (trained.model, smaller)):
            ids = torch.tensor([used.encode(line)])
            start = torch.zeros(1, 1, dtype=torch.long)
            with torch.no_grad():
                logits.append(one(ids, decoder_tokens=torch.cat([start, ids], 1)))
        torch.testing.assert_close(logits[1], logits[0][..., kept], rtol=1e-5, atol=1e-6)


def test_transformers_reads_it(tmp_path: Path) -> None:
    import transformers

    tokenizer = spiece(tmp_path)
    model_folder(tmp_path / "model", "t5", tokenizer)
    trim = ["--trim-vocab", str(corpus_of(tmp_path)), "--vocab-multiple", "64"]
    assert run(["convert", str(tmp_path / "model"), str(tmp_path / "small"), "--to", "huggingface", *trim]) == 0
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "small")
    assert theirs.config.vocab_size % 64 == 0
    ours = load_tokenizer_folder(tmp_path / "small")
    assert ours is not None and theirs.config.vocab_size - ours.vocab_size < 64
    embedding = theirs.get_input_embeddings().weight
    assert torch.equal(
        embedding[ours.vocab_size :], embedding[:1].expand(theirs.config.vocab_size - ours.vocab_size, -1)
    )
    reference = transformers.T5Tokenizer.from_pretrained(tmp_path / "small")
    assert reference.encode(LINES[0], add_special_tokens=False) == ours.encode(LINES[0])
    assert (reference.unk_token_id, reference.eos_token_id, reference.pad_token_id) == (2, 1, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"byte_fallback": True, "vocab_size": 600},
        {"user_defined_symbols": [f"▁<extra_id_{index}>" for index in (2, 1, 0)]},
        {"pad_id": 3, "eos_id": 2, "unk_id": 0, "bos_id": 1},
        {"user_defined_symbols": ["<zebra>", "bind names"], "vocab_size": 500},
    ],
)
def test_sentencepiece(tmp_path: Path, options: dict[str, Any]) -> None:
    """Every text whose tokens are kept is cut as before, though pieces that would have fitted are gone."""
    tokenizer = spiece(tmp_path, **options)
    lines = [*LINES, *"\n".join(embedded_documents()[:3]).splitlines()[:40]]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines), encoding="utf-8")
    trimmed = trim_tokenizer(tokenizer, used_tokens(tokenizer, [str(corpus)], ["text"]))
    same_pieces(tokenizer, trimmed.tokenizer, lines)
    for new, old in enumerate(trimmed.kept.tolist()):
        assert trimmed.tokenizer.token_at(new) == tokenizer.token_at(old)


def unigram_file(folder: Path) -> EngineTokenizer:
    """A tokenizer.json of T5's kind, from which "a" alone would be cut otherwise if rare pieces simply went."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import models, pre_tokenizers, processors

    scores = {
        "▁": -3.0,
        "a": -27.0,
        "ab": -14.0,
        "c": -14.0,
        "bc": -2.0,
        "b": -26.0,
        "d": -5.0,
        "▁d": -4.0,
        "x": -40.0,
        "y": -6.0,
        "dd": -7.0,
    }
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    sentinels = [(f"<extra_id_{index}>", 0.0) for index in (1, 0)]
    engine = Engine(models.Unigram([*special, *scores.items(), *sentinels], unk_id=2))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_1>", "<extra_id_0>"])
    engine.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return EngineTokenizer(engine)


def test_a_tokenizer_json_of_unigram(tmp_path: Path) -> None:
    tokenizer = unigram_file(tmp_path)
    lines = ["abc", "bc", "d <extra_id_0>", "é"]
    (tmp_path / "corpus.txt").write_text("\n".join(lines))
    trimmed = trim_tokenizer(tokenizer, used_tokens(tokenizer, [str(tmp_path / "corpus.txt")], ["text"]))
    same_pieces(tokenizer, trimmed.tokenizer, lines)
    assert isinstance(trimmed.tokenizer, EngineTokenizer)
    assert trimmed.tokenizer.engine.encode("d").tokens == ["▁d", "</s>"]
    assert trimmed.tokenizer.sentinel_ids == [trimmed.tokenizer.vocab_size - 1, trimmed.tokenizer.vocab_size - 2]


@pytest.mark.parametrize("whole_words", [False, True])
def test_wordpiece(tmp_path: Path, whole_words: bool) -> None:
    """Also a word that is unknown, though shorter pieces would spell it, stays unknown."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "ab",
        "a",
        "##bc",
        "##b",
        "play",
        "##ing",
        "never",
        "中",
        "文",
    ]
    if whole_words:
        pytest.importorskip("jieba")
        words += ["##中", "##文"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    settings: dict[str, Any] = {"vocab": str(tmp_path / "vocab.txt"), "extra_ids": 3, "lower_case": True}
    config = TokenizerConfig(kind="wordpiece", chinese_whole_words=whole_words, **settings)
    tokenizer = load_tokenizer(config)
    assert isinstance(tokenizer, EngineTokenizer)
    lines = ["ABC playing", "abc 中文 <extra_id_0>", "a##bc play"]
    assert tokenizer.unk_id in tokenizer.encode("abc")
    (tmp_path / "corpus.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps({"a": x}) + "\n" for x in lines).encode())
    )
    trimmed = trim_tokenizer(tokenizer, used_tokens(tokenizer, [str(tmp_path / "corpus.jsonl.gz")], ["a"]))
    same_pieces(tokenizer, trimmed.tokenizer, lines)
    assert trimmed.tokenizer.id_of("never") is None
    assert isinstance(trimmed.tokenizer, type(tokenizer))
    assert trimmed.tokenizer.encode_plain(lines) == [
        [trimmed.tokenizer.id_of(tokenizer.token_at(id)) for id in ids] for ids in tokenizer.encode_plain(lines)
    ]


def test_an_indexed_corpus(tmp_path: Path) -> None:
    tokenizer = spiece(tmp_path)
    with IndexedWriter(tmp_path / "corpus", tokenizer.vocab_size) as writer:
        for line in LINES:
            writer.add_document(tokenizer.encode(line))
    used = used_tokens(tokenizer, [str(tmp_path / "corpus")], ["text"])
    assert set(np.flatnonzero(used).tolist()) == {id for line in LINES for id in tokenizer.encode(line)}
    same_pieces(tokenizer, trim_tokenizer(tokenizer, used).tokenizer, LINES)


def test_a_run_of_ours(tmp_path: Path) -> None:
    tokenizer = spiece(tmp_path)
    model_folder(tmp_path / "model", "mt5", tokenizer)
    assert run(["convert", str(tmp_path / "model"), str(tmp_path / "ours"), "--to", "paddock"]) == 0
    trim = ["--trim-vocab", str(corpus_of(tmp_path))]
    for number, to in enumerate(("paddock", "huggingface")):
        assert run(["convert", str(tmp_path / "ours"), str(tmp_path / f"small{number}"), "--to", to, *trim]) == 0
    first, second = (open_trained(str(tmp_path / f"small{number}"), torch.device("cpu")) for number in (0, 1))
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])


@pytest.mark.parametrize(
    ("change", "flags", "code", "message"),
    [
        ("", "--trim-vocab {folder}/nothing.txt", 4, "there is no corpus"),
        ("empty", "--trim-vocab {folder}/corpus.txt", 4, "there is no text in"),
        ("", "--trim-vocab {folder}/bad.jsonl", 4, 'bad.jsonl, line 1, cannot be used'),
        ("", "--trim-vocab {folder}/latin.txt", 4, "line 2, is not text in UTF-8"),
        ("no tokenizer", "--trim-vocab {folder}/corpus.txt", 4, "has no tokenizer"),
        ("too many", "--trim-vocab {folder}/corpus.txt", 4, "does not fit the model"),
        ("bpe", "--trim-vocab {folder}/corpus.txt", 4, "BPE model of SentencePiece cannot be trimmed"),
        ("", "--vocab-multiple 8", 2, "nothing is trimmed"),
        ("", "--trim-vocab {folder}/corpus.txt --vocab-multiple 0", 2, "--vocab-multiple = 0"),
        ("", "", 2, "already a Hugging Face folder"),
    ],
)  # fmt: skip
def test_what_cannot_be(tmp_path: Path, change: str, flags: str, code: int, message: str, capsys: Captured) -> None:
    tokenizer = spiece(tmp_path, **({"model_type": "bpe"} if change == "bpe" else {}))
    model_folder(tmp_path / "model", "t5", tokenizer, more=-1 if change == "too many" else 1)
    corpus_of(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"words": "a"}\n')
    (tmp_path / "latin.txt").write_bytes("ja\ngröße\n".encode("latin-1"))
    if change == "empty":
        (tmp_path / "corpus.txt").write_text("\n\n")
    if change == "no tokenizer":
        (tmp_path / "model" / "spiece.model").unlink()
    arguments = [str(tmp_path / "model"), str(tmp_path / "small"), *flags.format(folder=tmp_path).split()]
    assert run(["convert", *arguments]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_a_family_that_cannot_be_trimmed(tmp_path: Path, capsys: Captured) -> None:
    tokenizer = train_tokenizer(LINES, 300)
    model = GPT2(GPT2Config(hidden=8, layers=1, heads=2, vocab=300, context=8))
    initialize(model, 1)
    save_folder(model.state_dict(), model.config, tmp_path / "model", add_files=tokenizer.save)
    trim = ["--trim-vocab", str(corpus_of(tmp_path))]
    assert run(["convert", str(tmp_path / "model"), str(tmp_path / "small"), *trim]) == 2
    assert "the vocabulary of a gpt2 cannot be trimmed" in capsys.readouterr().err
