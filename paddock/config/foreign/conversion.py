"""A foreign config as a recipe: which system it is of, what it says, and the account of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.config.foreign.account import Account, Line, flatten
from paddock.config.foreign.mindformers_files import is_mindformers, read_mindformers
from paddock.config.foreign.overriding import override
from paddock.config.plain_yaml import read_plain_yaml
from paddock.errors import ConfigError


@dataclass(frozen=True)
class Conversion:
    """What became of a config."""

    path: Path
    system: str
    recipe: dict[str, Any]
    """The values of a recipe, with what it extends by name."""
    lines: list[Line]
    unread: list[str]
    """What stands in the file and was not read, with its place."""
    account: Account

    def check(self) -> None:
        """Raise ConfigError where a key would mean something else here."""
        self.account.check(self.path.name)

    def explain(self, error: ConfigError) -> ConfigError:
        """An error about a field of the recipe, with the keys that the field comes from."""
        field = error.what.partition(" = ")[0]
        keys = [line.key for line in self.lines if line.key and line.field == field]
        why = "; ".join([*([error.why] if error.why else []), *(f"from {self.path.name}: {key}" for key in keys)])
        return ConfigError(error.what, why=why, fix=error.fix)

    def notes(self) -> list[str]:
        """What people should know before they run it."""
        near = [f"{line}" for line in self.lines if line.outcome == "near"]
        return [self.summary(), *near, *(f"not read: {place}" for place in self.unread)]

    def count(self, *outcomes: str) -> int:
        return sum(line.outcome in outcomes for line in self.lines)

    def summary(self) -> str:
        """In a line, for people."""
        became, idle = self.count("kept", "renamed", "near"), self.count("idle")
        return (
            f"{self.path.name} is a config of {self.system}: {became} of its keys are in the recipe, {idle} have no "
            f"meaning here (paddock convert-config {self.path} says of each what became of it)"
        )


def is_foreign(path: Path) -> bool:
    """Whether a file that is named as a recipe is another system's config."""
    return path.suffix == ".py" or (
        path.suffix in (".yaml", ".yml") and is_mindformers(read_plain_yaml(path, "a recipe"))
    )


def convert(path: Path, overrides: list[str]) -> Conversion:
    """Read a foreign config, put other values in the place of some of its own, and say what it means."""
    if path.suffix == ".py":
        from paddock.config.foreign.libai import read_libai

        account, unread = read_libai(path, overrides)
    elif is_mindformers(read_plain_yaml(path, "a recipe")):
        from paddock.config.foreign.mindformers import convert as convert_mindformers

        values = read_mindformers(path)
        override(values, overrides)
        account, unread = convert_mindformers(flatten(values)), []
    else:
        raise ConfigError(
            f"{path} is not a config of another system",
            why="it has none of the sections of a MindFormers config, and its name does not end in .py, as LiBai's do",
            fix="if it is a recipe, it needs no conversion: paddock train",
        )
    return Conversion(path, account.system, account.recipe, account.in_order(), unread, account)
