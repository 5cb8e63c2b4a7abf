"""Every command in the README runs, as it is written, in the order in which a reader meets them."""

from __future__ import annotations

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
    words = shlex.split(command)
    assert words[0] in ("paddock", "python")
    words[:1] = [sys.executable, *(["-m", "paddock"] if words[0] == "paddock" else [])]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ)


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
    assert result.returncode == 2 and result.stderr == expected


def test_make_targets_exist() -> None:
    targets = [command.split()[1] for command in commands("README.md") if command.startswith("make ")]
    assert targets == ["quickstart", "test"]
    for target in [*targets, "test-all", "test-elsewhere", "lint", "bench"]:
        plan = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert plan.returncode == 0, plan.stderr


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
