"""What docs/architecture.md, its picture and the glossary name exists: files, rooms, names in the package, fields."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from paddock.config.recipe import Recipe
from paddock.parallel.config import ScheduleName
from paddock.parallel.pipeline.schedules import ENGINE_NAMES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "paddock"
PAGES = ["docs/architecture.md", "docs/glossary.md"]
ROOMS = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
GROUPS = {"families": "models.registry", "tasks": "tasks.registry", "callbacks": "training.callbacks"}


def quoted(page: str) -> list[str]:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def names(page: str) -> list[str]:
    """Dotted names that begin with a room, or with the package."""
    dotted = [name for name in quoted(page) if re.fullmatch(r"\w+(\.\w+)+", name) and not name.endswith(".py")]
    return sorted({name for name in dotted if name.split(".")[0] in {*ROOMS, "paddock", *Recipe.model_fields}})


def exists(name: str) -> bool:
    """Whether it is something in the package, a field of the recipe, or a group of entry points."""
    package, _, group = name.partition(".")
    if package == "paddock":
        return group == "devices" or (group in GROUPS and group == import_module(f"paddock.{GROUPS[group]}").GROUP)
    return in_package(name.split(".")) or is_field(name)


def in_package(parts: list[str]) -> bool:
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(["paddock", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def is_field(name: str) -> bool:
    section, _, field = name.partition(".")
    kind = Recipe.model_fields[section].annotation if section in Recipe.model_fields else None
    fields = getattr(kind, "model_fields", {})
    return field in {one.alias or own for own, one in fields.items()}


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_there(page: str) -> None:
    found = names(page)
    assert len(found) > 15
    missing = [name for name in found if not exists(name)]
    assert not missing


def test_names_that_are_not_there_are_missed() -> None:
    assert exists("parallel.pipeline.stage.Stage.forward") and exists("parallel.shard") and exists("batch.global")
    assert (
        not exists("parallel.pipeline.stage.Boundary") and not exists("parallel.zero") and not exists("paddock.sinks")
    )


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/architecture.svg", "docs/security.md", "CONTRIBUTING.md"]
)
def test_every_file_and_room_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    files = set(re.findall(r"\b(?:\w+/)+\w+\.py\b", text))
    rooms = set(re.findall(r"(?<![\w/.<>])(?:\w+/)+(?=[\s`,.;)])", text)) if page.endswith(".md") else set()
    assert files or rooms
    missing = [path for path in files | rooms if not any((root / path).exists() for root in (ROOT, PACKAGE))]
    assert not missing


def test_the_glossary_has_every_schedule() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for ours in ScheduleName.__args__:  # type: ignore[attr-defined]
        assert re.search(rf"^\| `{ours}` \|.*`{ENGINE_NAMES[ours]}`", page, re.MULTILINE), ours


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / link).exists(), link


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_tree_of_the_readme_has_every_room(page: str) -> None:
    tree = (ROOT / page).read_text(encoding="utf-8").partition("```\npaddock/\n")[2].partition("```")[0]
    shown = re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert len(shown) == len(set(shown)) and set(shown) == folders
    top = re.findall(r"^(\w+)/ ", tree, re.MULTILINE)
    assert all((ROOT / folder).is_dir() for folder in top) and "docs" in top
