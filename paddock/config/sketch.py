"""A shipped recipe's values without pydantic's checks, for help pages.

Building the validators of every section takes longer than the page itself; tests have checked shipped recipes already.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel

from paddock.config.load import SHIPPED, find_recipe, load_recipe, read_values
from paddock.config.overrides import members
from paddock.config.recipe import Recipe, class_for

Section = TypeVar("Section", bound=BaseModel)


def sketch_recipe(name: str) -> Recipe:
    """What `load_recipe` gives, for reading only; files of users are checked."""
    path = find_recipe(name)
    if not path.is_relative_to(SHIPPED):
        return load_recipe(name)
    values = read_values(path)
    return _sketch(class_for(values), values)


def _sketch(section: type[Section], values: dict[str, Any]) -> Section:
    fields: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            fields[name] = _sketch(field.annotation, values.get(key, {}))
        else:
            fields[name] = _as(field.annotation, values[key]) if key in values else field.default
    return section.model_construct(**fields)


def _as(kind: Any, value: Any) -> Any:
    """A value of YAML as pydantic would give it back."""
    for member in members(kind):
        if isinstance(value, list) and get_origin(member) is tuple:
            kinds = get_args(member)
            kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
            return tuple(map(_as, kinds, value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and float in members(kind) and int not in members(kind) else value
