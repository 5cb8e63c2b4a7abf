"""A recipe's sections, and a verb's options, as the plain dataclasses that tyro reads fastest.

tyro understands the originals too, but looks up every field's docstring in the source, class by class, and checks
the defaults of other types with a library that takes long to import. Here each source file is read once, and values
come back as plain data, for pydantic to check as one recipe.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from pydantic import BaseModel
from tyro.constructors import PrimitiveConstructorSpec

from paddock.config.overrides import union_members


def mirror(original: Any) -> Any:
    """A dataclass instance with the fields, values and help texts of a pydantic model or a dataclass."""
    owner: Any = type(original)
    fields: list[tuple[str, Any, Any]] = []
    texts = documentation(owner)
    for name, (kind, key) in _fields(owner).items():
        value = getattr(original, name)
        if isinstance(value, BaseModel):
            value = mirror(value)
            kind = type(value)
        elif isinstance(original, BaseModel) and kind is not bool:
            kind = Annotated[object, _words(kind)]
        else:
            kind = Union[tuple(union_members(kind))]  # noqa: UP007 (tyro checks this spelling of a union by itself)
        argument = tyro.conf.arg(name=key, help=texts.get(name))
        fields.append((name, Annotated[kind, argument], dataclasses.field(default=value)))
    namespace = {"__doc__": owner.__doc__}
    return dataclasses.make_dataclass(owner.__name__, fields, namespace=namespace, eq=False, repr=False)()


def plain(mirrored: Any, owner: type[BaseModel]) -> dict[str, Any]:
    """The values of a mirrored recipe, under the keys that users write."""
    values = {name: getattr(mirrored, name) for name in owner.model_fields}
    for name, field in owner.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            values[name] = plain(values[name], kind)
    return {field.alias or name: values[name] for name, field in owner.model_fields.items()}


def _fields(owner: Any) -> dict[str, tuple[Any, str | None]]:
    """The type of each field, and the name of its flag where that is not its own."""
    if issubclass(owner, BaseModel):
        return {name: (field.annotation, field.alias) for name, field in owner.model_fields.items()}
    hints = get_type_hints(owner, include_extras=True)
    return {field.name: (hints[field.name], None) for field in dataclasses.fields(owner)}


def _words(kind: Any) -> PrimitiveConstructorSpec[Any]:
    """Words as they are, one or several: pydantic knows what they should be, in a flag as in a file."""
    optional = type(None) in union_members(kind)
    several = any(get_origin(member) is tuple for member in union_members(kind))
    names = {word for member in union_members(kind) if get_origin(member) is Literal for word in get_args(member)}

    def value_of(given: list[str]) -> Any:
        if optional and given == ["None"]:
            return None
        return given[0] if len(given) == 1 and (not several or given[0] in names) else tuple(given)

    return PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=metavar_of(kind),
        instance_from_str=value_of,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(item) for item in (value if isinstance(value, tuple) else [value])],
    )


def metavar_of(kind: Any) -> str:
    """What the help page shows for a value."""
    return "|".join(map(_metavar, union_members(kind)))


def _metavar(kind: Any) -> str:
    """What it shows for a value of one type."""
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return f"[{_metavar(arguments[0])} …]" if arguments[-1] is Ellipsis else " ".join(map(_metavar, arguments))
    if get_origin(kind) is Literal:
        return f"{{{','.join(arguments)}}}"
    if get_origin(kind) is Annotated:
        return _metavar(arguments[0])
    return "{None}" if kind is type(None) else getattr(kind, "__name__", str(kind)).upper()


@cache
def documentation(owner: Any) -> dict[str, str]:
    """The docstring under each attribute of a class and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        for statement, after in pairwise(_bodies(base.__module__).get(base.__qualname__, [])):
            match statement, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


@cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of every class that our own module defines at its top."""
    source = getattr(sys.modules[module], "__file__", None)
    if not module.startswith("paddock.") or source is None:
        return {}
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
