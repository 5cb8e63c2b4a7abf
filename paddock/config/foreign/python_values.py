"""What a Python config computes without being executed: numbers and lists, within bounds."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from paddock.config.plain_yaml import DEEPEST
from paddock.errors import ConfigError

TARGET = "_target_"
"""The key of what a `LazyCall` would call."""
MOST_ITEMS = 20_000
"""In a list, and in all that is copied at once."""
LONGEST_TEXT = 10_000
LARGEST = 2**53


@dataclass(frozen=True)
class Symbol:
    """A name that is imported from code, such as libai.models.GPTForPreTraining."""

    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Unread:
    """A value that only running the config would tell."""

    where: str

    def __str__(self) -> str:
        return f"(not read: {self.where})"


class Absent(dict[Any, Any]):
    """What a config that is not there would give: a place for what others put into it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


UNKNOWN = Unread("")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def unary(operator: ast.unaryop, value: Any) -> Any:
    if isinstance(operator, ast.USub) and is_number(value):
        return -value
    if isinstance(operator, ast.UAdd) and is_number(value):
        return value
    return not value if isinstance(operator, ast.Not) and isinstance(value, bool) else UNKNOWN


def binary(operator: ast.operator, left: Any, right: Any) -> Any:
    if is_number(left) and is_number(right):
        return _arithmetic(operator, left, right)
    if isinstance(operator, ast.Add) and isinstance(left, str) and isinstance(right, str):
        return joined([left, right])
    if isinstance(operator, ast.Add) and isinstance(left, list) and isinstance(right, list):
        return [*left, *right] if len(left) + len(right) <= MOST_ITEMS else UNKNOWN
    if isinstance(operator, ast.Mult) and isinstance(right, list) and is_number(left):
        left, right = right, left
    if isinstance(operator, ast.Mult) and isinstance(left, list) and isinstance(right, int):
        return left * right if 0 <= right * len(left) <= MOST_ITEMS else UNKNOWN
    return UNKNOWN


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    if max(abs(left), abs(right)) > LARGEST or (isinstance(operator, ast.Pow) and abs(right) > 64):
        return UNKNOWN
    try:
        result = {
            ast.Add: lambda: left + right,
            ast.Sub: lambda: left - right,
            ast.Mult: lambda: left * right,
            ast.Div: lambda: left / right,
            ast.FloorDiv: lambda: left // right,
            ast.Mod: lambda: left % right,
            ast.Pow: lambda: left**right,
        }.get(type(operator), lambda: UNKNOWN)()
        return result if is_number(result) and math.isfinite(result) else UNKNOWN
    except (ZeroDivisionError, OverflowError):
        return UNKNOWN


def joined(parts: list[Any]) -> Any:
    """The text of an f-string, or of a sum of texts."""
    if any(isinstance(part, bool) or not isinstance(part, str | int) for part in parts):
        return UNKNOWN
    text = "".join(map(str, parts))
    return text if len(text) <= LONGEST_TEXT else UNKNOWN


def numbers(arguments: list[Any]) -> Any:
    """`range(…)`."""
    if not 1 <= len(arguments) <= 2 or any(not isinstance(argument, int) for argument in arguments):
        return UNKNOWN
    counted = range(*arguments)
    return list(counted) if len(counted) <= MOST_ITEMS else UNKNOWN


def copied(value: Any) -> Any:
    """Another value that says the same, as a section of a config is copied where it is used."""
    return _copied(value, [0], 0)


def _copied(value: Any, count: list[int], depth: int) -> Any:
    count[0] += 1
    if count[0] > MOST_ITEMS or depth > DEEPEST:
        what = "is nested too deeply, or in itself" if depth > DEEPEST else f"has more than {MOST_ITEMS:,} values"
        raise ConfigError(f"a section of the config {what}", fix="this is no config")
    if isinstance(value, dict):
        return {key: _copied(inside, count, depth + 1) for key, inside in value.items()}
    return [_copied(inside, count, depth + 1) for inside in value] if isinstance(value, list) else value
