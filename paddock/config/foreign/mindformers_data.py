"""The `train_dataset` section of a MindFormers config."""

from __future__ import annotations

from paddock.config.foreign.account import Account
from paddock.errors import did_you_mean

TRAIN = "train_dataset"
LOADER = f"{TRAIN}.data_loader"
PLACE = f"{LOADER}.dataset_dir"
RECORDS = "MindSpore's record files are not read here: make a corpus of the text (paddock preprocess), and give it by "
READERS = {
    "gpt2": ("MindDataset", "TFRecordDataset"),
    "bert": ("SQuADDataLoader",),
    "t5": ("WMT16DataLoader",),
}
"""Loaders of theirs whose data a family takes here."""


def data(account: Account) -> None:
    """Where the data is, by the family that reads it."""
    family = account.recipe.get("model", {}).get("family")
    if family is None:
        return
    kind = f"{LOADER}.type"
    loader = account.word(kind)
    if loader and loader not in READERS[family]:
        choices = [*READERS[family]]
        account.refuse(kind, f"there is no such data for a {family} here. {did_you_mean(loader, choices)}")
        return
    {"gpt2": _corpus, "bert": _questions, "t5": _pairs}[family](account)
    account.must_be(f"{LOADER}.shuffle", (True,), "the order of samples follows from the seed, and each has its turn")


def _corpus(account: Account) -> None:
    """Records of tokens, in whose place a corpus of tokens is needed."""
    account.put("data.source", "indexed")
    account.move(f"{LOADER}.type", "data.source", "indexed", near=True, note=f"{RECORDS}--data.path PREFIX")
    place = account.get(PLACE)
    if place and isinstance(place, str) and not place.endswith((".mindrecord", ".tfrecord")):
        account.move(PLACE, "data.path", note="the prefix of .bin and .idx files")
    else:
        account.idle(PLACE, f"{RECORDS}--data.path PREFIX")


def _questions(account: Account) -> None:
    account.put("data.source", "squad")
    account.move(f"{LOADER}.type", "data.source", "squad")
    account.move(PLACE, "data.path", account.get(PLACE) or None, note="train-v1.1.json and dev-v1.1.json in it")
    for theirs, ours in (
        ("max_seq_len", "sequence_length"),
        ("max_question_len", "question_length"),
        ("doc_stride", "stride"),
    ):
        account.move(f"{LOADER}.{theirs}", f"data.{ours}")
    for theirs, ours in (("n_best_size", "n_best"), ("max_answer_len", "answer_length")):
        account.move(f"metric.{theirs}", f"data.{ours}")
    account.idle(f"{LOADER}.stage", "training takes the one, evaluation the other")
    lower = f"{TRAIN}.tokenizer.do_lower_case"
    account.move(lower, "tokenizer.lower_case", account.flag(lower))


def _pairs(account: Account) -> None:
    """Two files of lines for each part, in one folder."""
    account.put("data.source", "text")
    account.move(f"{LOADER}.type", "data.source", "text")
    folder = account.word(PLACE).rstrip("/")
    for field, part in (("train", "train"), ("validation", "val")):
        account.put(f"data.{field}", [f"{folder}/{part}.{side}" for side in ("source", "target")] if folder else None)
    account.move(PLACE, "data.train", account.recipe["data"]["train"], note="its lines belong together")
    account.put("data.truncate", True, "longer texts are cut, as there")
    section = f"{TRAIN}.tokenizer"
    account.move(f"{section}.src_max_length", "data.sequence_length")
    account.move(f"{section}.tgt_max_length", "data.target_length")
    account.move(f"{section}.prefix", "data.prefix")
    for name in ("type", "stage"):
        account.idle(
            f"{section}.{name}", "the tokenizer is a spiece.model (--tokenizer.model), or comes with the weights"
        )


IDLE_OF_DATA = {
    f"{TRAIN}.tokenizer.*": "the tokenizer is named by --tokenizer.kind, or comes with the weights",
    f"{TRAIN}.input_columns": "the task knows its inputs",
    f"{TRAIN}.output_columns": "the task knows its inputs",
    f"{TRAIN}.column_order": "the task knows its inputs",
    f"{LOADER}.column_names": "the task knows its inputs",
    f"{LOADER}.shard_equal_rows": "every sample is read once, by whoever needs it",
    f"{TRAIN}.num_parallel_workers": "a thread reads ahead; --data.workers takes processes",
    f"{TRAIN}.python_multiprocessing": "a thread reads ahead; --data.workers takes processes",
    f"{TRAIN}.prefetch_size": "a thread reads ahead; --data.workers takes processes",
    f"{TRAIN}.numa_enable": "a thread reads ahead; --data.workers takes processes",
    f"{TRAIN}.drop_remainder": "every step has the whole global batch",
    f"{TRAIN}.batch_size": "runner_config.batch_size says it, as there",
    f"{TRAIN}.repeat": "train.epochs says how often",
    f"{TRAIN}.seed": "train.seed says the order",
    f"{TRAIN}.do_eval": "the part that is evaluated is another",
    "eval_dataset.*": "paddock evaluate measures on the validation part of the same data",
    "eval_dataset_task.*": "paddock evaluate measures on the validation part of the same data",
}
