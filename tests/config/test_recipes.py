"""Loading recipes: names, extends, merging, and errors that name the key and the fix."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.config.load import (
    MODEL_ALIASES,
    find_recipe,
    load_recipe,
    load_without_validation,
    merge,
    read_values,
    recipe_names,
    save_recipe,
    to_yaml,
    zoo,
)
from paddock.config.recipe import Recipe, recipe_from_dict
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
    if recipe.data.source in ("indexed", "text", "squad", "folder"):  # they wait for the user's files, and say so
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
        ("t5-small", 6, 512, 8, 60.5),
        ("google-t5/t5-base", 12, 768, 12, 222.9),
        ("t5_large", 24, 1024, 16, 737.7),
        ("t5-v1_1-small", 8, 512, 6, 77.0),
        ("google/t5-v1_1-base", 12, 768, 12, 247.6),
        ("t5_v1_1_large", 24, 1024, 16, 783.2),
        ("mt5_small", 8, 512, 6, 300.2),
        ("google/mt5-base", 12, 768, 12, 582.4),
        ("mt5-large", 24, 1024, 16, 1229.6),
        ("mt5_xl", 24, 2048, 32, 3742.6),
    ],
)
def test_sizes(name: str, layers: int, hidden: int, heads: int, millions: float) -> None:
    model = load_recipe(name).model
    assert (model.layers, model.hidden, model.heads) == (layers, hidden, heads)  # type: ignore[attr-defined]
    assert model.num_parameters() / 1e6 == pytest.approx(millions, rel=2e-3)


def test_every_name_elsewhere_is_of_a_recipe_and_in_the_list() -> None:
    listed = {alias: entry.name for entry in zoo() for alias in entry.aliases}
    assert listed == MODEL_ALIASES and set(listed.values()) <= set(recipe_names())
    assert not {"gpt2/base", "bert/base", "resnet/base"} & {entry.name for entry in zoo()}


def test_a_family_is_its_base_recipe() -> None:
    assert load_recipe("gpt2") == load_recipe("gpt2/base")


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith(("t5/", "mt5/"))])
def test_t5_is_trained_in_bfloat16(name: str) -> None:
    """As it was published: in float16 it overflows. What learns in a minute on any core does so in float32."""
    precision, small = load_recipe(name).precision.compute, name in ("t5/tiny", "t5/reverse", "mt5/tiny")
    assert precision == ("float32" if small else "bfloat16")


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
        ("extends: gpt2/tiny\nmodel: {layers: many}\n", r"model\.layers = many(.|\n)*whole number"),
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


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
"""Ten lines that stand for ten thousand million values."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: {[1]: 2}", "a key is a word"),
        ("model: {{a: 1}: 2}", "a key is a word"),
        ("5: 5", "a key is a word"),
        ("train: {5: 5}", "a key is a word"),
        ("? null\n: 5", "a key is a word"),
        ("train: {steps: !!int ''}", "'' is no int"),
        ("train: {steps: !!float ''}", "'' is no float"),
        ("train: {steps: !!bool maybe}", "'maybe' is no bool"),
        ("train: {steps: 0x_}", "'0x_' is no int"),
        ("train: {steps: !!timestamp x}", "could not determine a constructor"),
        ("train: {steps: !!set [1]}", "could not determine a constructor"),
        ("train: !!map [1]", "keys with values are expected|expected a mapping"),
        ("train: !!seq {a: 1}", "expected a sequence"),
        ("train: !!python/object:os.system {}", "could not determine a constructor"),
        ("train: {steps: 2024-99-99}", r"train\.steps = 2024-99-99"),
        (f"train: {{steps: {'1' * 5000}}}", "a number of 5000 characters"),
        (f"train: {{steps: 0x{'1' * 50_000}}}", "a number of 50002 characters"),
        (f"train: {{steps: {'1:' * 50_000}1}}", "a number of 100001 characters"),
        (f"train: {{seed: {2**63}}}", "a number of 64 bits"),
        ('data: {cache: "a\\0b"}', "no NUL"),
        ("schedule: {warmup: 1e400}", "finite"),
        ("optimizer: {betas: [0.9, .nan]}", "finite"),
        ("model: {family: [gpt2]}", "it is one word"),
        ("model: {family: {a: b}}", "it is one word"),
        ("task: [language_modeling]", "it is one word"),
        ("task: {a: b}", "it is one word"),
        (f"{BOMB}train: {{steps: *a9}}", "with its aliases it has more than 100,000 values"),
        (f"{BOMB}task: *a9", "with its aliases it has more than 100,000 values"),
        ("model: &m {layers: *m}", "with its aliases it has more than 100,000 values"),
        (f"model: {'[' * 3000}{']' * 3000}", "nested too deeply"),
        (f"model: {'{' * 100_000}", "nested too deeply"),
        (f"model: {'x' * 300_000}", "more than 262,144 bytes"),
        (f"train: {{steps: {'x' * 3000}}}", "3,000 characters"),
        ("\n".join(f"key{number}: 1" for number in range(5000)), "20 fields are wrong, and 4,980 more"),
        ("a: b\0c", "special characters are not allowed"),
        ("model: 5", r"model\.family = None"),
        ("optimizer: [1]", "optimizer"),
    ],
)
def test_what_is_crafted(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, "crafted.yaml", text if "task:" in text else f"extends: gpt2/tiny\n{text}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(path)
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("a" * 5000, "there is no recipe"),
        (f"{'a' * 5000}.yaml", "there is no recipe file"),
        (f"{'a/' * 5000}b.yaml", "there is no recipe file"),
        ('"a\\0b"', "there is no recipe"),
        ('"./a\\0b.yaml"', "there is no recipe file"),
        ("~nobody-of-this-name/a.yaml", "there is no recipe file"),
        ("./", "is a directory"),
        ("./pipe.yaml", "no file that can be read twice"),
        ("/dev/zero", "no file that can be read twice"),
        ("./binary.yaml", "not a text file in UTF-8"),
    ],
)
def test_a_parent_that_is_no_file(tmp_path: Path, parent: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.yaml")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(write(tmp_path, "child.yaml", f"extends: {parent}\n"))
    assert len(str(caught.value)) < 1000


def test_a_long_row_of_extends(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path, f"{number}.yaml", f"extends: ./{number + 1}.yaml\n")
    with pytest.raises(ConfigError, match="extends more than 32 recipes in a row"):
        load_recipe(tmp_path / "0.yaml")


def test_aliases_of_moderate_size_are_fine(tmp_path: Path) -> None:
    text = "extends: gpt2/tiny\ntrain: {steps: &n 7}\nevaluate: {every: *n}\n"
    assert load_recipe(write(tmp_path, "mine.yaml", text)).evaluate.every == 7


TINY = read_values(find_recipe("gpt2/tiny"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=8), inside, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(Recipe.model_fields)), PLAIN, st.text(max_size=8) | st.just("family"), PLAIN)
def test_any_values_make_a_recipe_or_an_error(section: str, value: object, key: str, inner: object) -> None:
    for changes in ({section: value}, {section: {key: inner}}):
        with suppress(ConfigError):
            recipe_from_dict(merge(TINY, changes))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abc:{}[]&*!<>|-?,'\"#%@ \n0159._x~", max_size=60))
def test_any_text_is_a_recipe_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(f"extends: gpt2/tiny\n{text}", encoding="utf-8")
    with suppress(ConfigError):
        load_recipe(path)


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
