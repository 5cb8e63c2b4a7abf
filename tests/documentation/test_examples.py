"""The notebooks in examples/: they are what a notebook has to be, without output, and their code runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))


RUNNER = Path(__file__).with_name("run_notebook.py")


def read_notebook(path: Path) -> dict[str, Any]:
    """The whole of it; a notebook is JSON."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def run_example(name: str, folder: Path, settings: dict[str, Any], *expressions: str) -> dict[str, Any]:
    """Run its code in a process of its own."""
    words = [str(RUNNER), str(ROOT / "examples" / name), json.dumps(settings), *expressions]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # other tests run beside it
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_there_are_examples_and_readers_are_led_to_them() -> None:
    assert len(EXAMPLES) == 3
    for page in ("README.md", "README.zh.md"):
        assert "](examples/" in (ROOT / page).read_text(encoding="utf-8"), page
    guide = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    assert all(f"../../examples/{path.name}" in guide for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_a_notebook_without_output(path: Path) -> None:
    notebook = read_notebook(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5) and set(notebook) == {
        *("cells", "metadata", "nbformat", "nbformat_minor")
    }
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids) and cells[0]["cell_type"] == "markdown"
    for cell in cells:
        common = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert set(cell) == {*common, "execution_count", "outputs"}
            assert cell["execution_count"] is None and cell["outputs"] == []
        else:
            assert cell["cell_type"] == "markdown" and set(cell) == common
        assert all(line.endswith("\n") for line in cell["source"][:-1]) and "".join(cell["source"]).strip()
    assert [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])] != []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_links_to_what_is_there(path: Path) -> None:
    text = "".join(line for cell in read_notebook(path)["cells"] for line in cell["source"])
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert links and all((path.parent / link).exists() for link in links)


def test_pretraining_and_curves(tmp_path: Path) -> None:
    wanted = ("len(history.rows)", "history.columns", "list(history['val.loss'])", "continued", "measured")
    found = run_example("pretrain_and_curves.ipynb", tmp_path, {"steps": 8}, *wanted)
    rows, columns, evaluated, continued, measured = found["values"]
    assert rows == 8 and columns[:2] == ["train.loss", "val.loss"] and evaluated == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(continued) == 2 and math.isfinite(measured["perplexity"])
    tables = [shown["_repr_html_"] for shown in found["shown"] if "_repr_html_" in shown]
    plots = [shown["_repr_svg_"] for shown in found["shown"] if "_repr_svg_" in shown]
    assert len(tables) == 1 and "val.loss" in tables[0] and len(plots) == 1 and plots[0].startswith("<svg")
    assert any(shown.get("repr", "").startswith("<Trainer of gpt2/tiny") for shown in found["shown"])
    assert (tmp_path / "rate-and-gradients.svg").read_text(encoding="utf-8").startswith("<svg")


def test_question_answering(tmp_path: Path) -> None:
    wanted = ("metrics", "[sorted(answer) for answer in answers]", "len(trainer.history)")
    found = run_example("question_answering.ipynb", tmp_path, {"steps": 6}, *wanted)
    metrics, answers, rows = found["values"]
    assert 0 <= metrics["f1"] <= 100 and {"exact_match", "loss"} <= set(metrics) and rows == 6
    assert answers == [["end", "score", "start", "text"]] * 3
    assert len([shown for shown in found["shown"] if "_repr_svg_" in shown]) == 1


def test_two_layouts_are_aligned(tmp_path: Path) -> None:
    wanted = ("comparison.aligned", "largest", "comparison.to_dict()['loss']['errors']['steps']", "refusal")
    found = run_example("align_two_layouts.ipynb", tmp_path, {"steps": 4}, *wanted)
    aligned, largest, steps, refusal = found["values"]
    assert aligned and largest < 1e-4 and steps == 4 and "learning rate" in refusal
    (page,) = [shown["_repr_html_"] for shown in found["shown"] if "_repr_html_" in shown]
    assert page.startswith("<pre>aligned: runs/together beside the reference runs/alone") and "data:image/svg" in page
    assert "not aligned" not in page and (tmp_path / "alignment.html").is_file()


STEPS = {"pretrain_and_curves": 8, "question_answering": 6, "align_two_layouts": 4}
"""Few: a kernel is the question here, and not what is learned."""


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_in_a_kernel(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader runs it, where Jupyter is installed: each cell in IPython, with what the page shows of it."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kernels = tmp_path / "jupyter" / "kernels" / "here"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "here", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    notebook = nbformat.read(path, as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source += f"\nsteps = {STEPS[path.stem]}"
    failing = nbformat.v4.new_code_cell("Trainer(model='gpt2/tiny', steps=3)", metadata={"tags": ["raises-exception"]})
    notebook.cells.append(failing)
    folder = tmp_path / "work"
    folder.mkdir()
    client = nbclient.NotebookClient(notebook, timeout=None, kernel_name="here")
    client.execute(cwd=str(folder))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    forms = {form for output in outputs for form in output.get("data", {})}
    assert "image/svg+xml" in forms or "data:image/svg" in str(outputs), forms
    (error,) = [output for output in outputs if output.output_type == "error"]
    assert error.ename == "ConfigError" and error.traceback == [
        "line 1: Trainer(model='gpt2/tiny', steps=3)",
        "",
        "ConfigError: steps: a Trainer has no such argument",
        "  why: it is a field of the recipe",
        '  fix: overrides={"train.steps": 3}',
    ]
