"""Finding and reading recipes: shipped names, YAML paths, and `extends:`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from paddock.config.names import MODEL_ALIASES
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError, nearest
from paddock.files import atomic_write

SHIPPED = Path(str(files("paddock") / "recipes"))


def load_recipe(name: str | Path) -> Recipe:
    """The recipe that a shipped name (`gpt2/tiny`), a family (`gpt2`) or a YAML path stands for."""
    return recipe_from_dict(read_values(find_recipe(str(name))))


def recipe_names() -> list[str]:
    """The names of the recipes that come with Paddock."""
    return sorted(str(path.relative_to(SHIPPED).with_suffix("")) for path in SHIPPED.rglob("*.yaml"))


def find_recipe(name: str, beside: Path | None = None) -> Path:
    """The file behind a name; `beside` is the folder of the recipe that extends it."""
    own = MODEL_ALIASES.get(name, name)
    shipped = [SHIPPED / f"{own}.yaml", SHIPPED / own / "base.yaml"]
    looks_like_path = name.endswith((".yaml", ".yml")) or name.startswith((".", "/", "~"))
    places = [Path(name).expanduser()] if looks_like_path else shipped
    if looks_like_path and beside is not None:
        places.insert(0, beside / name)
    for path in places:
        if path.is_file():
            return path
    folder = Path(name).expanduser()
    if folder.is_dir():
        is_run = (folder / "config.yaml").is_file()
        raise ConfigError(
            f"{name} is a directory, not a recipe",
            fix=f"give {name}/config.yaml" if is_run else f"if it holds weights: RECIPE --checkpoint.load {name}",
        )
    if looks_like_path:
        raise ConfigError(f"there is no recipe file {name}", fix="check the path, or take a shipped recipe by name")
    raise ConfigError(
        f'there is no recipe "{name}"',
        why="none of that name ships, and there is no such run directory",
        fix=nearest(name, [*recipe_names(), *MODEL_ALIASES]) or "choose one of `paddock zoo list`",
    )


def read_values(path: Path, trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The plain values of a recipe file, with what it extends merged beneath."""
    path = path.resolve()
    if path in trail:
        circle = " → ".join(place.name for place in (*trail[trail.index(path) :], path))
        raise ConfigError(f"extends goes in a circle: {circle}", fix="remove one extends: of them")
    values = _parse(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    if not isinstance(parent, str):
        raise ConfigError(f"{path}: extends = {parent!r}", why="it names one recipe", fix="extends: gpt2/base")
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

    def line(key: str, value: Any) -> str:
        text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=2**20, allow_unicode=True)
        return f"{key}: " + text.removesuffix("...\n").rstrip()

    return "".join(line(key, value) + "\n" for key, value in recipe.to_dict().items())


def _parse(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML", why=" ".join(str(error).split())) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a recipe", why="it has no sections", fix="see paddock/recipes for examples")
    return values


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-5 is a number (YAML 1.1 wants 1.0e-5) and a key cannot be given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f'"{key}" is given twice', key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _allow_plain_exponents() -> None:
    import re

    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


_allow_plain_exponents()
