"""Errors as a notebook shows them."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from paddock.errors import ConfigError, UserError, in_python


def shown_in_a_notebook(cell: str) -> list[str]:
    """What `_render_traceback_`, which IPython calls, gives of the error that a cell raises; no IPython is needed."""
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell>")
    try:
        exec(compile(cell, "<cell>", "exec"), {"__name__": "__main__"})  # noqa: S102  ours
    except UserError as error:
        return error._render_traceback_()
    raise AssertionError("there was no error")


def test_the_own_line_and_the_message_are_all() -> None:
    cell = "from paddock import Trainer\n\ntrainer = Trainer(model='gpt2/tiny', run_dir=3)\n"
    assert shown_in_a_notebook(cell) == [
        "line 3: trainer = Trainer(model='gpt2/tiny', run_dir=3)",
        "",
        "ConfigError: run_dir is 3, of type int",
        "  why: what is wanted is a text or a path",
    ]


def test_a_missing_file_takes_a_few_lines(tmp_path: Path) -> None:
    data, run = str(tmp_path / "nofile.txt"), str(tmp_path / "run")
    cell = f"import paddock\npaddock.Trainer(model='gpt2/tiny', train_dataset={data!r}, run_dir={run!r}).train()\n"
    own, _, *message = shown_in_a_notebook(cell)
    assert own.startswith("line 2: paddock.Trainer(")
    assert message == [
        f"DataError: cannot read data.path {data}",
        "  why: No such file or directory",
        "  fix: check the path",
    ]


def test_a_function_of_a_file_of_ones_own_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.py"
    file.write_text("import paddock\n\n\ndef make():\n    paddock.Trainer(model='gpt2/tiny', parallel=2)\n")
    cell = f"import runpy\nrunpy.run_path({str(file)!r})['make']()\n"
    assert shown_in_a_notebook(cell)[0] == f"{file}, line 5: paddock.Trainer(model='gpt2/tiny', parallel=2)"


def test_what_another_process_said_comes_first() -> None:
    error = ConfigError("it failed", fix="mend it")
    error.traceback = "Traceback:\n  there\n"  # type: ignore[attr-defined]
    assert error._render_traceback_() == ["Traceback:", "  there", "ConfigError: it failed", "  fix: mend it"]


@pytest.mark.parametrize(
    ("fix", "python"),
    [
        ("change that, or set --evaluate.every None", 'change that, or set overrides={"evaluate.every": None}'),
        ("set --precision.compute float16, or not", 'set overrides={"precision.compute": "float16"}, or not'),
        ("--max-new-tokens 31, or a shorter prompt", "max_new_tokens=31, or a shorter prompt"),
        (
            "give the second weight of --data.split a larger value",
            "give the second weight of data.split a larger value",
        ),
        ("set --optimizer.lr 1e-4.", 'set overrides={"optimizer.lr": 1e-4}.'),
        ("set --model.tied true", 'set overrides={"model.tied": True}'),
        ("or --checkpoint.weights-only", "or checkpoint.weights_only"),
        ("`paddock resume R --train.steps 9`, or --run-dir", "`paddock resume R --train.steps 9`, or run_dir"),
        ("a -- b, two--three", "a -- b, two--three"),
    ],
)
def test_flags_are_arguments_in_python(fix: str, python: str) -> None:
    assert in_python(fix, sets=True) == python
