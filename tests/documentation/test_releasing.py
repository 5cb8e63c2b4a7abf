"""What a release and a change go through: pins, the version, workflows and templates name what is there."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

import paddock

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)  # no address, no build
    return {key(line.partition("==")[0]): line.partition("==")[2] for line in lines}


def test_what_ci_installs_is_pinned_in_order() -> None:
    pinned = pins()
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"]]
    names = [key(re.match(r"[A-Za-z0-9._-]+", one)[0]) for one in wanted]  # type: ignore[index]
    assert len(names) > 20 and not [name for name in names if name not in pinned]
    assert list(pinned) == sorted(pinned)


def test_pins_are_names_and_versions() -> None:
    spec = importlib.util.spec_from_file_location("pins", ROOT / ".ci" / "pins.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    installed = [("torch", "2.13.0+cpu"), ("nvidia-nccl-cu12", "2.30"), ("triton", "3.7"), ("PyYAML", "6.0.3")]
    installed += [("paddock", paddock.__version__), ("pydantic_core", "2.50.4"), ("pydantic", "2.14.3")]
    report = {
        "install": [
            {"metadata": {"name": name, "version": version}, "download_info": {"url": f"https://example.org/{name}"}}
            for name, version in installed
        ]
    }
    assert module.pins(report) == ["pydantic==2.14.3", "pydantic_core==2.50.4", "PyYAML==6.0.3", "torch==2.13.0"]


def test_the_version_is_one() -> None:
    assert PROJECT["version"] == paddock.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *headings = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    assert first == "Unreleased" and headings
    releases = [heading.split(" – ") for heading in headings]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) and date.fromisoformat(day) for version, day in releases)
    assert releases[0][0] == PROJECT["version"]
    days = [day for _, day in releases]
    assert days == sorted(days, reverse=True)


@pytest.mark.parametrize("target", ["docs", "docs-serve", "pins"])
def test_make_targets_exist(target: str) -> None:
    plan = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert plan.returncode == 0, plan.stderr


def test_releasing_names_what_there_is() -> None:
    page = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for found in re.findall(r"`make ([a-z -]+)`", page) for word in found.split()]
    assert "pins" in targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    files = re.findall(r"[\w./-]+\.(?:md|py|toml|txt)\b", page)
    assert not [name for name in files if not name.startswith("build/") and not (ROOT / name).exists()]


def workflow(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    return values


def test_ci_runs_what_a_machine_here_does() -> None:
    ci = workflow("ci.yml")
    commands = [step["run"] for job in ci["jobs"].values() for step in job["steps"] if "run" in step]
    assert commands == [".ci/run", "make docs"] and (ROOT / ".ci" / "run").stat().st_mode & 0o100
    assert ci["permissions"] == {"contents": "read"}
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert oldest in ci["jobs"]["run"]["strategy"]["matrix"]["python"]
    for path in (ROOT / ".github").rglob("*.yml"):
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_templates_ask_for_what_they_say() -> None:
    """The forms are of the parts that the format knows, with a name for each."""
    for name in ("bug.yml", "wish.yml"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        names = [part["id"] for part in form["body"]]
        assert len(names) == len(set(names)) and all(part["attributes"]["label"] for part in form["body"])
        assert {part["type"] for part in form["body"]} <= {"textarea", "dropdown", "input"}


def test_hooks_are_those_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}  # their versions are those of constraints.txt
    entries = " ".join(hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [lint] = re.findall(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    programs = set(re.findall(r"\$\(BIN\)/([\w-]+)", lint))
    assert programs and all(f".venv/bin/{program}" in entries for program in programs)


def test_the_container_for_editors_sets_up_by_make() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    [program, target] = container["postCreateCommand"].split()
    assert program == "make" and subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0
