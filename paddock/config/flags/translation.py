"""Translating the flags of the systems that users come from (`tables.py`), before anything is parsed.

An alias becomes Paddock's own flags, so it means exactly what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Container
from urllib.parse import urlsplit

from paddock.config.flags.alias import Alias, System, whole
from paddock.config.flags.alias import take as _take
from paddock.config.flags.alias import value_of as _value_of
from paddock.config.flags.elsewhere import CONFIG_FLAGS
from paddock.config.flags.megatron import VIRTUAL_STAGES
from paddock.config.flags.tables import (
    AUTOCAST,
    DATASET_PATH,
    EPOCH,
    MEGATRON,
    MODEL_NAME,
    PER_RANK,
    SYSTEMS,
    VIRTUAL_STAGE,
    data_folder,
)
from paddock.config.flags.together import join_flags
from paddock.config.flags.torchtitan import TOKENS_ALL, TOKENS_EACH
from paddock.config.load import find_recipe
from paddock.config.overrides import field_kinds
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, UserError, bad_value

MEGATRONS = {flag for alias in MEGATRON for flag in alias.flags}
MICRO = {"--micro-batch-size", "--training.local_batch_size", TOKENS_EACH, PER_RANK}
GLOBAL = {"--global-batch-size", "--training.global_batch_size", TOKENS_ALL, "-b"}
"""Where one is given without the other, the other follows from the layout."""
"""Nodes, layers and processes that are counted here, one by one."""


def alias_flags(recipe: Recipe) -> dict[str, Alias]:
    """The flags of other systems that mean something for a recipe's family, and shorthands, each with its meaning.
    Those with a dot are known with dashes, too, as those who parse them take them."""
    table = {flag: alias for system in _systems(recipe) for alias in system.aliases for flag in alias.flags}
    dotted = {flag.replace("_", "-"): alias for flag, alias in table.items() if re.match(r"--\w+\.", flag)}
    return dotted | table


def _systems(recipe: Recipe) -> list[System]:
    """Those whose flags mean something for a recipe's family."""
    return [system for system in SYSTEMS if not system.families or recipe.model.family in system.families]


def translate(arguments: list[str], recipe: Recipe) -> tuple[list[str], list[str]]:
    """Replace aliases by Paddock's own flags. Returns the arguments and notes to show the user."""
    table = alias_flags(recipe)
    fields = field_kinds(type(recipe))
    translated: list[str] = []
    notes: list[str] = []
    used: set[str] = set()
    position = 0
    takes_folder = any(system.takes_folder for system in _systems(recipe))
    may_be_folder = takes_folder  # nothing before it that may take it as its value
    while position < len(arguments):
        word = arguments[position]
        position += 1
        flag, equals, value = word.partition("=")
        if equals and flag in fields:  # KEY=VALUE, as other systems say it
            translated.append(f"--{word}")
            continue
        if may_be_folder and not word.startswith("-") and flag not in table:
            translated += data_folder(word)
            continue
        # As it is written first: --batch_size and --batch-size are flags of two systems, and mean two things.
        alias = table.get(flag) or table.get(flag.replace("_", "-") if flag.startswith("--") else flag)
        alias = alias or _of_a_kind(flag, table, fields)
        may_be_folder = alias is not None and takes_folder
        if alias is None:
            translated.append(word)
            continue
        used.add(alias.flags[0])
        if alias.is_pattern:  # of which nobody knows what takes a value
            value = flag
        elif equals and not alias.takes_value and value.lower() not in ("true", "1"):
            raise bad_value(flag, value, "it takes no value", f"{flag} alone, or leave it out")
        if alias.takes_value and not equals:
            if position == len(arguments):
                raise ConfigError(f"{flag} needs a value", fix=f"it stands for {alias.means}")
            value = arguments[position]
            position += 1
        while alias.several and not equals and position < len(arguments) and _is_value(arguments[position]):
            position += 1
        try:
            translated += alias.expand(value)
        except UserError:
            raise
        except (ValueError, OverflowError):  # also of "inf", where a whole number is wanted
            raise bad_value(flag, value, "it should be a number") from None
        if alias.note:
            notes.append(f"{flag}: {alias.note}")
    if PER_RANK in used and takes_folder:
        notes.append(f"{PER_RANK}: samples of each process, as in the ModelZoo; --batch-size is the global batch")
    translated, more = join_flags(translated, recipe)
    return _join_parts(translated, used, recipe), notes + more


def _of_a_kind(flag: str, table: dict[str, Alias], fields: Container[str]) -> Alias | None:
    """The one that stands for all flags that begin so, `--moe-*`, turned on or off."""
    if not flag.startswith("--") or flag[2:].replace("-", "_") in fields:
        return None
    spelled = re.sub("^--(no|disable)-", "--", flag.replace("_", "-"))
    kinds = (alias for alias in table.values() if alias.is_pattern)
    return next((kind for kind in kinds if spelled.startswith(kind.flags[0][:-1].replace("_", "-"))), None)


def _is_value(word: str) -> bool:
    """Whether a word is no flag; a number below zero is none."""
    return re.match(r"-[^\d.]", word) is None


