"""A contribution made from a recipe: every file that the ModelZoo asks for, and it trains as it is.

What only its author can know stands there as TODO, which the check does not let pass.
"""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from paddock import __version__
from paddock.config.load import SHIPPED, find_recipe, load_recipe, to_yaml
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value
from paddock.files import temporary_folder
from paddock.telemetry.format import count
from paddock.zoo.contribution import SCRIPTS

FILES = {
    "README.md": "readme.md",
    "model.yaml": "model.yaml",
    ".gitignore": "gitignore",
    f"{SCRIPTS}/run_{{name}}.py": "run.py",
    f"{SCRIPTS}/argument.py": "argument.py",
    f"{SCRIPTS}/formate_cmd.py": "formate_cmd.py",
    f"{SCRIPTS}/README.md": "scripts_readme.md",
}
"""What is made of a template, by its name in the contribution."""
MADE_DATA = ("embedded", "synthetic", "shapes")
"""Sources that need no files."""
DATASET = "dataset"


def new_contribution(name: str, recipe_name: str, folder: Path | None = None) -> Path:
    """Make the folder of a contribution; returns it."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        why = "it becomes a part of the name of a script: small letters, digits and _"
        raise bad_value(
            "NAME", name, why, "e.g. " + (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "my_model")
        )
    folder = folder or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already", fix="choose another folder")
    recipe = load_recipe(recipe_name)
    values = describe(name, recipe_name, recipe)
    with temporary_folder(folder) as place:
        (place / SCRIPTS).mkdir()
        for file, template in FILES.items():
            text = Template(_template(template)).substitute(values)
            (place / file.format(name=name)).write_text(text, encoding="utf-8")
        (place / "requirements.txt").write_text(f"{requirement(recipe)}\n", encoding="utf-8")
        (place / "recipe.yaml").write_text(_recipe_file(recipe_name, recipe), encoding="utf-8")
        if folder.exists():
            folder.rmdir()  # an empty one, which a folder takes the name of
        os.replace(place, folder)
    return folder


def describe(name: str, recipe_name: str, recipe: Recipe) -> dict[str, str]:
    """What the templates say of a recipe."""
    from paddock.tasks.registry import task_class

    is_made = recipe.data.source in MADE_DATA
    measure = next(iter(task_class(recipe.task).measures))
    others = [metric for metric in task_class(recipe.task).measures if metric != "loss"]
    limits = {limit: getattr(recipe.train, limit) for limit in ("steps", "epochs", "samples")}
    batch = recipe.batch.micro or recipe.batch.global_ or 1
    data = (
        f"None: the recipe makes its own data (`data.source: {recipe.data.source}`). For another dataset give "
        f"`--dataset_path`."
        if is_made
        else "TODO: where the data comes from, under which licence, and how it is prepared. Training finds it by "
        "`--dataset_path`."
    )
    return {
        "name": name,
        "recipe": recipe_name,
        "family": recipe.model.family,
        "parameters": count(recipe.model.num_parameters()),
        "task": recipe.task.replace("_", " "),
        "data": data,
        "dataset": "" if is_made else DATASET,
        "dataset_shown": "empty" if is_made else DATASET,
        "batch": str(batch),
        "lr": f"{recipe.optimizer.lr:g}",
        "precision": recipe.precision.compute,
        "length": ", ".join(f"{value} {limit}" for limit, value in limits.items() if value is not None),
        "metric": f"val.{(others or [measure])[0]}",
    }


def requirement(recipe: Recipe) -> str:
    """This Paddock, with what the recipe reads its data by."""
    extra = "[vision]" if recipe.data.source in ("folder", "shards") else ""
    extra = "[text]" if recipe.tokenizer.kind == "sentencepiece" else extra
    return f"paddock{extra}=={__version__}"


def _recipe_file(recipe_name: str, recipe: Recipe) -> str:
    if find_recipe(recipe_name).is_relative_to(SHIPPED):
        return Template(_template("recipe.yaml")).substitute(recipe=recipe_name)
    return to_yaml(recipe)  # whatever it extends, the contribution must not need it


def _template(name: str) -> str:
    return (files("paddock") / "zoo" / "templates" / f"{name}.txt").read_text(encoding="utf-8")
