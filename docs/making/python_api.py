"""The page of what Python gets: signatures and docstrings, read from the source without importing torch."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from table import plain

import paddock

PACKAGE = Path(paddock.__file__).parent
ALSO = {
    "paddock.reporting.history": ["History", "Picture"],
    "paddock.reporting.aligned": ["Alignment"],
    "paddock.inference.loaded": ["LoadedModel"],
    "paddock.inference.generation.options": ["GenerationOptions"],
    "paddock.training.callbacks": ["Callback", "register_callback"],
    "paddock.telemetry.jsonl": ["read_metrics"],
    "paddock.models.registry": ["register_family"],
    "paddock.tasks.registry": ["TaskEntry", "register_task"],
    "paddock.devices.registry": ["register"],
}
"""What users meet besides the names that `paddock` itself has."""
CODE = (">>>", "    ")
"""What a line of code in a docstring begins with."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_page() -> str:
    """Everything of `paddock.__all__`, and what it leads to."""
    lines = ["# Python", "", plain(paddock.__doc__ or ""), ""]
    wanted = [(module, name) for module, names in [*_exported(), *ALSO.items()] for name in names]
    for module, name in dict.fromkeys(wanted):
        lines += _described(module, name)
    return "\n".join(lines) + "\n"


def _exported() -> Iterator[tuple[str, list[str]]]:
    """Where the names of `paddock` come from: what its type checkers see."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for found in block.body:
                assert isinstance(found, ast.ImportFrom) and found.module is not None
                wanted = [alias.name for alias in found.names if alias.name in paddock.__all__]
                yield found.module, wanted


def _described(module: str, name: str) -> Iterator[str]:
    """A class with its methods and fields, or a function."""
    node = _definition(module, name)
    full = f"paddock.{name}" if name in paddock.__all__ else f"{module}.{name}"
    yield from ("", f"## {full}", "")
    if isinstance(node, ast.ClassDef):
        fields = list(_fields(node))
        methods = [one for one in node.body if isinstance(one, Function) and not _is_overload(one)]
        start = [one for one in methods if one.name == "__init__"]
        yield from (*(_signature(one, name) for one in start), "", *_text(node), *fields)
        for one in start:
            yield from _text(one)
        for one in methods:
            if not one.name.startswith("_"):
                yield from ("", f"### {name}.{one.name}", "", _signature(one, one.name), "", *_text(one))
    else:
        yield from (_signature(node, name), "", *_text(node))


def _definition(module: str, name: str) -> ast.ClassDef | Function:
    path = PACKAGE.parent / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return next(one for one in tree.body if isinstance(one, kinds) and one.name == name)


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def _signature(node: Function, name: str) -> str:
    """A fenced line, or one a parameter where that would be long."""
    arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in ("self", "cls"):
            del group[0]
            break
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
        return f"```python\n{name}: {ast.unparse(node.returns) if node.returns else 'Any'}\n```"
    inside = ast.unparse(arguments)
    line = f"{name}({inside}){returns}"
    if len(line) > 90:
        parts = re.split(r", (?![^\[(]*[\])])", inside)
        line = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"
    return f"```python\n{line}\n```"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Attributes that are declared, each with the docstring under it."""
    for number, one in enumerate(node.body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            after = node.body[number + 1] if number + 1 < len(node.body) else None
            about = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                about = f": {plain(str(after.value.value))}"
            yield f"- `{ast.unparse(one)}`{about}"
    yield ""


def _text(node: ast.ClassDef | Function) -> Iterator[str]:
    """The docstring: paragraphs, and what is indented or behind >>> as code."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(ast.get_docstring(node) or "")):
        lines = part.splitlines()
        words = list(takewhile(lambda line: not line.startswith(CODE), lines))
        code = lines[len(words) :]
        if words:
            yield from (plain(" ".join(words)), "")
        if code:
            yield from ("```python", *(re.sub(r"^(>>>|\.\.\.) ?|^    ", "", line) for line in code), "```", "")
