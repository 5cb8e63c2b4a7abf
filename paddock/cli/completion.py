"""`paddock completion bash|zsh|fish`: a script that completes verbs, flags, their values, recipes and runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, Literal

import tyro

from paddock.cli.arguments import parse
from paddock.cli.known_flags import Flag, flags_of, words_of
from paddock.cli.mirror import mirror
from paddock.config.flags.tables import SYSTEMS
from paddock.config.load import MODEL_ALIASES, load_without_validation, recipe_names
from paddock.config.recipe import Recipe
from paddock.launch.options import LaunchOptions

VERBS_OF = {
    "check": {
        "config": "CheckOptions",
        "parity": "ParityOptions",
        "resume": "ResumeOptions",
        "formats": "FormatsOptions",
        "device": "DeviceOptions",
    },
    "align": {"": "AlignOptions", "record": "RecordOptions"},
}
"""Verbs whose own verbs are not called as their options are."""
TAKE_RECIPES = ("train", "evaluate", "benchmark", "check config", "check parity", "check resume", "align record")
"""Verbs that a recipe comes after, with flags for its fields."""
TAKE_RECIPE_NAMES = ("recipe show", "recipe copy", "zoo show")
TAKE_RUNS = (
    *("resume", "evaluate", "generate", "predict", "convert", "align", "check formats"),
    *("report", "runs show", "runs compare", "runs plot", "runs rm"),
)
"""Verbs that a run directory comes after."""


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script with which a shell completes commands: verbs, flags and their values, recipes, runs, files.

        paddock completion bash > ~/.local/share/bash-completion/completions/paddock
        paddock completion zsh >> ~/.zshrc
        paddock completion fish > ~/.config/fish/completions/paddock.fish

    It knows the flags of this version: make it anew after an update."""

    shell: Annotated[tyro.conf.Positional[Literal["bash", "zsh", "fish"]], tyro.conf.arg(metavar="bash|zsh|fish")]
    """The shell."""


@dataclass(frozen=True)
class Command:
    """A verb, or a verb of a verb, and what may come after it."""

    name: str
    flags: dict[str, Flag] = field(default_factory=dict)
    takes_recipes: bool = False
    takes_runs: bool = False
    subverbs: list[str] = field(default_factory=list)


def main(arguments: list[str]) -> None:
    options = parse(CompletionOptions, "completion", arguments)
    commands = {command.name: command for command in all_commands()}
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](commands), end="")


def all_commands() -> Iterator[Command]:
    """Every verb there is, from the options that its file defines."""
    from paddock.cli.main import VERBS

    of_recipes = {flag.name: flag for flag in _flags_of_recipes()}
    yield Command("help", subverbs=list(VERBS))
    for verb in VERBS:
        module = import_module(f"paddock.cli.{verb.replace('-', '_')}")
        own = {
            name: each
            for name, each in vars(module).items()
            if inspect.isclass(each) and name.endswith("Options") and each.__module__ == module.__name__
        }
        named = VERBS_OF.get(verb) or {_subverb(name): name for name in own}
        if len(own) < 2:
            named = dict.fromkeys([""], next(iter(own), ""))
        subverbs = [name for name in named if name]
        if subverbs and "" not in named:
            yield Command(verb, subverbs=subverbs)
        for name, options in named.items():
            full = f"{verb} {name}".strip()
            flags = {flag.name: flag for flag in flags_of(own[options])} if options else {}
            recipes = full in TAKE_RECIPES
            flags |= of_recipes if recipes or full == "resume" else {}
            words = words_of(own[options]) if options else []
            choices = [choice for word in words[:1] for choice in word.choices]
            after = [*choices, *([] if name else subverbs)]
            yield Command(full, flags, recipes or full in TAKE_RECIPE_NAMES, full in TAKE_RUNS, after)


def _subverb(options: str) -> str:
    return options.removesuffix("Options").lower()


def _flags_of_recipes() -> Iterator[Flag]:
    """Of the fields of any recipe, of processes, and those of other systems."""
    kinds = {type(recipe): recipe for recipe in map(load_without_validation, recipe_names())}
    for recipe in kinds.values():
        yield from flags_of(type(mirror(recipe)))
        yield from _choices(recipe)
    yield from flags_of(LaunchOptions)
    yield from (
        Flag(name, (str,) * alias.takes_value)
        for each in SYSTEMS
        for alias in each.aliases
        if not alias.is_pattern
        for name in alias.flags
    )


def _choices(recipe: Recipe) -> Iterator[Flag]:
    """Fields whose values are a few words: the mirror takes any, since pydantic checks them."""
    for section, part in recipe:
        for name, about in getattr(type(part), "model_fields", {}).items():
            flag = Flag(f"--{section}.{(about.alias or name).replace('_', '-')}", _members(about.annotation))
            if flag.choices:
                yield flag


