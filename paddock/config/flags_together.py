"""Flags that only make sense together: those of a tokenizer, of a run that is saved where it is loaded, of a context
and a length, and a DeepSpeed file beside all others."""

from __future__ import annotations

from paddock.checkpoint.config import FOLDER
from paddock.config.alias import take, value_of
from paddock.config.flags_elsewhere import DEEPSPEED_CONFIG, POSITIONS, TOKENIZER_FLAGS
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.files import user_path

KINDS = {
    "GPT2BPETokenizer": "gpt2",
    "BertWordPieceLowerCase": "wordpiece",
    "BertWordPieceCase": "wordpiece",
    "SentencePieceTokenizer": "sentencepiece",
    "GPTSentencePieceTokenizer": "sentencepiece",
    "HuggingFaceTokenizer": "folder",
    "NullTokenizer": "none",
}
"""Megatron-LM's tokenizers, and what they are called here."""


def join_flags(arguments: list[str], recipe: Recipe) -> tuple[list[str], list[str]]:
    """Replace such flags by Paddock's own. Returns the arguments, and notes to show the user."""
    arguments, file = take(arguments, DEEPSPEED_CONFIG)
    if file is not None:
        from paddock.config.foreign.deepspeed import flags_of_file

        arguments = [*flags_of_file(user_path(file)), *arguments]  # a flag beside the file counts
    arguments, positions = take(arguments, POSITIONS)
    if positions is not None:  # --seq-length says it too, wherever it stands
        arguments += ["--model.context", positions]
    return _begin_anew(_tokenizer(arguments))


def _tokenizer(arguments: list[str]) -> list[str]:
    given: dict[str, str | None] = {}
    for flag in TOKENIZER_FLAGS:
        arguments, given[flag] = take(arguments, flag)
    kind, vocab, merges, model = given.values()
    if not any(given.values()):
        return arguments
    name = kind or ("GPT2BPETokenizer" if merges else "BertWordPieceLowerCase" if vocab else "SentencePieceTokenizer")
    if name not in KINDS:
        raise bad_value("--tokenizer-type", name, "there is no such tokenizer here", did_you_mean(name, [*KINDS]))
    ours = ["--tokenizer.kind", KINDS[name]]
    files = {
        "gpt2": [("--tokenizer.vocab", vocab), ("--tokenizer.merges", merges)],
        "wordpiece": [("--tokenizer.vocab", vocab)],
        "sentencepiece": [("--tokenizer.model", model)],
        "folder": [("--tokenizer.path", model)],
        "none": [],
    }[KINDS[name]]
    for flag, value in files:
        ours += [flag, value] if value is not None else []
    if name == "BertWordPieceLowerCase":
        ours.append("--tokenizer.lower-case")
    return [*ours, *arguments]


def _begin_anew(arguments: list[str]) -> tuple[list[str], list[str]]:
    """--load DIR --save DIR, as scripts for Megatron-LM have it from the first start on."""
    load, save = value_of(arguments, "--checkpoint.load"), value_of(arguments, "--run-dir")
    if load is None or save is None or user_path(load).resolve() != user_path(save).resolve():
        return arguments, []
    place = user_path(save)
    if (place / FOLDER).is_dir() or (place / "config.json").is_file():
        return arguments, []
    if place.is_file():
        raise ConfigError(f"{save} is a file, and runs are directories", fix="give --save another name")
    note = f"{save} has no checkpoint yet, so training starts anew; the same command goes on from what it saves there"
    return [*take(arguments, "--checkpoint.load")[0], "--checkpoint.load", "auto"], [note]