def _join_parts(arguments: list[str], used: set[str], recipe: Recipe) -> list[str]:
    """Aliases that only make sense together: Adam's two betas, an omitted global or micro-batch, and the layers of a
    stage with their number and that of the stages."""
    arguments, first = _take(arguments, "--adam-beta1")
    arguments, second = _take(arguments, "--adam-beta2")
    if first or second:
        betas = recipe.optimizer.betas
        arguments += ["--optimizer.betas", first or str(betas[0]), second or str(betas[1])]
    arguments, size = _take(arguments, VIRTUAL_STAGE)
    arguments, stages = _take(arguments, VIRTUAL_STAGES)
    if size and stages:
        raise bad_value(VIRTUAL_STAGES, stages, f"{VIRTUAL_STAGE} {size} says it too", "give one of the two")
    if size or stages:
        arguments += _interleave(size, stages, arguments, recipe)
    arguments = _model_zoo(_machines(arguments), recipe)
    # As in those systems: a micro-batch without a global batch means micro × data, and the reverse.
    if used & MICRO and "--batch.global" not in arguments:
        arguments += ["--batch.global", "None"]
    if used & GLOBAL and "--batch.micro" not in arguments and _value_of(arguments, "--batch.global") != "None":
        arguments += ["--batch.micro", "None"]
    return arguments


def take_recipe(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The recipe that a command line names, by its first word or by a flag such as the ModelZoo's --model_name, and the
    rest. Megatron-LM's flags alone are a GPT-2."""
    name, rest = (arguments[0], arguments[1:]) if arguments and not arguments[0].startswith("-") else (None, arguments)
    for flag in (MODEL_NAME, MODEL_NAME.replace("_", "-"), *CONFIG_FLAGS):
        rest, named = _take(rest, flag)
        if named is None:
            continue
        if name is not None and find_recipe(name) != find_recipe(named):
            fix = "give one of the two"
            raise bad_value(flag, named, f"the recipe is {name}, and it would be ignored", fix)
        name = name or named
    if name is None and any(word.partition("=")[0] in MEGATRONS for word in rest):
        return "gpt2", rest
    return name, rest


def _model_zoo(arguments: list[str], recipe: Recipe) -> list[str]:
    """What the ModelZoo's parameters mean for this recipe's task and device."""
    arguments, epochs = _take(arguments, EPOCH)
    if epochs is not None:
        arguments += ["--train.epochs", epochs]
        arguments += [] if _value_of(arguments, "--train.steps") else ["--train.steps", "None"]
    arguments, path = _take(arguments, DATASET_PATH)
    if path:
        from paddock.tasks.registry import name_dataset

        fields = name_dataset(recipe.task, path)
        given = _value_of(arguments, "--data.source")
        for name, value in (fields | ({"source": given} if given else {})).items():
            arguments += [f"--data.{name.replace('_', '-')}", str(value)]
    arguments, autocast = _take(arguments, AUTOCAST)
    if autocast is not None:
        arguments += ["--precision.compute", _mixed_precision(autocast, arguments, recipe)]
    return arguments


def _mixed_precision(autocast: str, arguments: list[str], recipe: Recipe) -> str:
    """The type to compute in: the recipe's own, if the device has it for mixed precision, else the device's first."""
    if autocast.lower() not in ("true", "false"):
        raise bad_value(AUTOCAST, autocast, "it is True or False")
    if autocast.lower() == "false":
        return "float32"
    from paddock.devices import adapter_named, select

    device = _value_of(arguments, "--train.device") or recipe.train.device
    adapter = select(device) if device == "auto" else adapter_named(device)
    if not adapter.autocast:
        raise bad_value(AUTOCAST, autocast, f"{adapter.name} has no type for mixed precision", f"{AUTOCAST} False")
    compute = recipe.precision.compute
    return compute if compute in adapter.autocast else adapter.autocast[0]


def _machines(arguments: list[str]) -> list[str]:
    """The ImageNet example's machines. Without --world-size, --rank is Paddock's own."""
    arguments, url = _take(arguments, "--dist-url")
    arguments, count = _take(arguments, "--world-size")
    if count in (None, "-1", "1"):
        return _take(arguments, "--rank")[0] if count is not None else arguments
    assert count is not None
    arguments, rank = _take(arguments, "--rank")
    try:
        place = urlsplit(url or "")
        meeting = ["--master-addr", place.hostname] if place.scheme == "tcp" and place.hostname else []
        meeting += ["--master-port", str(place.port)] if meeting and place.port else []
    except ValueError:
        meeting = []
    if url is not None and not meeting:
        raise bad_value("--dist-url", url, "machines meet at an address", "e.g. tcp://10.0.0.1:29500")
    return [*arguments, "--nnodes", count, *(["--node-rank", rank] if rank else []), *meeting]


def _interleave(size: str | None, count: str | None, arguments: list[str], recipe: Recipe) -> list[str]:
    """An interleaved pipeline whose stages have `size` layers each, or are `count` of each process."""
    flag, said = (VIRTUAL_STAGE, size) if size is not None else (VIRTUAL_STAGES, count or "")
    layers = whole("--num-layers", _value_of(arguments, "--model.layers") or str(recipe.model.num_units()))
    pipeline = _value_of(arguments, "--parallel.pipeline") or str(recipe.parallel.pipeline)
    ranks, each = whole("--pipeline-model-parallel-size", pipeline), whole(flag, said)
    if ranks == 1:
        raise bad_value(flag, said, "there is no pipeline", "set --pipeline-model-parallel-size, or leave it out")
    legal = [n for n in range(1, layers // ranks) if layers % (n * ranks) == 0]
    if flag == VIRTUAL_STAGES:
        legal = [layers // (n * ranks) for n in reversed(legal)]
    if each not in legal:
        raise bad_value(
            flag,
            said,
            f"{layers} layers over {ranks} processes do not make two or more equal stages each of that "
            + ("size" if flag == VIRTUAL_STAGE else "number"),
            f"legal: {', '.join(map(str, legal))}" if legal else "leave it out, or change the number of layers",
        )
    each = each if flag == VIRTUAL_STAGE else layers // (each * ranks)
    stages = ",".join(str(layer // each) for layer in range(layers))
    return ["--parallel.schedule", "interleaved", "--parallel.stages", stages]
