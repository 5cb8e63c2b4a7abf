"""Notebooks, run as a reader runs them: cell after cell, from the top.

    python tests/documentation/run_notebook.py NOTEBOOK '{"steps": 4}' EXPRESSION …

The settings replace what the cell with the tag `parameters` says, as papermill does it. Prints one JSON value: what
each code cell shows of its last line, and the values of the expressions at the end.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORMS = ("_repr_html_", "_repr_svg_")
"""What a notebook asks of a value before it takes its repr."""


def code_cells(path: Path) -> list[tuple[str, bool]]:
    """The text of each code cell, and whether it is the one with the parameters."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [("".join(cell["source"]), "parameters" in cell["metadata"].get("tags", [])) for cell in cells]


def run_notebook(path: Path, settings: Mapping[str, Any], expressions: Sequence[str] = ()) -> dict[str, Any]:
    """Run its code; `shown` are, for every cell, the forms in which a notebook shows its last line."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, (text, has_parameters) in enumerate(code_cells(path)):
        shown.append(_shown(_run_cell(text, f"cell {number + 1} of {path.name}", names)))
        if has_parameters:
            unknown = set(settings) - set(names)
            assert not unknown, f"{path.name} has no {', '.join(sorted(unknown))}"
            names.update(settings)
    return {"shown": shown, "values": [eval(expression, names) for expression in expressions]}  # noqa: S307  ours


def _run_cell(text: str, title: str, names: dict[str, Any]) -> Any:
    """What its last line comes to, if that is an expression."""
    tree = ast.parse(text, title)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, title, "exec"), names)  # noqa: S102  the notebook is ours
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), title, "eval"), names)  # noqa: S307  the same


def _shown(value: Any) -> dict[str, str]:
    """Its forms; none of what a notebook does not show."""
    if value is None:
        return {}
    return {"repr": repr(value)} | {form: getattr(value, form)() for form in FORMS if hasattr(value, form)}


if __name__ == "__main__":
    notebook, settings, *expressions = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        found = run_notebook(Path(notebook), json.loads(settings), expressions)
    print(json.dumps(found))
