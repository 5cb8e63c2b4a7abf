"""Configs written in Python, as LiBai's are, read without being executed.

A literal subset is understood: assignments of values to names, keys and items; `dict(…)`, `LazyCall(X)(…)` as data;
arithmetic of numbers and lists; `update` and `append`; loops over lists; imports of other configs. Everything else is
listed with its line, and its value is `Unread`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paddock.config.foreign import python_values
from paddock.config.foreign.python_values import Absent, Symbol, Unread
from paddock.config.plain_yaml import LARGEST
from paddock.errors import ConfigError, shown
from paddock.files import read_regular

MOST_FILES = 64
"""That one config imports, one way or another."""
MOST_STEPS = 100_000
"""Statements and expressions that are looked at, those of loops as often as they run."""


class Unreadable(NamedTuple):
    """A statement or an expression that would have to be executed."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.text}"


@dataclass
class PythonConfig:
    """What a file says: its names, and what could not be read."""

    names: dict[str, Any]
    unreadable: list[Unreadable]
    missing: list[str]
    """Configs that are imported and not there."""


def read_python(path: Path) -> PythonConfig:
    """The values that a Python config gives to its names."""
    session = _Session()
    try:
        names = session.read(path.resolve())
    except RecursionError:
        raise ConfigError(f"{path} is not a config", why="its expressions are nested too deeply") from None
    return PythonConfig(names, session.unreadable, session.missing)


@dataclass
class _Session:
    """The files of one config."""

    unreadable: list[Unreadable] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    trail: list[Path] = field(default_factory=list)
    files: int = 0
    steps: int = 0

    def read(self, path: Path) -> dict[str, Any]:
        if path in self.trail:
            circle = " → ".join(place.name for place in (*self.trail[self.trail.index(path) :], path))
            raise ConfigError(f"configs import one another in a circle: {circle}", fix="remove one of the imports")
        self.files += 1
        if self.files > MOST_FILES:
            raise ConfigError(f"{shown(path)}: more than {MOST_FILES} configs are imported", fix="this is no config")
        self.trail.append(path)
        names = _File(self, path).run(_parse(path))
        self.trail.pop()
        return names

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ConfigError(
                f"{self.trail[-1]} is too large for a config", why=f"it has more than {MOST_STEPS:,} steps"
            )


def _parse(path: Path) -> ast.Module:
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} is not a config", why=f"it has more than {LARGEST:,} bytes")
        return ast.parse(read_regular(path).decode(), filename=str(path))
    except (SyntaxError, ValueError) as error:  # also of a NUL, or of bytes that are no text
        if isinstance(error, ConfigError):
            raise
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError(f"{path} is not valid Python", why=where + shown(error)) from None
    except (RecursionError, MemoryError):
        raise ConfigError(f"{path} is not a config", why="its expressions are nested too deeply") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read", why=error.strerror or str(error)) from None


