"""`paddock flags [WORD]`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Annotated, Any

import tyro
from pydantic import BaseModel

from paddock.cli.arguments import HELP_FLAGS, alias_page, parse
from paddock.cli.mirror import documentation
from paddock.cli.pages import room_in_terminal, show_page
from paddock.config.flags.tables import SYSTEMS
from paddock.config.foreign import idle_keys
from paddock.config.load import load_without_validation
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, nearest

EXAMPLES = ("gpt2/tiny", "bert/tiny", "bert/base-uncased-squad", "t5/tiny", "t5/reverse", "resnet/tiny-synthetic")
"""Recipes that have all fields of all families and tasks between them."""
MEANING = 41
"""The column in which it begins."""
UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


@dataclass(frozen=True)
class FlagsOptions:
    """What the flags and keys of other systems are called here: Megatron-LM and OneFlow-GPT, torchtitan, DeepSpeed,
    LiBai, MindFormers, the ImageNet example, Tecorigin's ModelZoo.

        paddock flags
        paddock flags recompute
        paddock flags tensor_model_parallel

    With a WORD, all that have it in their name or meaning, and the fields of recipes that have it in their name or
    help."""

    word: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[WORD]")] = ""
    """A flag, a key, a part of one, or a word of the field; dashes, underscores and spaces are the same."""
    json: bool = False
    """Print the rows as JSON."""


@dataclass(frozen=True)
class Row:
    """A flag, or a few that mean the same."""

    system: str
    flags: tuple[str, ...]
    means: str

    def has(self, word: str) -> bool:
        stems = [flag[2:-1] for flag in self.flags if flag.endswith("*")]
        return any(word.startswith(_plain(stem)) for stem in stems) or any(
            word in _plain(text) for text in (*self.flags, self.means)
        )


def main(arguments: list[str]) -> None:
    own = ("--json", *HELP_FLAGS)
    # A flag is looked for as it is typed, dashes and all.
    options = parse(FlagsOptions, "flags", [word if word in own else word.lstrip("-") for word in arguments])
    if not options.word and not options.json:
        show_page(alias_page().strip())
        return
    word = _plain(options.word)
    found = [row for row in (*_of_systems(), *(_of_recipes() if word else ())) if row.has(word)]
    if not found:
        known = [flag.lstrip("-") for row in _of_systems() for flag in row.flags]
        raise ConfigError(
            f'no system that is known here has "{options.word}"',
            fix=nearest(options.word, known) or "look at all of them: paddock flags",
        )
    print(json.dumps([asdict(row) for row in found]) if options.json else _page(found, room_in_terminal()))


def _plain(text: str) -> str:
    return text.lower().replace("_", "-").replace(" ", "-")


def _of_systems() -> Iterator[Row]:
    for system in SYSTEMS:
        for alias in system.aliases:
            yield Row(system.name, alias.flags, alias.means)
    for name, keys in idle_keys().items():
        for key, why in keys.items():
            yield Row(f"{name}'s configs", (key,), f"({why})")


def _of_recipes() -> Iterator[Row]:
    """The fields themselves, each once, with their help."""
    seen = set()
    for example in EXAMPLES:
        for row in _fields(load_without_validation(example)):
            if row not in seen:
                seen.add(row)
                yield row


def _fields(recipe: Recipe) -> Iterator[Row]:
    for name in type(recipe).model_fields:
        section = getattr(recipe, name)
        if isinstance(section, BaseModel):
            texts = documentation(type(section))
            for inside, field in type(section).model_fields.items():
                flag = f"--{name}.{(field.alias or inside).replace('_', '-')}"
                yield Row("Paddock", (flag,), texts.get(inside, ""))


def _page(rows: list[Row], room: int | None) -> str:
    """The rows, system by system; where there is little room, what they mean is broken between words."""
    lines: list[str] = []
    behind = " " * (MEANING if room is None or room > 2 * MEANING else 6)
    for system in dict.fromkeys(row.system for row in rows):
        lines += ([""] if lines else []) + [f"{system}:"]
        for row in rows:
            if row.system == system:
                line = f"  {' '.join(row.flags):<{MEANING - 3}} {row.means}"
                lines += [line] if room is None else wrap(line, room, subsequent_indent=behind, **UNBROKEN)
    return "\n".join(lines)
