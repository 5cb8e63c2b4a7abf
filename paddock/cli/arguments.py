"""What verbs share: a recipe with its overrides, aliases and launch flags, parsed by tyro from the same models."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from paddock.cli.mirror import mirror, plain
from paddock.cli.pages import broken_pages, show_page
from paddock.cli.refusals import Page, in_our_words
from paddock.cli.sections import HELP_FLAGS, asked_section, section_page
from paddock.config.flags.tables import SYSTEMS
from paddock.config.flags.translation import alias_flags, take_recipe, translate
from paddock.config.foreign.overriding import take_overrides
from paddock.config.load import foreign_config, load_foreign, load_recipe, load_without_validation, recipe_names
from paddock.config.overrides import normalise
from paddock.config.recipe import Recipe
from paddock.config.text_as_it_is import take_text_as_it_is
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions, node_range

Options = TypeVar("Options")


@dataclass(frozen=True)
class RecipeCommand(Generic[Options]):
    """A parsed command line of a verb that takes a recipe."""

    name: str
    recipe: Recipe
    options: Options
    launch: LaunchOptions


def parse(options: type[Options], verb: str, arguments: list[str], aliases: Sequence[str] = ()) -> Options:
    """Parse a verb whose arguments are just the fields of `options`; `aliases` are spellings that the verb has
    translated already."""
    description, prog = inspect.cleandoc(options.__doc__ or ""), f"paddock {verb}"
    if not _asks_help(arguments):
        Page.of(prog, options, aliases).check(arguments)
    with in_our_words(prog), broken_pages():
        return _checked(tyro.cli(options, prog=prog, args=arguments, description=description))


def parse_recipe_command(
    options: type[Options],
    verb: str,
    arguments: list[str],
    change: Callable[[Recipe], Recipe] | None = None,
    subject: str = "RECIPE",
) -> RecipeCommand[Options]:
    """Parse `paddock VERB RECIPE [flags]`: the recipe first, since its model decides which flags there are.

    `change` may give the verb its own defaults, which flags override. `subject` is what its help calls the recipe,
    where it takes other things too.
    """
    asks_help = _asks_help(arguments)
    name, flags = take_recipe(arguments)
    if name is None and asks_help:
        name = "gpt2"
    if name is None:
        raise ConfigError(
            f"paddock {verb} needs a {subject.lower().replace('|', ' or a ')}"
            + (", before the flags" if arguments else ""),
            fix=f"paddock {verb} {subject} [flags]; a recipe is a YAML file or one of: {', '.join(recipe_names())}",
        )
    if (foreign := None if asks_help else foreign_config(name)) is not None:
        overrides, flags = take_overrides(flags)
        recipe, conversion = load_foreign(foreign, overrides)
        for note in conversion.notes():
            print(f"note: {note}", file=sys.stderr)
    else:
        recipe = load_without_validation(name) if asks_help else load_recipe(name)
    if change is not None:
        recipe = change(recipe)
    return apply_flags(options, verb, name, recipe, flags, subject)


def apply_flags(
    options: type[Options],
    verb: str,
    name: str,
    recipe: Recipe,
    flags: list[str],
    subject: str,
    launch: LaunchOptions = LaunchOptions(),  # noqa: B008 - frozen
) -> RecipeCommand[Options]:
    """Override the fields of `recipe` and of `launch` by flags; the verb's own options are read beside."""
    asks_help = _asks_help(flags)
    if section := asked_section(flags):
        show_page(section_page(recipe, section))
        raise SystemExit(0)
    words = [name, *flags]
    flags, notes = translate(node_range(flags), recipe)
    flags = normalise(flags, type(recipe))
    parts = {"options": mirror(options()), "launch": mirror(launch), "body": mirror(recipe)}
    command = make_dataclass(
        "Command", [(name, Annotated[type(part), tyro.conf.arg(name="", help="")]) for name, part in parts.items()]
    )
    prog = f"paddock {verb} {subject if asks_help else name}"
    if not asks_help:
        Page.of(prog, command, [flag for flag in alias_flags(recipe) if not flag.endswith("*")]).check(flags)
    try:
        with in_our_words(prog), broken_pages():
            parsed: Any = tyro.cli(
                command,
                prog=prog,
                description=inspect.cleandoc(options.__doc__ or ""),
                default=command(**parts),
                args=flags,
                config=(tyro.conf.AvoidSubcommands,),
            )
    except SystemExit:
        if asks_help:
            show_page(alias_page(mapped_alone=True))
            show_page("\n`paddock flags` has what becomes of their other flags; `paddock flags WORD` finds one.")
        raise
    starts = not (verb.startswith("check") or getattr(parsed.options, "dry_run", False))
    launch = place(LaunchOptions(**vars(parsed.launch)), flags, [*verb.split(), *words] if starts else None)
    values = plain(parsed.body, type(recipe))
    if not any(word.partition("=")[0] == "--data.source" for word in flags):
        notes += take_text_as_it_is(values["data"], recipe.data)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return RecipeCommand(
        name,
        type(recipe)(**values),
        _checked(options(**vars(parsed.options))),
        launch,
    )


def place(launch: LaunchOptions, flags: list[str], command: list[str] | None) -> LaunchOptions:
    """The machines and processes that flags and environment ask for, counted. Several that are only simulated are
    started here with the same `command`, and the process ends with them; without one, nothing is about to start."""
    from paddock.launch.placement.find import placed  # no help page looks for machines

    given = {word.partition("=")[0].replace("_", "-") for word in flags if word.startswith("--")}
    launch, notes = placed(launch, given, os.environ)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if launch.simulate_nodes is not None and command is not None:
        from paddock.launch.starters.simulated import simulate

        raise SystemExit(simulate(command, launch))
    return launch


def _checked(options: Options) -> Options:
    """The options of a verb, none of which is an address where only a path will do: it would become a folder `s3:`."""
    for name, value in vars(options).items():
        if isinstance(value, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(value)):
            what = f"--{name.replace('_', '-')} {value.parts[0]}//…"
            raise ConfigError(
                what, why="here only a path of this machine will do", fix="give a path, and copy the file"
            )
    return options


def _asks_help(arguments: list[str]) -> bool:
    return any(flag in arguments for flag in HELP_FLAGS)


def alias_page(*, mapped_alone: bool = False) -> str:
    """The table of foreign flags, as text; or of those that become something here."""
    lines = []
    for system in SYSTEMS:
        lines += ["", "shorthands:" if system.name == "Paddock" else f"flags of {system.name} that work here too:"]
        shown = [alias for alias in system.aliases if alias.is_mapped or not mapped_alone]
        lines += [f"  {' '.join(alias.flags):<38} {alias.means}" for alias in shown]
    return "\n".join(lines)
