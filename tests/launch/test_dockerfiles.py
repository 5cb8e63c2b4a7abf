"""The files in docker/, as far as that can be told without an engine: their steps are valid shell, what they copy is
there, versions are pinned, and nobody is root in the end. What they install is what the package asks for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from paddock.devices import device_names

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*Dockerfile"))
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
