"""Every command in the README runs, as it is written, in the order in which a reader meets them."""

from __future__ import annotations

import csv
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddock.cli.main import VERBS
from paddock.config.load import load_recipe, recipe_names
from paddock.testing.commands import paddock
from paddock.zoo.catalogue import catalogue

ROOT = Path(__file__).parents[2]
READMES = ["README.md", "README.zh.md"]


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for kind, block in fenced if kind == language]


def commands(name: str) -> list[str]:
    lines = "".join(blocks(name, "sh")).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def execute(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    if program == "paddock":
        return paddock(*words, cwd=folder)
    assert program == "python"
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, env=os.environ)


def test_every_command_of_the_readme(tmp_path: Path) -> None:
    ran = []
    for command in commands("README.md"):
        if command.startswith("make "):
            continue
        result = execute(command, tmp_path)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        if command.startswith("paddock "):
            ran.append(shlex.split(command)[1])
    assert set(ran) == set(VERBS) - {
        "convert-config"
    }  # it takes a file of another system: the migration guide has some


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    [program] = blocks("README.md", "python")
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    f1, answers = result.stdout.splitlines()
    assert 0 <= float(f1) <= 100 and answers.startswith("[{'text': ")


def test_the_error_that_the_readme_shows(tmp_path: Path) -> None:
    [shown] = [block for block in blocks("README.md", "") if "\nerror: " in block]
    command, _, expected = shown.removeprefix("$ ").partition("\n")
    result = execute(command, tmp_path)
    assert result.returncode == 2 and result.stderr.removeprefix("starting\n") == expected  # a terminal has it no more


def test_make_targets_exist() -> None:
    targets = [command.split()[1] for command in commands("README.md") if command.startswith("make ")]
    assert targets == ["quickstart", "test"]
    for target in [*targets, "test-all", "test-elsewhere", "lint", "bench"]:
        plan = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert plan.returncode == 0, plan.stderr


def test_the_quick_start_proves_the_promise_before_it_trains() -> None:
    """What it runs, in this order, is what both READMEs show; the table has one process and three layouts."""
    plan = subprocess.run(["make", "-n", "quickstart"], cwd=ROOT, capture_output=True, text=True)
    planned = re.findall(r"^\.venv/bin/(paddock .*)$", plan.stdout, re.MULTILINE)
    assert [command.split()[1] for command in planned] == ["check", "train", "evaluate", "generate"]
    shown = []
    for name in READMES:
        [output] = [block for block in blocks(name, "") if block.startswith("$ paddock check parity ")]
        assert re.findall(r"^\$ (.*)$", output, re.MULTILINE) == planned
        table = [re.split("  +", line) for line in output.partition("\n")[2].partition("\n$ ")[0].splitlines()]
        assert [row[0] for row in table] == ["layout", "one process", *planned[0].split()[5:8]]
        assert [row[-1] for row in table[1:]] == ["reference", "agrees", "agrees", "agrees"]
        shown.append(output)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", READMES)
def test_the_readme_says_where_the_command_is(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.search(r"^VENV := \.venv$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert text.index("`. .venv/bin/activate`") < text.index("```sh\npaddock train")


@pytest.mark.parametrize("name", READMES)
def test_the_readme_leads_to_every_guide(name: str) -> None:
    """In its own language, where there is one."""
    suffix = ".zh.md" if name.endswith(".zh.md") else ".md"
    english = [path for path in (ROOT / "docs" / "guides").glob("*.md") if not path.name.endswith(".zh.md")]
    own = [path.with_suffix(suffix) for path in english]
    wanted = {one.name if one.exists() else other.name for one, other in zip(own, english, strict=True)}
    linked = re.findall(r"\]\(docs/guides/([\w.-]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert wanted and wanted == set(linked)


def test_the_table_of_the_zoo_is_written_by_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "making"))
    zoo_table = importlib.import_module("zoo_table")
    entries = catalogue()
    pages = dict(zoo_table.pages(entries))
    assert sorted(path.name for path in pages) == READMES
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"python docs/making/zoo_table.py writes {path.name} anew"
    table = zoo_table.zoo_table(zoo_table.HEADS["README.md"], entries)
    for entry in entries:
        [row] = [line for line in table.splitlines() if f"`{entry.recipe.name}`" in line.split(" | ")[0]]
        reached = entry.reached()
        assert reached is None or (f"{reached.value:g}" in row and f"`{reached.command}`" in row)
    assert set(zoo_table.REFERENCES) <= {entry.recipe.name for entry in entries}


@pytest.mark.parametrize("name", [*READMES, "benchmarks/README.md"])
def test_speeds_are_those_that_are_kept(name: str) -> None:
    """A row of the table for each workload, with the ratios and the memory of the file of results, in its order."""
    with (ROOT / "benchmarks" / "results" / "beside-peers.csv").open(encoding="utf-8") as stream:
        kept = list(csv.DictReader(stream))
    text = (ROOT / name).read_text(encoding="utf-8")
    assert {row["beside"] for row in kept} == {"hf default", "hf tuned", "hf compiled"}
    for workload in dict.fromkeys(row["workload"] for row in kept):
        model = workload.partition(" training")[0]
        [line] = [line for line in text.splitlines() if line.startswith(f"| {model}") and line.count("|") == 6]
        cells = [re.findall(r"\d\.\d\d", cell) for cell in line.split("|")[2:6]]
        rows = [row for row in kept if row["workload"] == workload]
        for row, cell in zip(rows, cells[:3], strict=True):
            wanted = [float(row[column]) for column in ("ratio", "low", "high")][: len(cell)]
            assert [float(figure) for figure in cell] == pytest.approx(wanted, abs=0.0051)
        assert cells[3] == [row["memory ratio"] for row in rows]


def test_the_recipe_of_the_readme(tmp_path: Path) -> None:
    [text] = blocks("README.md", "yaml")
    (tmp_path / "recipe.yaml").write_text(text)
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.tokenizer.kind == "gpt2" and set(yaml.safe_load(text)) <= {"extends", *type(recipe).model_fields}


@pytest.mark.parametrize("name", READMES)
def test_the_readme_names_every_recipe_and_verb(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert all(f"`{recipe}`" in text for recipe in recipe_names() if not recipe.endswith("/base"))
    assert all(f"`{verb} " in text or f"`{verb}`" in text for verb in VERBS)
    rooms = {path.name for path in (ROOT / "paddock").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert all(f"  {room}/ " in text for room in rooms)


def test_the_readmes_are_in_step() -> None:
    assert commands("README.md") == commands("README.zh.md")
    assert blocks("README.md", "yaml") == blocks("README.zh.md", "yaml")
    headings = [len(re.findall(r"^## ", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)) for name in READMES]
    assert headings[0] == headings[1]
