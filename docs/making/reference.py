"""The pages of the reference, made of the code itself, so that none can be out of date.

`pages()` gives the Markdown of each by its path below docs/; it needs Paddock, and no mkdocs.

    python docs/making/reference.py FOLDER
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from metrics import metrics_page
from python_api import python_page
from table import plain, table

from paddock import errors
from paddock.cli.completion import all_commands
from paddock.cli.main import INTERRUPTED, VERBS, run
from paddock.cli.mirror import documentation
from paddock.config.flags.tables import SYSTEMS
from paddock.config.overrides import union_members
from paddock.config.recipe import Recipe
from paddock.models.registry import config_class, family_names
from paddock.tasks.registry import data_config_class, task_names

COLUMNS = 96
"""Of help pages."""
TITLE = re.compile(r" (\w+) options$")
OF_OTHERS = re.compile(r"flags of .* that work here too:$")
RECIPE_FLAGS = (
    "Every [field of a recipe](../recipe.md) is a flag as well, and so are [those of other systems](../flags.md)."
)


def pages() -> dict[str, str]:
    """Every page."""
    return {
        "reference/recipe.md": recipe_page(),
        "reference/flags.md": flags_page(),
        "reference/exit-codes.md": exit_codes_page(),
        "reference/metrics.md": metrics_page(),
        "reference/python.md": python_page(),
        "reference/commands/index.md": commands_page(),
        **{f"reference/commands/{verb}.md": command_page(verb) for verb in VERBS},
    }


def navigation() -> list[dict[str, Any]]:
    """The part of the menu that leads to them."""
    verbs: list[Any] = [{f"paddock {verb}": f"reference/commands/{verb}.md"} for verb in VERBS]
    return [
        {"Recipe fields": "reference/recipe.md"},
        {"Commands": ["reference/commands/index.md", *verbs]},
        {"Flags of other systems": "reference/flags.md"},
        {"Exit codes": "reference/exit-codes.md"},
        {"Metrics": "reference/metrics.md"},
        {"Python": "reference/python.md"},
    ]


def recipe_page() -> str:
    """The fields of every section, those of each family and task too."""
    lines = [
        "# Recipe fields",
        "",
        "A recipe is a YAML file of these sections. Every field is a flag as well: `--optimizer.lr 1e-3`. "
        "`paddock recipe show NAME` prints a shipped recipe with all of them.",
    ]
    for name, field in Recipe.model_fields.items():
        meaning = documentation(Recipe).get(name, "")
        if name == "model":
            kinds = [(family, config_class(family)) for family in family_names()]
            lines += _variants(name, meaning, "family", kinds)
        elif name == "data":
            lines += _variants(name, meaning, "task", [(task, data_config_class(task)) for task in task_names()])
        elif hasattr(field.annotation, "model_fields"):
            about = inspect.cleandoc(field.annotation.__doc__ or "")
            lines += ["", f"## {name}", "", plain(f"{meaning} {about}"), "", *fields_table(name, field.annotation)]
        else:
            lines += [
                "",
                f"## {name}",
                "",
                f"{plain(meaning)} One of: {', '.join(f'`{one}`' for one in task_names())}.",
            ]
    return "\n".join(lines) + "\n"


def _variants(name: str, meaning: str, of: str, kinds: list[tuple[str, Any]]) -> Iterator[str]:
    """A section whose fields depend on the family or on the task."""
    yield from ("", f"## {name}", "", f"{plain(meaning)} Its fields depend on the {of}.")
    for kind, model in kinds:
        about = plain(inspect.cleandoc(model.__doc__ or ""))
        yield from ("", f"### {name} of {kind}", "", about, "", *fields_table(name, model))


def fields_table(section: str, model: Any) -> list[str]:
    """Name, type, default and meaning of what a section has."""
    meanings = documentation(model)
    rows = []
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else f"`{shown(field.get_default(call_default_factory=True))}`"
        kind = ", ".join([type_text(field.annotation), *limits(field.metadata)])
        rows.append((f"`{section}.{field.alias or name}`", kind, default, plain(meanings.get(name, ""))))
    return table(("field", "type", "default", "meaning"), rows)


def shown(value: Any) -> str:
    """A default as a recipe has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    return str(value) or '""'


def type_text(kind: Any) -> str:
    """A type in words."""
    return " or ".join(dict.fromkeys(map(_type_text, union_members(kind))))