def _members(kind: Any) -> tuple[Any, ...]:
    from paddock.config.overrides import union_members

    return tuple(union_members(kind))


def recipes() -> list[str]:
    return sorted([*recipe_names(), *MODEL_ALIASES])


def values_by_flag(commands: dict[str, Command]) -> dict[str, list[str]]:
    """The values of flags that have a few."""
    found: dict[str, list[str]] = {}
    for command in commands.values():
        for flag in command.flags.values():
            if flag.choices:
                found[flag.name] = list(dict.fromkeys([*found.get(flag.name, []), *flag.choices]))
    return found


BASH = """\
# Completion of paddock for bash; made by `paddock completion bash`.
_paddock_runs() {
    local place
    for place in "${1%/*}" runs; do
        compgen -G "$place/*/config.yaml" | sed 's|/config.yaml$||'
    done
    compgen -d -- "$1"
}

_paddock() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local command="${COMP_WORDS[1]}" verbs="" flags="" recipes="" runs=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@VERBS@ --help --version" -- "$current"))
        return
    fi
    case "$command ${COMP_WORDS[2]}" in
@PAIRS@
    esac
    case "$previous" in
@VALUES@
    esac
    case "$command" in
@COMMANDS@
    esac
    if [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$flags --help" -- "$current"))
    elif [ "$COMP_CWORD" -eq 2 ] || [[ "$command" == *" "* && "$COMP_CWORD" -eq 3 ]]; then
        COMPREPLY=($(compgen -W "$verbs" -- "$current"))
        [ -z "$recipes" ] || COMPREPLY+=($(compgen -W "@RECIPES@" -- "$current"))
        [ -z "$runs" ] || COMPREPLY+=($(compgen -W "$(_paddock_runs "$current")" -- "$current"))
    fi
}

complete -o default -F _paddock paddock
"""


def bash(commands: dict[str, Command]) -> str:
    """A function that bash calls, with all that there is written out."""
    verbs = [name for name in commands if " " not in name]
    pairs = [name for name in commands if " " in name]
    rows = []
    for name, command in commands.items():
        takes = ("recipes=1; " if command.takes_recipes else "") + ("runs=1; " if command.takes_runs else "")
        verbs_of, flags = " ".join(command.subverbs), " ".join(command.flags)
        rows.append(f'        "{name}") {takes}verbs="{verbs_of}"; flags="{flags}" ;;')
    values = values_by_flag(commands)
    chosen = [
        f'        {flag}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$current")); return ;;'
        for flag, words in values.items()
    ]
    parts = {
        "@VERBS@": " ".join(verbs),
        "@PAIRS@": "\n".join(f'        "{name}") [ "$COMP_CWORD" -eq 2 ] || command="{name}" ;;' for name in pairs),
        "@VALUES@": "\n".join(chosen),
        "@COMMANDS@": "\n".join(rows),
        "@RECIPES@": " ".join(recipes()),
    }
    script = BASH
    for mark, text in parts.items():
        script = script.replace(mark, text)
    return script


def zsh(commands: dict[str, Command]) -> str:
    """zsh reads completions of bash, once it is told to."""
    begin = "# Completion of paddock for zsh; made by `paddock completion zsh`.\n"
    begin += "autoload -Uz compinit bashcompinit\n(( $+functions[compdef] )) || compinit\nbashcompinit\n\n"
    return begin + bash(commands).partition("\n")[2]


FISH = """\
# Completion of paddock for fish; made by `paddock completion fish`.
function __paddock_is
    set -l words (commandline -opc)
    test (count $words) -gt 1; or return 1
    set -l line (string join ' ' -- $words[2..-1])
    string match -q -- "$argv *" "$line "
end

function __paddock_runs
    for config in runs/*/config.yaml
        string replace /config.yaml '' $config
    end
end

complete -c paddock -n '__fish_use_subcommand' -f -a '@VERBS@'
"""


def fish(commands: dict[str, Command]) -> str:
    """A line for every flag of every verb."""
    lines = []
    for name, command in commands.items():
        when = f"complete -c paddock -n '__paddock_is {name}'"
        if command.subverbs:
            lines.append(f"{when} -f -a '{' '.join(command.subverbs)}'")
        if command.takes_recipes:
            lines.append(f"{when} -f -a '{' '.join(recipes())}'")
        if command.takes_runs:
            lines.append(f"{when} -a '(__paddock_runs)'")
        for flag in command.flags.values():
            value = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r" if flag.kinds else ""
            form = f"-l {flag.name[2:]}" if flag.name.startswith("--") else f"-s {flag.name[1:]}"
            lines.append(f"{when} {form}{value}")
    verbs = " ".join(name for name in commands if " " not in name)
    return FISH.replace("@VERBS@", verbs) + "\n".join(lines) + "\n"
