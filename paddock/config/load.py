"""Finding and reading recipes: shipped names and what they are called elsewhere, YAML paths, and `extends:`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel

from paddock.config.foreign.conversion import Conversion, convert, is_foreign
from paddock.config.foreign.mindformers_files import is_mindformers
from paddock.config.overrides import union_members
from paddock.config.plain_yaml import read_plain_yaml, write_plain_yaml
from paddock.config.recipe import Recipe, class_for, recipe_from_dict
from paddock.errors import ConfigError, bad_value, nearest, shown
from paddock.files import atomic_write, nearest_path, user_path
from paddock.objects.address import is_address

_ELSEWHERE = {
    "gpt2/117m": "gpt2_small openai-community/gpt2",
    "gpt2/345m": "gpt2_medium gpt2-medium openai-community/gpt2-medium",
    "gpt2/762m": "gpt2_large gpt2-large openai-community/gpt2-large",
    "gpt2/1.5b": "gpt2_xl gpt2-xl openai-community/gpt2-xl",
    "gpt2/13b": "gpt2_13b",
    "gpt2/52b": "gpt2_52b",
    "gpt2/magicprompt": "Gustavosta/MagicPrompt-Stable-Diffusion",
    "bert/base-uncased-squad": "qa_bert_base_uncased",
    "bert/base-uncased": "bert_base_uncased bert-base-uncased google-bert/bert-base-uncased",
    "bert/large": "bert_large",
    "bert/base-chinese": "bert_base_chinese bert-base-chinese google-bert/bert-base-chinese",
    "bert/tiny": "bert_tiny",
    "t5/small": "t5_small t5-small google-t5/t5-small",
    "t5/base": "t5_base t5-base google-t5/t5-base",
    "t5/large": "t5_large t5-large google-t5/t5-large",
    "t5/v1_1-small": "t5_v1_1_small t5-v1_1-small google/t5-v1_1-small",
    "t5/v1_1-base": "t5_v1_1_base t5-v1_1-base google/t5-v1_1-base",
    "t5/v1_1-large": "t5_v1_1_large t5-v1_1-large google/t5-v1_1-large",
    "mt5/small": "mt5_small mt5-small google/mt5-small",
    "mt5/base": "mt5_base mt5-base google/mt5-base",
    "mt5/large": "mt5_large mt5-large google/mt5-large",
    "mt5/xl": "mt5_xl mt5-xl google/mt5-xl",
    "resnet/18": "resnet18",
    "resnet/34": "resnet34",
    "resnet/50": "resnet50",
    "resnet/101": "resnet101",
    "resnet/152": "resnet152",
}
MODEL_ALIASES = {alias: name for name, aliases in _ELSEWHERE.items() for alias in aliases.split()}
"""What shipped recipes are called elsewhere: names that work wherever a recipe is named."""
SHIPPED = Path(str(files("paddock") / "recipes"))
CHOOSE = "choose one of `paddock zoo list`"
MOST_EXTENDS = 32
"""Recipes that extend one another in a row."""
Section = TypeVar("Section", bound=BaseModel)


def load_recipe(name: str | Path) -> Recipe:
    """The recipe that a shipped name (`gpt2/tiny`), a family (`gpt2`) or a YAML path stands for."""
    return recipe_from_dict(read_values(find_recipe(str(name))))


def load_without_validation(name: str) -> Recipe:
    """What `load_recipe` gives, for reading only, without pydantic's checks where a recipe is shipped.

    For help pages: building the validators of every section takes longer than the page itself, and tests have checked
    shipped recipes already.
    """
    path = find_recipe(name)
    if not path.is_relative_to(SHIPPED):
        return load_recipe(name)
    values = read_values(path)
    return _construct(class_for(values), values)


def recipe_names() -> list[str]:
    """The names of the recipes that come with Paddock."""
    return sorted(str(path.relative_to(SHIPPED).with_suffix("")) for path in SHIPPED.rglob("*.yaml"))


@dataclass(frozen=True)
class ZooEntry:
    """A shipped recipe, for people to choose from."""

    name: str
    task: str
    family: str
    parameters: int
    aliases: tuple[str, ...]


def zoo() -> list[ZooEntry]:
    """Every shipped recipe but the bases that only others extend: a model has a name elsewhere."""
    entries = []
    for name in (name for name in recipe_names() if not name.endswith("/base") or name in _ELSEWHERE):
        recipe = load_recipe(name)
        others = tuple(_ELSEWHERE.get(name, "").split())
        entries.append(ZooEntry(name, recipe.task, recipe.model.family, recipe.model.num_parameters(), others))
    return entries


def find_recipe(name: str, beside: Path | None = None) -> Path:
    """The file behind a name; `beside` is the folder of the recipe that extends it."""
    if is_address(name):
        return _fetched(name)
    own = MODEL_ALIASES.get(name, name)
    shipped = [SHIPPED / f"{own}.yaml", SHIPPED / own / "base.yaml"]
    looks_like_path = name.endswith((".yaml", ".yml", ".py")) or name.startswith((".", "/", "~"))
    places = [user_path(name)] if looks_like_path else shipped
    if looks_like_path and beside is not None:
        places.insert(0, beside / name)
    for path in places:
        if os.path.isfile(path):
            return path
    folder = user_path(name)
    if os.path.isdir(folder):
        is_run = os.path.isfile(folder / "config.yaml")
        go_on = f"to go on with it: paddock resume {name}; to begin anew with its recipe: {name}/config.yaml"
        raise ConfigError(
            f"{name} is a {'run' if is_run else 'directory'}, not a recipe",
            fix=go_on if is_run else f"if it holds weights: RECIPE --checkpoint.load {name}",
        )
    is_odd = os.path.exists(folder) and not os.path.isfile(folder)  # such as a pipe
    if looks_like_path or is_odd:
        what = f"{name} is no file that can be read twice" if is_odd else ""
        raise ConfigError(
            what or f"there is no recipe file {shown(name)}", fix="check the path, or take a shipped recipe by name"
        )
    raise ConfigError(
        f'there is no recipe "{shown(name)}"',
        why="none of that name ships, and there is no such run directory",
        fix=nearest_path(folder) or nearest(name, [*recipe_names(), *MODEL_ALIASES]) or CHOOSE,
    )


def refuse_recipe(name: str, verb: str) -> None:
    """Raise ConfigError for a recipe where a verb takes what has been trained."""
    shipped = (SHIPPED / f"{name}.yaml", SHIPPED / name / "base.yaml")
    if (name in MODEL_ALIASES or any(map(os.path.isfile, shipped))) and not os.path.exists(user_path(name)):
        raise ConfigError(
            f"{name} is a recipe, which has no weights",
            fix=f"train it first: paddock train {name}; then name its run: paddock {verb} runs/…",
        )


def _fetched(address: str) -> Path:
    from paddock.objects.fetch import local_path  # not at once: most recipes are here

    path = local_path(address)
    if not os.path.isfile(path):
        raise ConfigError(f"{address} is no file", fix="name a recipe, such as s3://bucket/folder/recipe.yaml")
    return path


def read_values(path: Path, trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The plain values of a recipe file, with what it extends merged beneath."""
    path = path.resolve()
    if path in trail:
        circle = " → ".join(place.name for place in (*trail[trail.index(path) :], path))
        raise ConfigError(f"extends goes in a circle: {circle}", fix="remove one extends: of them")
    if len(trail) > MOST_EXTENDS:
        raise ConfigError(
            f"{trail[0]} extends more than {MOST_EXTENDS} recipes in a row", fix="write some of them into one"
        )
    return _with_parent(_sections(path), path, trail)