def _type_text(kind: Any) -> str:
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if get_origin(kind) is Annotated:
        return ", ".join([type_text(arguments[0]), *limits(arguments[1:])])
    if get_origin(kind) in (tuple, list):
        several = arguments[-1] is Ellipsis or get_origin(kind) is list
        return f"list of {type_text(arguments[0])}" if several else f"({', '.join(map(type_text, arguments))})"
    names = {type(None): "null", int: "whole number", float: "number", str: "text", bool: "true or false"}
    return names.get(kind) or ("path" if kind is Path else getattr(kind, "__name__", str(kind)))


def limits(constraints: Any) -> Iterator[str]:
    """What a number has to be."""
    for constraint in constraints:
        for name, sign in {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}.items():
            if (bound := getattr(constraint, name, None)) is not None:
                yield f"{sign} {bound:,}"


def commands_page() -> str:
    """All verbs, each with a line on it."""
    rows = [(f"[`paddock {verb}`]({verb}.md)", plain(meaning)) for verb, meaning in VERBS.items()]
    return "\n".join(
        [
            "# Commands",
            "",
            "`paddock VERB --help` prints what these pages have; for verbs that take a recipe, `paddock VERB RECIPE "
            "--help` with the defaults of that one, and `paddock VERB --help SECTION` a part of it.",
            "",
            *table(("command", "what it does"), rows),
            "",
        ]
    )


def command_page(verb: str) -> str:
    """A verb, and its own verbs, as they explain themselves."""
    named = [command.name for command in all_commands() if command.name.split()[0] == verb]
    inside = [name for name in named if name != verb]
    lines = [f"# paddock {verb}", "", plain(VERBS[verb][0].upper() + VERBS[verb][1:]) + ".", *_help([verb])]
    for name in inside:
        lines += ["", f"## paddock {name}", *_help(name.split())]
    return "\n".join(lines) + "\n"


def _help(words: list[str]) -> list[str]:
    """What `--help` prints."""
    printed = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(COLUMNS)
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            run([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    lines = [line.rstrip() for line in printed.getvalue().strip("\n").splitlines()]
    shorter = list(_without_recipe(lines))
    wrapped = [part for line in shorter for part in _broken(line)]
    page = ["", "```text", *wrapped, "```"]
    return [*page, "", RECIPE_FLAGS] if len(shorter) < len(lines) else page


def _broken(line: str) -> list[str]:
    """A line that is longer than the page, in several."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent) if len(line) > COLUMNS else [line]


def _without_recipe(lines: list[str]) -> Iterator[str]:
    """Help without what is the same in every verb that takes a recipe: its fields, and the flags of other systems."""
    left_out = False
    for line in lines:
        if OF_OTHERS.match(line):
            left_out = True
        elif title := TITLE.match(line):
            left_out = title[1] in Recipe.model_fields
        elif line == "shorthands:" or line.startswith("usage: "):
            left_out = False
        if not left_out:
            yield line


def flags_page() -> str:
    """The table behind `paddock flags`."""
    lines = ["# Flags of other systems", "", "Accepted as they are; `paddock flags WORD` looks for one."]
    for system in SYSTEMS:
        rows = [(" ".join(f"`{flag}`" for flag in alias.flags), plain(alias.means)) for alias in system.aliases]
        lines += ["", f"## {system.name}", "", *table(("flag", "here"), rows)]
    return "\n".join(lines) + "\n"


def exit_codes_page() -> str:
    """What a command ends with."""
    kinds = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.UserError)]
    codes = {
        0: "Done.",
        **{kind.exit_code: plain(inspect.cleandoc(kind.__doc__ or "")) for kind in kinds if kind.exit_code != 1},
        1: "Unexpected: a defect of Paddock, with its stack trace.",
        errors.STOPPED: "Stopped by a signal: what was done is saved, and `paddock resume` goes on.",
        INTERRUPTED: "Ctrl-C ended a command that had nothing to save.",
    }
    rows = [(f"`{code}`", codes[code]) for code in sorted(codes)]
    rows.append(("`128` + number", "A signal ended the process before it could save: the signal's number above 128."))
    return "\n".join(
        [
            "# Exit codes",
            "",
            *table(("code", "meaning"), rows),
            "",
            "An error says what is wrong, why, and what to do, on standard error. With `--json` it is a line on "
            "standard output, too:",
            "",
            "```json",
            '{"error": "what", "why": "why", "fix": "what to do", "code": 2}',
            "```",
            "",
        ]
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for path, text in pages().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
