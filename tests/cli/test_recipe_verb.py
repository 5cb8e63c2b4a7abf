"""`paddock recipe`: what is shown is a recipe, the same one, and says what its fields mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.cli.recipe import explained
from paddock.config.load import load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_what_is_shown_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    text = explained(recipe, name)
    (tmp_path / "copy.yaml").write_text(text)
    assert load_recipe(tmp_path / "copy.yaml") == recipe
    assert all(len(line) <= 100 for line in text.splitlines() if line.lstrip().startswith("#"))


def test_every_field_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "show", "gpt2/tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  # The peak learning rate." in lines
    assert lines[lines.index("  # The peak learning rate.") + 1].startswith("  lr: ")
    for above, line in zip(lines, lines[1:], strict=False):
        if line and not line.lstrip().startswith("#"):
            assert above.lstrip().startswith("#"), line


def test_a_copy_is_checked_and_can_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    assert run(["recipe", "copy", "bert/tiny", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    file.write_text(file.read_text().replace("  lr: ", "  lr: 0.5  # was "))
    assert load_recipe(file).optimizer.lr == 0.5
    assert run(["recipe", "copy", "bert/tiny", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["recipe", "copy", "bert/tiny", str(tmp_path / "mine")]) == 2
    assert run(["recipe", "copy", "bert/tinny", str(tmp_path / "other.yaml")]) == 2
    assert '"bert/tiny"' in capsys.readouterr().err


def test_the_values_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "show", "gpt2/tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == load_recipe("gpt2/tiny").to_dict()


def test_what_it_is_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recipe", "shwo", "gpt2/tiny"]) == 2
    assert '"show"' in capsys.readouterr().err
    assert run(["recipe", "--help"]) == 0
    assert "copy" in capsys.readouterr().out