class _File:
    """One file: its statements in order, over the names that they make."""

    def __init__(self, session: _Session, path: Path) -> None:
        self.session, self.path = session, path
        self.names: dict[str, Any] = {}

    def run(self, module: ast.Module) -> dict[str, Any]:
        self._statements(module.body)
        return self.names

    def _statements(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.session.step()
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.ImportFrom():
                self._import(statement)
            case ast.Import(names=names):
                for name in names:
                    self.names[name.asname or name.name.partition(".")[0]] = Symbol(name.name)
            case ast.Assign(targets=targets, value=value):
                result = self._value(value)
                for target in targets:
                    self._assign(target, result, statement)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value), statement)
            case ast.For(target=ast.Name(id=name), iter=over, body=body, orelse=[]):
                self._loop(name, over, body, statement)
            case ast.Expr(value=ast.Constant()) | ast.Pass():  # a docstring
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=place, attr=method)) as call):
                self._change(place, method, call)
            case _:
                self._unread(statement)

    def _import(self, statement: ast.ImportFrom) -> None:
        """Other configs are read, whatever else is imported is only a name."""
        module = statement.module or ""
        is_config = statement.level > 0 or "configs" in module.split(".")
        names: dict[str, Any] | None = None
        if is_config:
            place = self._find(module, statement.level)
            if place is None:
                self.session.missing.append(f"{'.' * statement.level}{module}")
            else:
                names = self.session.read(place)
        for alias in statement.names:
            name = alias.asname or alias.name
            if not is_config:
                self.names[name] = Symbol(f"{module}.{alias.name}")
            elif names is None:
                self.names[name] = Absent(f"{module}.{alias.name}")
            elif alias.name in names:
                self.names[name] = names[alias.name]
            else:
                self.names[name] = self._unread(statement)

    def _find(self, module: str, level: int) -> Path | None:
        """The file of a config that is imported: beside this one, or below a folder that holds this one."""
        relative = Path(*module.split(".")).with_suffix(".py") if module else None
        if relative is None:
            return None
        folder = self.path.parent
        above = folder.joinpath(*[".."] * (level - 1)) if level else None
        places = [*folder.parents, folder] if above is None else [above]
        return next((place.resolve() for one in places if (place := one / relative).is_file()), None)

    def _loop(self, name: str, over: ast.expr, body: list[ast.stmt], statement: ast.stmt) -> None:
        values = self._value(over)
        if isinstance(values, Absent):
            values = list(values.values())
        if not isinstance(values, list | tuple):
            self._unread(statement)
            return
        for value in values:
            self.names[name] = value
            self._statements(body)

    def _change(self, place: ast.expr, method: str, call: ast.Call) -> None:
        """`section.update(…)` and `list.append(…)`."""
        where = self._value(place)
        arguments = [self._value(argument) for argument in call.args]
        keywords = self._keywords(call)
        sections = all(isinstance(argument, dict) for argument in arguments) and len(arguments) <= 1
        if isinstance(where, dict) and method == "update" and keywords is not None and sections:
            for section in (*arguments, keywords):
                where.update(section)
            return
        if isinstance(where, list) and method == "append" and len(arguments) == 1 and not keywords:
            where.append(arguments[0])
            return
        self._unread(call)

    def _assign(self, target: ast.expr, value: Any, statement: ast.stmt) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = value
                return
            case ast.Attribute(value=place, attr=name):
                where, key = self._value(place), name
            case ast.Subscript(value=place, slice=index):
                where, key = self._value(place), self._value(index)
            case ast.Tuple(elts=targets) if isinstance(value, list) and len(value) == len(targets):
                for one, part in zip(targets, value, strict=True):
                    self._assign(one, part, statement)
                return
            case _:
                self._unread(statement)
                return
        inside = isinstance(where, list) and isinstance(key, int) and -len(where) <= key < len(where)
        if inside or isinstance(where, Absent) or (isinstance(where, dict) and isinstance(key, str)):
            where[key] = value
        else:
            self._unread(statement)

    def _value(self, expression: ast.expr) -> Any:
        self.session.step()
        match expression:
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
                return value
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values) if all(keys):
                named = [(self._value(key), self._value(value)) for key, value in zip(keys, values, strict=True) if key]
                return {key: value for key, value in named if isinstance(key, str)}
            case ast.Attribute(value=place, attr=name):
                return self._item(self._value(place), name, expression)
            case ast.Subscript(value=place, slice=index):
                return self._item(self._value(place), self._value(index), expression)
            case ast.UnaryOp(op=operator, operand=operand):
                result = python_values.unary(operator, self._value(operand))
            case ast.BinOp(left=left, op=operator, right=right):
                result = python_values.binary(operator, self._value(left), self._value(right))
            case ast.JoinedStr(values=parts):
                result = python_values.joined([self._part(part) for part in parts])
            case ast.Call():
                result = self._call(expression)
            case _:
                return self._unread(expression)
        return self._unread(expression) if isinstance(result, Unread) else result

    def _part(self, part: ast.expr) -> Any:
        match part:
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self._value(value)
            case ast.Constant(value=str(text)):
                return text
            case _:
                return Unread("")

    def _item(self, place: Any, key: Any, expression: ast.expr) -> Any:
        """What stands under a key; in a config that is not there, a place to put something."""
        if isinstance(place, Symbol) and isinstance(key, str):
            return Symbol(f"{place.name}.{key}")
        if isinstance(place, dict) and isinstance(key, str) and key in place:
            return place[key]
        if isinstance(place, list) and isinstance(key, int) and -len(place) <= key < len(place):
            return place[key]
        if isinstance(place, Absent) and isinstance(key, str | int):
            return place.setdefault(key, Absent(""))
        return self._unread(expression)

    def _call(self, call: ast.Call) -> Any:
        keywords = self._keywords(call)
        if keywords is None:
            return Unread("")
        match call.func:
            case ast.Call(func=ast.Name(id=maker), args=[target], keywords=[]) if self._is(maker, "LazyCall"):
                wanted = self._value(target)
                if call.args or not isinstance(wanted, Symbol | Unread):
                    return Unread("")
                return {python_values.TARGET: wanted} | python_values.copied(keywords)
            case ast.Name(id="dict") if not call.args:
                return keywords
            case ast.Name(id="range") if not keywords:
                return python_values.numbers([self._value(argument) for argument in call.args])
        name = self._symbol(call.func)
        if isinstance(name, Symbol) and name.name.startswith("omegaconf.") and not keywords:
            if not call.args:
                return {}
            inside = self._value(call.args[0])
            if len(call.args) == 1 and isinstance(inside, dict | list):
                return python_values.copied(inside)
        return Unread("")

    def _symbol(self, function: ast.expr) -> Any:
        """What is called, where it is a name that was imported."""
        match function:
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=part) if isinstance(self.names.get(name), Symbol):
                return Symbol(f"{self.names[name].name}.{part}")
            case _:
                return None

    def _is(self, name: str, wanted: str) -> bool:
        found = self.names.get(name)
        return isinstance(found, Symbol) and found.name.rpartition(".")[2] == wanted

    def _keywords(self, call: ast.Call) -> dict[str, Any] | None:
        if any(keyword.arg is None for keyword in call.keywords):
            return None
        return {keyword.arg: self._value(keyword.value) for keyword in call.keywords if keyword.arg}

    def _unread(self, node: ast.stmt | ast.expr) -> Unread:
        text = shown(" ".join(ast.unparse(node).split()))
        found = Unreadable(self.path.name, node.lineno, text)
        if found not in self.session.unreadable:
            self.session.unreadable.append(found)
        return Unread(str(found))
