"""The base of every piece of a recipe: typed, frozen, and with errors that name the field and the fix.

Pydantic only: importing a room's `config.py` must stay cheap, so torch has no place here.
"""

from __future__ import annotations

import math
import re
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import ErrorDetails

from paddock.errors import ConfigError, bad_value, did_you_mean, nearest, shown


class ConfigModel(BaseModel):
    """One section of a recipe. Unknown keys are errors; attribute docstrings become the help text."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    def __init__(self, /, **data: Any) -> None:
        if _inside.get():  # a section of a recipe: the whole recipe explains, with the section's name
            super().__init__(**data)
            return
        token = _inside.set(True)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise explain(error, type(self)) from None
        finally:
            _inside.reset(token)

    @field_validator("*")
    @classmethod
    def _is_usable(cls, value: Any) -> Any:
        """What no field can mean, and what would only fail where it is used."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("it should be a number of 64 bits")
        if isinstance(value, str) and "\0" in value:
            raise ValueError("it should have no NUL in it")
        if any(isinstance(one, float) and not math.isfinite(one) for one in _items(value)):
            raise ValueError("it should be a finite number")
        return value


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


_inside: ContextVar[bool] = ContextVar("inside", default=False)


IN_OUR_WORDS = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "it should be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "it should be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "it should be true or false"),
    "string_type": "it should be text",
}
"""What pydantic finds, as errors of the command line say it, too."""
MOST_EXPLAINED = 20
"""Of what is wrong with a recipe."""


def explain(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Turn pydantic's report into ours: the field as the user wrote it, the value, and what to do."""
    problems: dict[str, ConfigError] = {}
    details = error.errors()
    for detail in details[:MOST_EXPLAINED]:
        problem = _explain_one(detail, model)
        path = problem.what.partition(" = ")[0]
        if path in problems:  # each member of a union has its say
            first = problems[path]
            problem = ConfigError(first.what, why=f"{first.why}, or {problem.why}", fix=first.fix or problem.fix)
        problems[path] = problem
    if len(problems) == 1:
        return next(iter(problems.values()))
    more = len(details) - MOST_EXPLAINED
    return ConfigError(
        f"{len(problems)} fields are wrong" + (f", and {more:,} more" if more > 0 else ""),
        why="; ".join(f"{problem.what}: {problem.why}" for problem in problems.values()),
        fix="; ".join(dict.fromkeys(problem.fix for problem in problems.values() if problem.fix)),
    )


def _explain_one(detail: ErrorDetails, model: type[BaseModel]) -> ConfigError:
    location = [part for part in detail["loc"] if isinstance(part, str)]
    path = _path_in(model, location)
    if detail["type"] == "extra_forbidden":
        choices = sorted(field_names(_section(model, location[:-1])))
        why = f'there is no "{shown(location[-1])}" here'
        return ConfigError(f"unknown key {shown(path)}", why=why, fix=did_you_mean(location[-1], choices))
    if detail["type"] == "missing" and detail["loc"][-1] == location[-1]:
        return ConfigError(f"{path} is missing", why="it has no default", fix=f"set {path}")
    value = _as_written(detail["input"])
    if detail["type"] == "missing":
        return bad_value(path, value, "it should have more values")
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    choices = _choices(detail)
    if cause is not None:
        message = str(cause)
    elif choices:
        message = f"it should be {'one of ' * (len(choices) > 1)}{', '.join(choices)}"
    else:
        said = detail["msg"][0].lower() + detail["msg"][1:]
        message = IN_OUR_WORDS.get(detail["type"]) or said.replace("input should", "it should")
    return bad_value(path, value, message, nearest(value, choices))


def _as_written(value: object) -> str:
    """A value without Python's quotes and brackets: in a flag every word is text at first."""
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _choices(detail: ErrorDetails) -> list[str]:
    """The words that a field takes, where it takes only some."""
    return re.findall("'([^']*)'", detail["ctx"]["expected"]) if detail["type"] == "literal_error" else []


def field_names(model: type[BaseModel]) -> list[str]:
    """The keys a user may write in this section."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(model: type[BaseModel], location: list[str]) -> type[BaseModel]:
    for part in location:
        for name, field in model.model_fields.items():
            annotation = field.annotation
            if part in (name, field.alias) and isinstance(annotation, type) and issubclass(annotation, BaseModel):
                model = annotation
    return model


def _path_in(model: type[BaseModel], location: list[str]) -> str:
    """The keys of a location; pydantic adds the names of union members behind them."""
    path: list[str] = []
    for part in location:
        path.append(part)
        section = _section(model, path)
        if section is _section(model, path[:-1]):  # a field, not a section: what follows are no keys
            break
    return ".".join(path)
