"""Readers of tokenizers, each with its tokenizer_config.json: they are loaded, and then a text goes through them."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from random import Random

from engine import Reader, files_in, scratch
from mutation import Files, damage_bytes, damage_text, json_mutator

from paddock.config.tokenizer_of_weights import _said
from paddock.data.tokenizers.load import load_tokenizer_folder, train_tokenizer
from paddock.testing.samples.texts import word_tokenizer

TEXTS = ["Where is the capital of Germany? Berlin.", "中国 é 🙂 <extra_id_0> [MASK] <|endoftext|>", ""]
KNOWN = ["berlin is in germany " * 3, "the capital of germany is berlin", "who is where"]


def read_tokenizer(folder: Path) -> object:
    _said("wordpiece", folder)
    _said("sentencepiece", folder)
    found = load_tokenizer_folder(folder)
    if found is None:
        return None
    ids = found.encode_batch(TEXTS)
    for row in ids:
        found.decode(row)
    parts = ("end_of_text", "pad", "cls", "sep", "mask", "unk")
    special = [found.special_id(part) for part in parts]
    assert all(0 <= token < found.vocab_size for row in ids for token in row)
    continuation = found.continuation()
    assert len(continuation) == len(found.unmarked()) == found.vocab_size
    [found.token_at(number) for number in range(min(found.vocab_size, 50))]
    return ids, special, found.vocab_size, len(found.sentinel_ids)


def _saved(tokenizer: object) -> Files:
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        tokenizer.save(Path(place))  # type: ignore[attr-defined]
        return files_in(Path(place))


def json_seeds() -> list[Files]:
    unigram = b"""{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 0, "content": "<unk>",
    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\xe2\x96\x81", "prepend_scheme": "always", "split": true},
    "post_processor": null, "decoder": {"type": "Metaspace", "replacement": "\xe2\x96\x81",
    "prepend_scheme": "always", "split": true}, "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
    "vocab": [["<unk>", 0.0], ["\xe2\x96\x81the", -1.5], ["\xe2\x96\x81", -2.0], ["berlin", -3.0], ["e", -4.0]]}}"""
    return [
        _saved(train_tokenizer(KNOWN, 290)),
        _saved(word_tokenizer(scratch())),
        {"tokenizer.json": unigram, "tokenizer_config.json": b'{"eos_token": {"content": "<unk>"}}'},
    ]


def wordpiece_seeds() -> list[Files]:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "is", "berlin", "##s", "b", "##e", "中", "##国"]
    vocabulary = "".join(f"{word}\n" for word in words).encode()
    settings = b'{"do_lower_case": true, "cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}}'
    chinese = b'{"do_lower_case": false, "chinese_whole_words": false}'
    return [{"vocab.txt": vocabulary, "tokenizer_config.json": one} for one in (settings, chinese)]


def bpe_seeds() -> list[Files]:
    words = ["!", "a", "b", "c", "ab", "abc", "Ġ", "Ġa", "<|endoftext|>"]
    vocab = "{" + ", ".join(f'"{word}": {number}' for number, word in enumerate(words)) + "}"
    merges = "#version: 0.2\na b\nab c\nĠ a\n"
    settings = b'{"eos_token": "<|endoftext|>", "unk_token": {"content": "<|endoftext|>", "lstrip": false}}'
    return [{"vocab.json": vocab.encode(), "merges.txt": merges.encode(), "tokenizer_config.json": settings}]


def sentencepiece_seeds() -> list[Files]:
    from sentencepiece import SentencePieceTrainer

    found = []
    for kind in ("unigram", "bpe"):
        model = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(KNOWN * 4), model_writer=model, vocab_size=40, model_type=kind, minloglevel=2,
            hard_vocab_limit=False,
        )  # fmt: skip
        found.append({"spiece.model": model.getvalue(), "tokenizer_config.json": b'{"extra_ids": 4}'})
    return found


SETTINGS = json_mutator(
    ("extra_ids", "eos_token", "unk_token", "content", "do_lower_case", "chinese_whole_words", True, 2**31, 10**7)
)
ENGINE_WORDS = (
    *(
        "type",
        "BPE",
        "WordPiece",
        "WordLevel",
        "Unigram",
        "vocab",
        "merges",
        "unk_token",
        "unk_id",
        "added_tokens",
        "id",
    ),
    *"content normalizer pre_tokenizer decoder post_processor truncation padding ByteLevel".split(),
    *(
        "Sequence",
        "Split",
        "Regex",
        "pattern",
        "Precompiled",
        "Metaspace",
        "BertNormalizer",
        "Strip",
        "Replace",
        "Prepend",
    ),
    *(
        "max_length",
        "stride",
        "byte_fallback",
        "dropout",
        "continuing_subword_prefix",
        "special",
        "Digits",
        "Punctuation",
    ),
)


def damage_merges(rng: Random, data: bytes) -> bytes:
    return damage_text(rng, data) if rng.random() < 0.7 else damage_bytes(rng, data)


READERS = [
    Reader(
        "tokenizer_json",
        json_seeds,
        read_tokenizer,
        {"config.json": SETTINGS, ".json": json_mutator(ENGINE_WORDS)},
        share=0.7,
    ),
    Reader("wordpiece", wordpiece_seeds, read_tokenizer, {"config.json": SETTINGS, ".txt": damage_merges}),
    Reader("bpe", bpe_seeds, read_tokenizer, {"config.json": SETTINGS, ".json": json_mutator(), ".txt": damage_merges}),
    Reader("sentencepiece", sentencepiece_seeds, read_tokenizer, {"config.json": SETTINGS}, share=0.5),
]
