"""What keeps the house in order: who may print, and how many files a folder has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paddock
from paddock.cli.main import VERBS

ROOT = Path(paddock.__file__).parent
MAY_PRINT = ("cli", "telemetry", "testing")
MOST_FILES = 20
"""About 15 is the aim; a folder beyond this wants to be two."""


def prints_results(source: str) -> list[int]:
    """The lines that write to standard output, where results go and nothing else does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            if not any(keyword.arg == "file" for keyword in node.keywords):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.stdout.write":
            found.append(node.lineno)
    return found


def test_results_are_printed_by_the_command_line_alone() -> None:
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in MAY_PRINT]
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := prints_results(path.read_text(encoding="utf-8")))
    }
    assert found == {}, "a job returns its result; the verb's file in cli/ prints it"


@pytest.mark.parametrize("line", ['print("x")', "sys.stdout.write('x')", "if 1:\n    print(1, end='')"])
def test_printing_is_found(line: str) -> None:
    assert prints_results(line) and not prints_results("print('note', file=sys.stderr)")


def test_no_folder_has_too_many_doors() -> None:
    verbs = {ROOT / "cli" / f"{verb.replace('-', '_')}.py" for verb in VERBS}  # a file each: as many as there are
    sizes = {folder: len({*folder.glob("*.py")} - verbs) for folder in ROOT.rglob("*") if folder.is_dir()}
    crowded = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_FILES}
    assert crowded == {}
