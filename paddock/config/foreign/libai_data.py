"""Tokenizer and data of a LiBai config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paddock.config.foreign.account import Account
from paddock.errors import ConfigError, did_you_mean, shown
from paddock.files import read_regular, user_path

TOKENIZER = "tokenization.tokenizer"
TRAIN = "dataloader.train"
KINDS = {"GPT2Tokenizer": "gpt2", "BertTokenizer": "wordpiece", "T5Tokenizer": "sentencepiece"}
LARGEST_VOCABULARY_FILE = 2**27
"""Bytes."""


def tokenizer(account: Account, missing: list[str]) -> None:
    """The tokenizer, whose size becomes the model's, as there."""
    key = f"{TOKENIZER}._target_"
    name = account.word(key).rpartition(".")[2]
    if not name and any(part.endswith(("gpt_dataset", "t5_dataset")) for part in missing):
        name = "GPT2Tokenizer" if account.recipe["model"]["family"] == "gpt2" else "BertTokenizer"
    if name not in KINDS:
        account.refuse(key, f"there is no such tokenizer here. {did_you_mean(name, [*KINDS])}")
        return
    kind = KINDS[name]
    account.put("tokenizer", {"kind": kind} | dict.fromkeys(("vocab", "merges", "model", "extra_ids")))
    account.move(key, "tokenizer.kind", kind)
    field = "model" if kind == "sentencepiece" else "vocab"
    vocabulary = f"{TOKENIZER}.vocab_file"
    account.move(vocabulary, f"tokenizer.{field}")
    if kind == "gpt2":
        account.move(f"{TOKENIZER}.merges_file", "tokenizer.merges")
        account.idle(f"{TOKENIZER}.do_lower_case", "a byte-level tokenizer keeps the case, there too")
    if kind == "wordpiece":
        account.move(f"{TOKENIZER}.do_lower_case", "tokenizer.lower_case")
        if account.recipe["model"]["family"] == "t5":
            _sentinels(account)
    _size(account, kind)


def _sentinels(account: Account) -> None:
    """LiBai adds them, with [BOS] and [EOS], behind the vocabulary."""
    key = f"{TOKENIZER}.additional_special_tokens"
    named = account.get(key, [f"<extra_id_{number}>" for number in range(100)])
    if not isinstance(named, list) or named != [f"<extra_id_{number}>" for number in range(len(named))]:
        account.refuse(key, "the tokens that are added here are <extra_id_0>, <extra_id_1>, … in order")
        return
    account.put("tokenizer.extra_ids", len(named), "" if key in account else "LiBai's own t5_dataset.py has so many")
    account.move(key, "tokenizer.extra_ids", len(named))


def _size(account: Account, kind: str) -> None:
    """As there the model has as many tokens as the tokenizer, up to a multiple, whatever vocab_size says."""
    key = "model.cfg.vocab_size"
    file = account.word(f"{TOKENIZER}.vocab_file")
    multiple = account.whole("tokenization.make_vocab_size_divisible_by", 128)
    account.idle("tokenization.make_vocab_size_divisible_by", "model.vocab is such a multiple")
    if kind == "sentencepiece":
        account.move(key, "model.vocab")
        return
    place = user_path(file)
    if not file or not place.is_file():
        account.idle(key, "the tokenizer says it, as there")
        account.refuse(
            f"{TOKENIZER}.vocab_file",
            "it is not there, and its size is the model's, whatever vocab_size says. Start where it is found, or say "
            f"{TOKENIZER}.vocab_file=FILE",
        )
        return
    count = _count(place, kind)
    extra = account.recipe["tokenizer"].get("extra_ids")
    if extra is not None:
        account.put("model.decoder_start", count, "[BOS], behind the vocabulary, begins what is written")
        count += 2 + extra
    size = -(-count // multiple) * multiple
    note = f"the tokenizer has {count} tokens, and the model a multiple of {multiple}, as there"
    if key in account:
        account.move(key, "model.vocab", size, note=note)
    else:
        account.put("model.vocab", size, note)


def _count(place: Path, kind: str) -> int:
    try:
        text = read_regular(place, LARGEST_VOCABULARY_FILE).decode()
        return len(json.loads(text)) if kind == "gpt2" else len(text.splitlines())
    except (ValueError, TypeError, RecursionError):
        raise ConfigError(
            f"{shown(place)} is not a vocabulary", why="JSON of tokens (GPT-2) or a token a line"
        ) from None


def data(account: Account) -> None:
    """The corpora, each with its weight, and how they are cut."""
    prefixes: list[str] = []
    account.put("data.source", "indexed")
    account.put("data.path", None)
    position = 0
    while any(key.startswith(f"{TRAIN}.dataset[{position}].") for key in account.values):
        name = f"{TRAIN}.dataset[{position}]"
        prefixes.append(account.word(f"{name}.data_prefix"))
        _sample(account, name)
        position += 1
    weights = account.get(f"{TRAIN}.weights")
    path: list[Any] = [part for prefix in prefixes if prefix for part in [prefix]]
    if isinstance(weights, list) and len(weights) == len(path) > 1:
        path = [part for pair in zip(weights, path, strict=True) for part in pair]
    account.put("data.path", path or None)
    context = account.recipe["model"].get("context")
    if f"{TRAIN}.dataset[0].max_seq_length" not in account and context is not None:
        account.put("data.sequence_length", context, "as long as the model's context: the config says no other")
    for number in range(position):
        account.move(f"{TRAIN}.dataset[{number}].data_prefix", "data.path", path)
    account.idle(f"{TRAIN}.weights", "data.path says it where there are several corpora")
    splits = f"{TRAIN}.splits"
    if account.get(splits):
        given = account.get(splits)
        if not all(part == given[0] for part in given):
            account.refuse(splits, "the corpora of a blend are split alike here")
        account.move(splits, "data.split", given[0])


def _sample(account: Account, name: str) -> None:
    account.move(f"{name}.max_seq_length", "data.sequence_length")
    if account.recipe["model"]["family"] == "t5":
        account.move(f"{name}.max_seq_length_dec", "data.target_length")
        account.move(f"{name}.masked_lm_prob", "data.masking")
    for part in ("_target_", "name", "short_seq_prob", "seed"):
        account.idle(f"{name}.{part}", "the task and train.seed say it")


IDLE_OF_DATA = {
    f"{TRAIN}.dataset*.indexed_dataset.*": "data.path says it",
    f"{TRAIN}.dataset*.tokenizer": "the tokenizer is one",
    f"{TRAIN}._target_": "the task loads its data",
    f"{TRAIN}.train_val_test_num_samples": "it follows from steps and batch",
    f"{TRAIN}.num_workers": "a thread reads ahead; --data.workers takes processes",
    f"{TRAIN}.splits": "data.split is 949, 50, 1",
    "dataloader.test*": "paddock evaluate measures on data.split's parts (--split test)",
    "tokenization.tokenizer.do_chinese_wwm": "it belongs to preprocessing (paddock preprocess --do-chinese-wwm)",
    "tokenization.tokenizer.*_token": "the tokenizer knows its special tokens",
    "tokenization.append_eod": "it belongs to preprocessing (paddock preprocess --append-eod)",
    "tokenization.setup": "the tokenizer is always set up",
    "special_tokens": "the tokenizer knows its special tokens",
}
