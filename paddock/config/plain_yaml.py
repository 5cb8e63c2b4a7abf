"""YAML that somebody wrote, read as plain values within bounds: recipes, and what contributions say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from paddock.errors import ConfigError, shown
from paddock.files import read_regular

LARGEST = 2**18
"""Bytes of a file."""
MOST_VALUES = 100_000
"""In a file, where an alias counts for all that it stands for."""
DEEPEST = 32
"""Lists and sections in one another."""
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
LONGEST_NUMBER = 100
"""Characters: turning a number of many thousands into a value takes the square of the time."""


def read_plain_yaml(path: Path, kind: str) -> Any:
    """What a file says; `kind` is what it should be, for the errors."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} is not {kind}", why=f"it has more than {LARGEST:,} bytes")
        values = yaml.load(read_regular(path).decode(), Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML", why=shown(" ".join(str(error).split()))) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read", why=error.strerror or str(error)) from None
    _check_size(values, path, kind)
    return values


def parse_value(text: str) -> Any:
    """One value, as a person writes it behind `key=`: `2`, `true`, `null`, `[0, 0, 1]`, `a word`."""
    value = yaml.load(text, Loader=_Loader) if text else ""
    _check_size(value, shown(text), "a value")
    return value


def write_plain_yaml(values: dict[str, Any]) -> str:
    """One line a section."""

    def line(key: str, value: Any) -> str:
        text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=2**20, allow_unicode=True)
        return f"{key}: " + text.removesuffix("...\n").rstrip()

    return "".join(line(key, value) + "\n" for key, value in values.items())


def _check_size(values: Any, path: Path | str, kind: str) -> None:
    """An alias (`*name`) costs a few letters, however much it stands for: a few lines can mean more values than
    memory holds, or have no end."""
    waiting: list[Any] = [values]
    count = 0
    while waiting:
        value = waiting.pop()
        inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        count += len(inside)
        if count > MOST_VALUES:
            raise ConfigError(f"{path} is not {kind}", why=f"with its aliases it has more than {MOST_VALUES:,} values")
        waiting += inside


class _Loader(yaml.SafeLoader):
    """Safe YAML of plain values: words, numbers, lists, and sections whose keys are words and cannot be given twice.

    1e-5 is a number (YAML 1.1 wants 1.0e-5). What YAML knows besides (dates, sets, bytes) nobody here has a use for."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(
                None, None, "its values are nested too deeply", self.peek_event().start_mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise self._refusal(f"a number of {len(node.value)} characters", node)
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError):  # the library's own, of a value that is not what its tag says
            raise self._refusal(f"{shown(node.value)!r} is no {node.tag.rpartition(':')[2]}", node) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise self._refusal("keys with values are expected", node)
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, str):
                raise self._refusal("a key is a word", key_node)
            if key in seen:
                raise self._refusal(f'"{shown(key)}" is given twice', key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)

    @staticmethod
    def _refusal(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
        return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _restrict_to_plain_values() -> None:
    import re

    plain = [None, *(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))]
    _Loader.yaml_constructors = {tag: make for tag, make in _Loader.yaml_constructors.items() if tag in plain}
    _Loader.yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag in plain]
        for first, forms in _Loader.yaml_implicit_resolvers.items()
    }
    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


_restrict_to_plain_values()
