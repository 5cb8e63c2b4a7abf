"""Loading recipes: names, extends, merging, and errors that name the key and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config.load import load_recipe, load_without_validation, recipe_names, save_recipe, to_yaml
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.errors import ConfigError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


WORLDS = {"gpt2/pretrain-1n8d": 8, "gpt2/pretrain-4n8d": 32, "gpt2/13b": 32, "gpt2/52b": 128}
"""The processes that a recipe is laid out for, where it is not one."""


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid(name: str) -> None:
    recipe, world = load_recipe(name), WORLDS.get(name, 1)
    if recipe.data.source in ("indexed", "squad", "folder"):  # they wait for the user's files, and say so
        with pytest.raises(ConfigError, match=r"data\.path"):
            check_recipe(recipe, world)
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"path": "corpus"})})
    check_recipe(recipe, world)
    if world > 1:
        with pytest.raises(ConfigError, match="1 process does not divide"):
            check_recipe(recipe, 1)


@pytest.mark.parametrize("name", recipe_names())
def test_a_help_page_shows_the_recipe_as_it_is_loaded(name: str) -> None:
    assert repr(load_without_validation(name)) == repr(load_recipe(name))


def test_a_help_page_of_a_file_that_is_wrong_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key train"):
        load_without_validation(str(write(tmp_path, "mine.yaml", "extends: gpt2/tiny\ntrain: {stepz: 5}\n")))


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "millions"),
    [
        ("bert/base-uncased-squad", 12, 768, 12, 108.9),
        ("bert/base-chinese", 12, 768, 12, 102.3),
        ("bert/large", 24, 1024, 16, 335.2),
        ("gpt2/117m", 12, 768, 12, 124.4),
        ("gpt2/345m", 24, 1024, 16, 354.8),
        ("gpt2/762m", 36, 1280, 20, 774.0),
        ("gpt2/1.5b", 48, 1600, 25, 1557.6),
        ("gpt2/13b", 40, 5120, 40, 12853.9),
        ("gpt2/52b", 64, 8192, 32, 51968.0),
        ("gpt2/pretrain-1n8d", 16, 1536, 16, 533.6),
        ("gpt2/pretrain-4n8d", 24, 2304, 24, 1650.1),
    ],
)
def test_sizes(name: str, layers: int, hidden: int, heads: int, millions: float) -> None:
    model = load_recipe(name).model
    assert (model.layers, model.hidden, model.heads) == (layers, hidden, heads)  # type: ignore[attr-defined]
    assert model.num_parameters() / 1e6 == pytest.approx(millions, rel=2e-3)


def test_a_family_is_its_base_recipe() -> None:
    assert load_recipe("gpt2") == load_recipe("gpt2/base")


def test_extends_merges_section_by_section(tmp_path: Path) -> None:
    write(tmp_path, "mine.yaml", "extends: gpt2/tiny\noptimizer: {lr: 1e-5}\n")
    child = write(tmp_path, "child.yaml", "extends: ./mine.yaml\nmodel: {layers: 1}\n")
    recipe, tiny = load_recipe(child), load_recipe("gpt2/tiny")
    assert recipe.optimizer.lr == 1e-5  # also: 1e-5 is a number, though YAML 1.1 wants 1.0e-5
    assert recipe.optimizer.betas == tiny.optimizer.betas
    assert recipe.model.layers == 1 and recipe.model.hidden == tiny.model.hidden  # type: ignore[attr-defined]


def test_a_saved_recipe_is_a_recipe(tmp_path: Path) -> None:
    recipe = load_recipe("gpt2/tiny")
    save_recipe(recipe, tmp_path / "config.yaml")
    assert load_recipe(tmp_path / "config.yaml") == recipe
    assert "global: 8" in to_yaml(recipe)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: gpt2/tiny\nmodel: {layer: 3}\n", r'unknown key model\.layer\b(.|\n)*did you mean "layers"'),
        ("extends: gpt2/tiny\nbatch: {globl: 3}\n", r'unknown key batch\.globl\b(.|\n)*did you mean "global"'),
        ("extends: gpt2/tiny\noptimiser: {lr: 1}\n", r'unknown key optimiser(.|\n)*did you mean "optimizer"'),
        ("extends: gpt2/tiny\nmodel: {layers: many}\n", r"model\.layers = many(.|\n)*integer"),
        ("extends: gpt2/tiny\nmodel: {layers: 0}\n", r"model\.layers = 0(.|\n)*greater than 0"),
        ("extends: gpt2/tiny\nparallel: {data: some}\n", r"parallel\.data = some"),
        ("extends: gpt2/tiny\nmodel: {heads: 5}\n", r"model\.heads = 5(.|\n)*hidden 192 does not divide"),
        ("extends: gpt2/tiny\nmodel: {family: gtp2}\n", r"model\.family = gtp2(.|\n)*gpt2"),
        ("extends: gpt2/tinny\n", r'no recipe "gpt2/tinny"(.|\n)*"gpt2/tiny"'),
        ("extends: ./absent.yaml\n", r"no recipe file \./absent\.yaml"),
        ("extends: [a, b]\n", r"extends = \['a', 'b'\]"),
        ("model: {family: gpt2}\nmodel: {family: gpt2}\n", r'"model" is given twice'),
        ("just text\n", r"is not a recipe"),
        ("model: {family: [\n", r"is not valid YAML"),
        ("extends: gpt2/tiny\nmodel: {layer: 1}\ntrain: {stepz: 1}\n", r"2 fields are wrong(.|\n)*layer(.|\n)*stepz"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(write(tmp_path, "bad.yaml", text))
    assert caught.value.exit_code == 2


def test_extends_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "extends: ./b.yaml\n")
    write(tmp_path, "b.yaml", "extends: ./a.yaml\n")
    with pytest.raises(ConfigError, match=r"circle: a\.yaml → b\.yaml → a\.yaml"):
        load_recipe(tmp_path / "a.yaml")


def test_a_directory_is_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    with pytest.raises(ConfigError, match=r"runs is a directory"):
        load_recipe("runs")


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("data", {"split": [1, -1, 0]}, "must not be negative"),
        ("data", {"source": "embedded", "path": "x"}, "would ignore it"),
        ("tokenizer", {"kind": "gpt2"}, "needs tokenizer.vocab"),
        ("tokenizer", {"kind": "none", "path": "x"}, "would ignore it"),
        ("schedule", {"warmup": 1.5}, "a fraction is below 1"),
        ("schedule", {"name": "step"}, "needs schedule.step_size"),
        ("schedule", {"name": "cosine", "step_size": 3}, "would ignore it"),
        ("optimizer", {"betas": [0.9, 1.0]}, "below 1"),
    ],
)
def test_rules_inside_a_section(section: str, values: dict[str, object], message: str) -> None:
    tiny = load_recipe("gpt2/tiny").to_dict()
    tiny[section] = {**tiny[section], **values}
    with pytest.raises(ConfigError, match=message):
        recipe_from_dict(tiny)
