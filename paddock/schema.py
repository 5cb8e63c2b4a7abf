"""The base of every piece of a recipe: typed, frozen, and with errors that name the field and the fix.

Pydantic only: importing a room's `config.py` must stay cheap, so torch has no place here.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from paddock.errors import ConfigError, did_you_mean


class ConfigModel(BaseModel):
    """One section of a recipe. Unknown keys are errors; attribute docstrings become the help text."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise explain(error, type(self)) from None


def explain(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Turn pydantic's report into ours: the field as the user wrote it, the value, and what to do."""
    problems = [_explain_one(detail, model) for detail in error.errors()]
    what, why, fix = problems[0]
    if len(problems) > 1:
        what = f"{len(problems)} fields are wrong"
        why = "; ".join(f"{name}: {reason}" for name, reason, _ in problems)
        fix = "; ".join(dict.fromkeys(fix for *_, fix in problems if fix))
    return ConfigError(what, why=why, fix=fix)


def _explain_one(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str, str]:
    location = [part for part in detail["loc"] if isinstance(part, str)]
    path = _path_in(model, location)
    if detail["type"] == "extra_forbidden":
        choices = sorted(field_names(_section(model, location[:-1])))
        return (
            f"unknown key {path}",
            f'there is no "{location[-1]}" here',
            did_you_mean(location[-1], choices),
        )
    if detail["type"] == "missing":
        return f"{path} is missing", "it has no default", f"set {path}"
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause.what, cause.why, cause.fix
    message = str(cause) if cause is not None else detail["msg"][0].lower() + detail["msg"][1:]
    return f"{path} = {detail['input']!r}", message.replace("input should", "it should"), ""


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
    """Drop the parts of pydantic's location that are union member names rather than keys."""
    path: list[str] = []
    for depth, part in enumerate(location):
        section = _section(model, location[:depth])
        if not path or part in field_names(section) or depth == 0 or section is not _section(model, location):
            path.append(part)
    return ".".join(path)
