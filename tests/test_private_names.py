"""The private names of torch and the standard library that we use are those that CONTRIBUTING.md lists, and exist.

A name that torch drops fails here by its name, before anything that needs it; one that is used and not listed too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
HEADING = "## Private names of torch and of the standard library"
SOURCES = sorted((ROOT / "paddock").rglob("*.py"))


def rows() -> list[tuple[list[str], list[str], list[str]]]:
    """Names, files and tests of every row of the table."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    cells = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    quoted = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]
    return [(names, files, tests) for names, files, _, tests in quoted]


USES = [(name, file) for names, files, _ in rows() for name in names for file in files]
LISTED = {name for name, _ in USES}


def exists(name: str) -> bool:
    """Whether a dotted name leads somewhere; what an object gets when it is made counts for its class."""
    parts = name.split(".")
    found: Any = None
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if inspect.isclass(found) and not hasattr(found, part):
                return any(f"self.{part}" in source_of(base) for base in found.__mro__[:-1])
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def source_of(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # not written in Python
        return ""


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_listed_name_is_there(name: str) -> None:
    if name.startswith("torch.ops.mkldnn") and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN, and we do not call it")
    assert exists(name), f"{name} is gone from torch {torch.__version__}: see CONTRIBUTING.md for what it did"


def test_a_name_that_is_not_there_is_missed() -> None:
    assert not exists("torch._foreach_divine_")
    assert not exists("torch._inductor.configuration.patch")
    assert not exists("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._labourers")


@pytest.mark.parametrize(("name", "file"), USES)
def test_a_listed_name_is_used_where_the_list_says(name: str, file: str) -> None:
    assert re.search(rf"\b{name.rpartition('.')[2]}\b", (ROOT / file).read_text(encoding="utf-8"))


def test_every_name_has_a_test() -> None:
    for names, files, tests in rows():
        assert names and files and tests
        assert all((ROOT / test).is_file() for test in tests), tests


def test_no_private_name_is_used_that_is_not_listed() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in SOURCES for name in foreign_names(path)}
    assert len(found) > 10, "the search finds nothing"
    listed = {(file, part) for name, file in USES for part in name.split(".")}
    missing = {(file, name) for file, name in found if name not in LISTED and (file, name) not in listed}
    assert not missing, "use something public, or add it to the table in CONTRIBUTING.md with the reason"


def foreign_names(path: Path) -> Iterator[str]:
    """Private names in a file that no class or function of ours defines: dotted ones where the file has them so, else
    attributes alone."""
    tree = parsed(path)
    ours = own_names(path).union(*(own_names(imported) for imported in imports_of_ours(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in ours:
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg is not None and is_private(node.arg):
            yield node.arg
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("paddock"):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if any(map(is_private, alias.name.split("."))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"torch[\w.]*\._[\w.]+", node.value):  # of `import_module`
                yield from [] if any(name.startswith(f"{node.value}.") for name in LISTED) else [node.value]
        elif isinstance(node, ast.ClassDef):
            yield from overridden(path, node)


def overridden(path: Path, node: ast.ClassDef) -> list[str]:
    """The private names that a class of ours has from a foreign one and defines anew."""
    functions = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
    targets = [target for one in node.body if isinstance(one, ast.Assign) for target in one.targets]
    private = [name for name in (*functions, *(ast.unparse(one) for one in targets)) if is_private(name)]
    if not private or not node.bases:
        return []
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    kind = getattr(module, node.name, None)  # None: a class within a function or a class
    foreign = [base for base in getattr(kind, "__mro__", ()) if not base.__module__.startswith("paddock")]
    return [name for name in private if any(hasattr(base, name) for base in foreign)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def own_names(path: Path) -> frozenset[str]:
    """What a file defines: functions, classes, variables, and attributes of `self`."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return frozenset(names)


def imports_of_ours(tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paddock"):
            place = ROOT / str(node.module).replace(".", "/")
            inside = (place / f"{alias.name}.py" for alias in node.names)
            yield from (path for path in (place.with_suffix(".py"), *inside) if path.is_file())


def is_private(name: str) -> bool:
    return bool(re.fullmatch(r"_[a-zA-Z]\w*", name)) and not name.endswith("__")