def foreign_config(name: str) -> Path | None:
    """The file behind a name, where it is a config of another system."""
    path = find_recipe(name)
    return path if not path.is_relative_to(SHIPPED) and is_foreign(path) else None


def load_foreign(path: Path, overrides: list[str]) -> tuple[Recipe, Conversion]:
    """The recipe that another system's config means, with other values for some of its keys, and the account of it."""
    conversion = convert(path, overrides)
    conversion.check()
    return recipe_of_conversion(conversion), conversion


def recipe_of_conversion(conversion: Conversion) -> Recipe:
    """What a foreign config means, checked as a recipe."""
    try:
        return recipe_from_dict(_with_parent(dict(conversion.recipe), conversion.path, ()))
    except ConfigError as error:
        raise conversion.explain(error) from None


def _with_parent(values: dict[str, Any], path: Path, trail: tuple[Path, ...]) -> dict[str, Any]:
    parent = values.pop("extends", None)
    if parent is None:
        return values
    if not isinstance(parent, str):
        raise bad_value(f"{path}: extends", parent, "it names one recipe", "extends: gpt2/base")
    return merge(read_values(find_recipe(parent, path.parent), (*trail, path)), values)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the resolved recipe; the file is itself a recipe."""
    with atomic_write(path) as stream:
        stream.write(to_yaml(recipe))


def to_yaml(recipe: Recipe) -> str:
    """One line a section."""
    return write_plain_yaml(recipe.to_dict())


def _construct(section: type[Section], values: dict[str, Any]) -> Section:
    """A section of a recipe, unchecked."""
    fields: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            fields[name] = _construct(field.annotation, values.get(key, {}))
        else:
            fields[name] = _coerced(field.annotation, values[key]) if key in values else field.default
    return section.model_construct(**fields)


def _coerced(kind: Any, value: Any) -> Any:
    """A value of YAML as pydantic would give it back."""
    for member in union_members(kind):
        if isinstance(value, list) and get_origin(member) is tuple:
            kinds = get_args(member)
            kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
            return tuple(map(_coerced, kinds, value))
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and float in union_members(kind) and int not in union_members(kind) else value


def _sections(path: Path) -> dict[str, Any]:
    values = None if path.suffix == ".py" else read_plain_yaml(path, "a recipe")
    if values is None or is_mindformers(values):
        conversion = convert(path, [])
        conversion.check()
        return dict(conversion.recipe)
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a recipe", why="it has no sections", fix="see paddock/recipes for examples")
    return values
