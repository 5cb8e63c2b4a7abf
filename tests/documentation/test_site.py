"""The site of the documentation: its menu has every guide, its reference every field, verb, code and name, and it
builds without a link that leads nowhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import paddock
from paddock import errors
from paddock.cli.completion import all_commands
from paddock.cli.main import VERBS
from paddock.config.flags.tables import SYSTEMS
from paddock.config.recipe import Recipe
from paddock.models.registry import config_class, family_names
from paddock.tasks.registry import data_config_class, task_class, task_names

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def making() -> Iterator[dict[str, ModuleType]]:
    """The modules that make the site, but for the one that needs mkdocs."""
    names = ("table", "links", "metrics", "python_api", "reference")
    sys.path.insert(0, str(ROOT / "docs" / "making"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "docs" / "making"))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def pages(making: dict[str, ModuleType]) -> dict[str, str]:
    made: dict[str, str] = making["reference"].pages()
    return made


def in_menu(entries: Any) -> list[str]:
    """The pages of a menu, however deep."""
    if isinstance(entries, str):
        return [entries]
    values = entries.values() if isinstance(entries, dict) else entries
    return [page for value in values for page in in_menu(value)]


def test_the_menu_has_every_page(making: dict[str, ModuleType], pages: dict[str, str]) -> None:
    own = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    menu = in_menu(SITE["nav"])
    assert "guides/data.md" in own and len(menu) == len(set(menu))
    assert set(menu) == own | set(making["links"].ROOT_PAGES.values())
    assert set(in_menu(making["reference"].navigation())) == set(pages)
    assert [entry for entry in SITE["nav"] if "Reference" in entry] == [{"Reference": []}]  # filled as it is built


def test_the_reference_has_every_field(pages: dict[str, str]) -> None:
    page = pages["reference/recipe.md"]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \| (.*) \|$", page, re.MULTILINE)
    meaning = {name: text for name, _, _, text in rows}
    sections = [
        (name, field.annotation) for name, field in Recipe.model_fields.items() if name not in ("model", "data")
    ]
    sections += [("model", config_class(family)) for family in family_names()]
    sections += [("data", data_config_class(task)) for task in task_names()]
    for section, kind in sections:
        for name, field in getattr(kind, "model_fields", {}).items():
            assert meaning.get(f"{section}.{field.alias or name}"), (section, name)
    assert all(f"\n## {section}\n" in page for section in Recipe.model_fields)
    found = {name: (kind, default) for name, kind, default, _ in rows}
    assert found["batch.global"] == ("whole number or null, > 0, ≤ 1,099,511,627,776", "`null`")
    assert found["optimizer.betas"] == ("(number, number)", "`[0.9, 0.999]`")
    assert found["parallel.shard"] == ("`none`, `optimizer`, `parameters`", "`none`")


def test_the_reference_has_every_verb(pages: dict[str, str]) -> None:
    for verb, meaning in VERBS.items():
        assert f"(`paddock {verb}`]({verb}.md)" in pages["reference/commands/index.md"].replace("[`", "(`")
        assert meaning.partition(":")[0] in pages["reference/commands/index.md"]
        assert f"usage: paddock {verb}" in pages[f"reference/commands/{verb}.md"]
    for command in all_commands():
        verb = command.name.split()[0]
        if verb in VERBS:
            page = pages[f"reference/commands/{verb}.md"]
            assert f"# paddock {command.name}\n" in page
    train = pages["reference/commands/train.md"]
    assert "--dry-run" in train and "--nproc-per-node" in train and "(../recipe.md)" in train
    assert "--optimizer.lr" not in train  # said once, on the page of the recipe


def test_the_reference_has_every_flag_code_and_metric(pages: dict[str, str]) -> None:
    flags = pages["reference/flags.md"]
    assert all(f"`{flag}`" in flags for system in SYSTEMS for alias in system.aliases for flag in alias.flags)
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.UserError)]
    for code in {0, errors.STOPPED, *(kind.exit_code for kind in kinds)}:
        assert f"\n| `{code}` | " in pages["reference/exit-codes.md"]
    metrics = pages["reference/metrics.md"]
    for task in task_names():
        assert all(f"`val.{name}` ({goal.lower()})" in metrics for name, goal in task_class(task).measures.items())


def test_metrics_that_are_written_have_a_meaning(making: dict[str, ModuleType]) -> None:
    """Those that the room of telemetry lists, and those of which a run says a unit or a goal."""
    import paddock.telemetry

    told = making["metrics"]
    known = {re.sub(r"\.(PLACE|RANK)$", "", name) for name in told.TRAINING}
    listed = re.findall(r"train\.\w+", paddock.telemetry.__doc__ or "")
    described = [name for task in task_names() for name in told.described(task) if name.startswith("train.")]
    assert len(listed) > 10 and set(listed) | set(described) <= known


def test_the_reference_has_what_python_gets(pages: dict[str, str]) -> None:
    page = pages["reference/python.md"]
    assert all(f"\n## paddock.{name}\n" in page for name in paddock.__all__ if name != "__version__")
    methods = [name for name in vars(paddock.Trainer) if not name.startswith("_")]
    assert methods and all(f"\n### Trainer.{name}\n" in page for name in methods)
    assert page.count("```") % 2 == 0 and ">>>" not in page


def test_pages_read_on_the_site_as_in_the_repository(making: dict[str, ModuleType]) -> None:
    links = making["links"]
    text = (
        "See [a](docs/guides/data.md#x), [b](README.zh.md), [c](benchmarks/x.py), [d](https://e.org).\n- one\n- two\n"
    )
    wanted = "See [a](guides/data.md#x), [b](zh.md), c, [d](https://e.org).\n\n- one\n- two\n"
    assert links.for_the_site(text, "README.md") == wanted
    guide = "[a](../../README.md) [b](data.md) [c](../../pyproject.toml)\n```\n[a](../../README.md)\n- x\n```\n"
    wanted = "[a](../index.md) [b](data.md) c\n```\n[a](../../README.md)\n- x\n```\n"
    assert links.for_the_site(guide, "docs/guides/runs.md") == wanted
    assert links.slug("LiBai's mT5, from <em>Chinese</em> text on") == "libais-mt5-from-chinese-text-on"
    assert links.slug("提交 PR") == "提交-pr"


def test_text_of_docstrings_is_no_markup(making: dict[str, ModuleType]) -> None:
    told = making["table"]
    assert told.plain("a_b *c* `d_e`\n  <f>") == r"a\_b \*c\* `d_e` \<f\>"
    assert told.table(("a",), [("b|c",)]) == ["| a |", "| --- |", "| b\\|c |"]


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install -c constraints.txt -e '.[docs]', or make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "The same model, on any device" in home and (tmp_path / "guides" / "data" / "index.html").exists()
    recipe = (tmp_path / "reference" / "recipe" / "index.html").read_text(encoding="utf-8")
    assert "<code>batch.global</code>" in recipe and "<table>" in recipe
    assert not (tmp_path / "making").exists()
    for page in tmp_path.rglob("*.html"):  # nothing is fetched from elsewhere
        fetched = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?://[^\" >]+)", page.read_text("utf-8"))
        assert not [address for address in fetched], page
