"""The files in docker/, as far as that can be told without an engine: their steps are valid shell, what they copy is
there, versions are pinned, and nobody is root in the end. What they install is what the package asks for; and what they
copy is enough to install it, in an environment of its own, where the command then works."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from paddock.devices import device_names

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*Dockerfile"))
OF_THE_PACKAGE = {"pip", "python", "grep", "paddock"}
"""Commands of steps that need no image: the others are the system's own."""
INSTRUCTIONS = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "CMD"}


def steps(file: Path) -> list[tuple[str, str]]:
    """Instructions and what follows them, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def told(file: Path, instruction: str) -> list[str]:
    return [rest for word, rest in steps(file) if word == instruction]


def test_there_is_one_for_the_cpu_and_each_documented_accelerator() -> None:
    names = {file.name for file in FILES}
    assert names == {"Dockerfile", *(f"{name}.Dockerfile" for name in ("cuda", "npu", "mlu", "sdaa"))}
    assert {name.removesuffix(".Dockerfile") for name in names} - {"Dockerfile"} < set(device_names())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
class TestEach:
    def test_begins_from_a_base_that_is_chosen(self, file: Path) -> None:
        assert {word for word, _ in steps(file)} <= INSTRUCTIONS
        assert steps(file)[1] == ("FROM", "${BASE}")
        base = told(file, "ARG")[0].partition("=")
        assert base[0] == "BASE"
        assert not base[2] or re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+\S*", base[2]), "a version, and not the latest"

    def test_steps_are_valid_shell(self, file: Path) -> None:
        for step in told(file, "RUN"):
            done = subprocess.run(["sh", "-n", "-c", step], capture_output=True, text=True)
            assert done.returncode == 0, f"{step}: {done.stderr}"
            assert ";" not in step and " || " not in step, "what fails in a step fails the step"

    def test_what_is_copied_is_there(self, file: Path) -> None:
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        for step in told(file, "COPY"):
            for source in step.split()[:-1]:
                assert (ROOT / source).exists() and f"!{source}" in ignored, source

    def test_versions_are_pinned(self, file: Path) -> None:
        installs = [part for step in told(file, "RUN") for part in step.split("&&") if "pip install" in part]
        assert installs
        for install in installs:
            assert "--no-cache-dir" in install
            pinned = re.search(r"--constraint \S+|--no-deps|==", install)
            assert pinned, install
        for step in told(file, "RUN"):
            assert "apt-get install" not in step or "rm -rf /var/lib/apt/lists" in step

    def test_nobody_is_root_in_the_end(self, file: Path) -> None:
        assert told(file, "USER") == ["paddock"]
        users = [number for number, (word, _) in enumerate(steps(file)) if word == "USER"]
        assert not [word for word, _ in steps(file)[users[0] :] if word in ("RUN", "COPY")]

    def test_it_says_whether_it_was_tried(self, file: Path) -> None:
        assert ("Not tried" in file.read_text()) == (file.name != "Dockerfile")


def test_the_pins_of_torch_are_the_tested_ones() -> None:
    [pin] = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"torch=={pin}" in (ROOT / "docker" / "Dockerfile").read_text()
    assert f"ARG TORCH={pin}" in (ROOT / "docker" / "npu.Dockerfile").read_text()


def test_what_a_base_with_torch_is_given() -> None:
    """The script's list is the package's own, without torch."""
    script = [sys.executable, "docker/without_torch.py"]
    listed = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(listed) == len(wanted) - 1 and set(listed) < set(wanted)
    assert not [name for name in listed if name.startswith("torch")]


@cache
def sent() -> list[Path]:
    """What the engine would get of this repository, by its .dockerignore: the last line that speaks of a file, or of a
    folder above it, decides."""
    rules = []
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        rules.append((re.compile(pattern), line.startswith("!")))
    found = []
    for folder in ("paddock", "docker", "tests", "."):
        for path in (ROOT / folder).glob("*" if folder == "." else "**/*"):
            place = path.relative_to(ROOT)
            names = [str(one) for one in (place, *place.parents)][:-1]
            kept = [keeps for pattern, keeps in rules if any(map(pattern.fullmatch, names))]
            found += [place] if kept and kept[-1] and path.is_file() else []
    return found


PIP = """#!/bin/sh
exec {python} {script} "$@"
"""
STAND_IN = """
import subprocess, sys
from pathlib import Path
from packaging.requirements import Requirement

verb, *words = sys.argv[1:]
assert verb == "install", verb
files = [Path(words[at + 1]) for at, word in enumerate(words) if word in ("--requirement", "--constraint")]
lines = [line.partition("#")[0].strip() for file in files for line in file.read_text().splitlines()]
values = {*map(str, files), *(words[at + 1] for at, word in enumerate(words) if word == "--index-url")}
named = [word for word in words if not word.startswith("--") and word not in values]
for requirement in [line for line in lines if line] + [word for word in named if word != "."]:
    Requirement(requirement)
if "." in named:
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "."]
    sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *offline]))
assert lines or named
"""
"""In place of pip, where nothing can be fetched: what else is to be installed has to be said in pip's words, and is
taken from this environment; the package itself is installed."""


@dataclass
class Image:
    """A folder in which the steps of a Dockerfile are done that need no engine."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: Path = Path()
    steps: int = 0

    def __post_init__(self) -> None:
        python = self.root / "venv" / "bin" / "python"
        venv.create(self.root / "venv", symlinks=True)
        [packages] = (self.root / "venv").glob("lib/python*/site-packages")
        (packages / "of_the_tests.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
        (self.root / "stand_in.py").write_text(STAND_IN)
        (pip := python.with_name("pip")).write_text(PIP.format(python=python, script=self.root / "stand_in.py"))
        pip.chmod(0o755)
        plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        self.variables = plain | {"PATH": f"{python.parent}:/usr/bin:/bin"}

    def do(self, instruction: str, rest: str) -> None:
        if instruction == "ARG":
            name, _, value = rest.partition("=")
            self.variables[name] = value
        elif instruction == "WORKDIR":
            self.folder = self.root / rest.lstrip("/")
            self.folder.mkdir(parents=True)
        elif instruction == "COPY":
            *sources, target = rest.split()
            self.copy(sources, self.folder / target)
        elif instruction == "RUN" and {shlex.split(part)[0] for part in rest.split("&&")} <= OF_THE_PACKAGE:
            self.call(["sh", "-e", "-c", rest])
            self.steps += 1

    def copy(self, sources: list[str], target: Path) -> None:
        for source in map(Path, sources):
            for path in [one for one in sent() if one == source or source in one.parents]:
                place = target / (path.relative_to(source) if path != source else path.name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, place)

    def call(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.variables, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


def test_what_is_sent_to_the_engine() -> None:
    names = {str(path) for path in sent()}
    assert {"pyproject.toml", "docker/without_torch.py", "paddock/py.typed", "paddock/recipes/gpt2/tiny.yaml"} <= names
    assert not [name for name in names if name.startswith(("tests", "docker/D", ".")) or "__pycache__" in name]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_can_be_installed_and_works(file: Path, tmp_path: Path) -> None:
    image = Image(tmp_path)
    for instruction, rest in steps(file):
        image.do(instruction, rest)
    assert image.steps, "nothing was tried"
    where = image.call(["python", "-c", "import paddock; print(paddock.__file__)"])
    assert where.startswith(str(tmp_path / "venv")), "the package that was installed, and not this repository's"
    [command] = told(file, "CMD")
    assert "train" in image.call(json.loads(command))
    assert "gpt2" in image.call(["paddock", "recipe", "show", "gpt2/tiny"])
