"""Flags that only make sense together: those of a tokenizer, of a run that is saved where it is loaded, of a context
and a length, and a DeepSpeed file beside all others."""

from __future__ import annotations

from paddock.checkpoint.config import FOLDER
from paddock.config.flags.alias import take, value_of, whole
from paddock.config.flags.elsewhere import DEEPSPEED_CONFIG
from paddock.config.flags.megatron import CHECKPOINT_STEP, MUST_BE_THERE, POSITIONS, PRETRAINED, TOKENIZER_FLAGS
from paddock.config.flags.torchtitan import ALL_OF_IT, DATASET, LOWEST, TOKENS_ALL, TOKENS_EACH
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.files import user_path

MOST = 10**12
"""Tokens of a batch, and steps of a run."""
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
    arguments = _corpus(_tokens(_lowest_rate(arguments, recipe), recipe))
    arguments, notes = _pretrained(_tokenizer(arguments))
    arguments, more = _begin_anew(arguments)
    return _at_step(_all_of_it(arguments)), notes + more


def _corpus(arguments: list[str]) -> list[str]:
    """torchtitan's name of a dataset says how a file is read, or what is downloaded."""
    arguments, name = take(arguments, DATASET)
    if name is not None and value_of(arguments, "--data.path") is None:
        why, fix = "nothing is downloaded; data is in files", "--data.path FILE: text, JSON lines or an indexed corpus"
        raise bad_value(DATASET, name, why, fix)
    return arguments


def _lowest_rate(arguments: list[str], recipe: Recipe) -> list[str]:
    """torchtitan's lowest learning rate is a part of the highest."""
    arguments, factor = take(arguments, LOWEST)
    if factor is None:
        return arguments
    try:
        lowest = float(factor) * float(value_of(arguments, "--optimizer.lr") or recipe.optimizer.lr)
    except ValueError:
        raise bad_value(LOWEST, factor, "it and --optimizer.lr should be numbers") from None
    return [*arguments, "--schedule.min-lr", repr(lowest)]


def _tokens(arguments: list[str], recipe: Recipe) -> list[str]:
    """torchtitan's batches, which are counted in tokens."""
    for flag, field in ((TOKENS_EACH, "--batch.micro"), (TOKENS_ALL, "--batch.global")):
        arguments, tokens = take(arguments, flag)
        if tokens is None:
            continue
        said = value_of(arguments, "--data.sequence-length") or str(getattr(recipe.data, "sequence_length", 1))
        length = whole("--data.sequence-length", said, MOST)
        samples, rest = divmod(whole(flag, tokens, MOST), length)
        if rest:
            why = f"samples have {length} tokens"
            raise bad_value(flag, tokens, why, "set a multiple of that, or --training.max_context_length")
        arguments += [field, str(samples)]
    return arguments


def _pretrained(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Weights to begin with, where there is nothing yet to go on from."""
    arguments, weights = take(arguments, PRETRAINED)
    if weights is None:
        return arguments, []
    load = value_of(arguments, "--checkpoint.load")
    if load is not None and (load == "auto" or _is_there(load)):
        return arguments, [f"{PRETRAINED}: --load has a checkpoint, which goes on"]
    rest = take(arguments, "--checkpoint.load")[0]
    return [*rest, "--checkpoint.load", weights, "--checkpoint.weights-only"], []


def _all_of_it(arguments: list[str]) -> list[str]:
    """torchtitan's checkpoint with its optimizer, where its weights alone are the rule."""
    if ALL_OF_IT not in arguments:
        return arguments
    return [word for word in arguments if word not in (ALL_OF_IT, "--checkpoint.weights-only")]


def _at_step(arguments: list[str]) -> list[str]:
    """The checkpoint of a certain step in what is loaded."""
    arguments, step = take(arguments, CHECKPOINT_STEP)
    if step is None:
        return arguments
    number = whole(CHECKPOINT_STEP, step, MOST)
    arguments, load = take(arguments, "--checkpoint.load")
    if load in (None, "auto"):
        raise bad_value(CHECKPOINT_STEP, step, "nothing is loaded that it could be a step of", "add --load RUN")
    place = load.rstrip("/")
    folder = place if place.endswith(f"/{FOLDER}") else f"{place}/{FOLDER}"
    return [*arguments, "--checkpoint.load", f"{folder}/step-{number:08d}"]


def _is_there(load: str) -> bool:
    """Whether a checkpoint, or a folder of them, is in a place of this machine."""
    place = user_path(load)
    return (place / FOLDER).is_dir() or (place / "config.json").is_file()


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
    must_be_there = MUST_BE_THERE in arguments
    arguments = [word for word in arguments if word != MUST_BE_THERE]
    load, save = value_of(arguments, "--checkpoint.load"), value_of(arguments, "--run-dir")
    if must_be_there or load is None or save is None or user_path(load).resolve() != user_path(save).resolve():
        return arguments, []
    place = user_path(save)
    if _is_there(load):
        return arguments, []
    if place.is_file():
        raise ConfigError(f"{save} is a file, and runs are directories", fix="give --save another name")
    note = f"{save} has no checkpoint yet, so training starts anew; the same command goes on from what it saves there"
    return [*take(arguments, "--checkpoint.load")[0], "--checkpoint.load", "auto"], [note]
