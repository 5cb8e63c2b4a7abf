"""Spellings that make any field easy to override on the command line.

tyro parses the flags. This file only lets people write values as they would in YAML: `null`, `true`,
`[0, 1, 1]` and `949,50,1`.
"""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel


def normalise(arguments: list[str], model: type[BaseModel]) -> list[str]:
    """Rewrite the values of recipe fields in the form that tyro takes."""
    kinds = field_kinds(model)
    result: list[str] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        flag, equals, value = word.partition("=")
        kind = kinds.get(flag.removeprefix("--").replace("-", "_")) if flag.startswith("--") else None
        if kind is None or (not equals and position == len(arguments)):
            result.append(word)
            continue
        if not equals:
            value = arguments[position]
        replacement = _rewrite(flag, value, kind)
        if replacement is None:
            result.append(word)
        else:
            result += replacement
            position += 0 if equals else 1
    return result


def _rewrite(flag: str, value: str, kind: Any) -> list[str] | None:
    kinds = union_members(kind)
    if value.lower() in ("null", "~", "none") and type(None) in kinds:
        return [flag, "None"]
    if bool in kinds and value.lower() in ("true", "false"):
        section, _, name = flag.removeprefix("--").rpartition(".")
        prefix = f"--{section}." if section else "--"
        return [f"{prefix}{name}" if value.lower() == "true" else f"{prefix}no-{name}"]
    if any(get_origin(member) in (list, tuple) for member in kinds) and ("," in value or value.startswith("[")):
        return [flag, *(part.strip() for part in value.strip("[]()").split(",") if part.strip())]
    return None


def field_kinds(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """The type of every field, by its dotted name."""
    kinds: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            kinds |= field_kinds(annotation, f"{path}.")
        else:
            kinds[path] = annotation
    return kinds


def union_members(kind: Any) -> list[Any]:
    """The types a union allows; the type itself where it is none."""
    return list(get_args(kind)) if get_origin(kind) in (Union, types.UnionType) else [kind]
