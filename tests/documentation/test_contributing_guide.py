"""The guide to contributing a model, in both languages: every command runs, in order, with a smaller model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddock.cli.main import run
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.guides import Block, sections
from paddock.testing.samples.contributions import SMALL_RECIPE, finished
from paddock.zoo.model_file import read_cases
from paddock.zoo.scaffold import new_contribution

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "guides"
GUIDE = FOLDER / "contributing-a-model.md"


def blocks() -> list[Block]:
    return [block for section in sections(GUIDE) for block in section]


def test_both_languages_run_the_same() -> None:
    chinese = sections(FOLDER / "contributing-a-model.zh.md")
    assert [[block for block in part if block.kind] for part in sections(GUIDE)] == [
        [block for block in part if block.kind] for part in chinese
    ]
    assert len(chinese) == 11


def test_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks():
        if block.kind == "py":
            Path(block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)
        elif block.kind == "yaml":
            assert (
                yaml.safe_load(block.text)[0].keys() <= yaml.safe_load(Path("my_gpt2/model.yaml").read_text())[0].keys()
            )
            finished(Path("my_gpt2")).joinpath("model.yaml").write_text(block.text)
            assert read_cases(Path("my_gpt2/model.yaml"))
        elif block.kind == "python":
            exec(block.text, {})  # noqa: S102 - the guide is ours
            assert [metrics_of(record) for record in read_metrics("log.json") if record["type"] == "LOG"]
        elif block.kind == "sh":
            for command in block.text.splitlines():
                execute(command, capfd)
    assert list(tmp_path.glob("runs/wrapped/metrics.jsonl")) and Path("report.xml").is_file()
    assert "✅ passed" in Path("report.md").read_text(encoding="utf-8")


def execute(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    program, *words = shlex.split(command)
    if program == "python":
        done = subprocess.run([sys.executable, *words], env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return
    assert program == "paddock"
    assert run(words) == 0, f"{command}\n{capfd.readouterr()}"
    if words[:2] == ["zoo", "new"]:
        Path("my_gpt2/recipe.yaml").write_text(SMALL_RECIPE)


def test_the_tree_that_it_shows_is_what_is_made(tmp_path: Path) -> None:
    made = new_contribution("my_gpt2", "gpt2/tiny", tmp_path / "my_gpt2")
    [tree] = [block.text for block in blocks() if block.text.startswith("my_gpt2/\n")]
    shown = set(re.findall(r"^ +([\w.]+\.(?:txt|md|yaml|py)) ", tree, re.MULTILINE))
    assert shown == {path.name for path in made.rglob("*") if path.is_file()} - {".gitignore"}


@pytest.mark.parametrize("page", ["contributing-a-model.md", "contributing-a-model.zh.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (FOLDER / link).exists(), link


TOPICS = {
    "device adaptation": ("## The device", "## 设备", "Device adaptation"),
    "data parallel": ("## Data parallel", "## 数据并行", "Data parallel"),
    "mixed precision": ("## Mixed precision", "## 混合精度", "AMP"),
    "run interface": ("## The run interface", "## 运行接口", "Run interface"),
    "logs": ("## The log", "## 日志", "Logs"),
    "alignment": ("## Alignment", "## 对齐", "`paddock align RUN REFERENCE`"),
    "README": ("## The README", "## README", "README.md has all five sections"),
    "pull request": ("## The pull request", "## 提交 PR", "`paddock zoo check contributions/NAME"),
}
"""What the paper has a section on: its heading in both guides, and what the template of a pull request asks of it."""


@pytest.mark.parametrize("topic", TOPICS)
def test_guides_and_template_have_what_the_paper_has(topic: str) -> None:
    english, chinese, asked = TOPICS[topic]
    for page, heading in (("contributing-a-model.md", english), ("contributing-a-model.zh.md", chinese)):
        parts = (FOLDER / page).read_text(encoding="utf-8").split("\n## ")
        [part] = [part for part in parts if f"## {part}".startswith(f"{heading}\n")]
        assert len(part.removeprefix(heading).split("\n", 1)[1].strip()) > 100, f"{page} has no more than a heading"
    template = (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    assert [line for line in template.splitlines() if line.startswith("- [ ] ") and asked in line]


@pytest.mark.parametrize("page", ["contributing-a-model.md", "contributing-a-model.zh.md"])
def test_the_guides_say_what_is_not_looked_for(page: str) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    assert "`pip install -r requirements.txt`" in text and "Requires-Python" in text and "not verified" in text


def workflow() -> dict[str, object]:
    said: dict[str, object] = yaml.safe_load((ROOT / ".github" / "workflows" / "zoo.yml").read_text(encoding="utf-8"))
    return said


def test_the_workflow_gives_strangers_nothing() -> None:
    text = (ROOT / ".github" / "workflows" / "zoo.yml").read_text(encoding="utf-8")
    assert workflow()["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text and "secrets." not in text and "persist-credentials: false" in text


STUB = """#!/bin/sh
echo "$@" >> "$CALLS"
while [ "$1" != --markdown ]; do shift; done
echo "report of $2" > "$2"
case "$2" in *bad*) exit 7;; esac
"""
"""In place of `paddock`: notes its arguments, and fails what is called bad."""


@pytest.mark.parametrize(("names", "status"), [(["good"], 0), (["good", "bad"], 1), ([], 0)])
def test_the_workflow_checks_what_a_request_changes(names: list[str], status: int, tmp_path: Path) -> None:
    [step] = [one for one in workflow()["jobs"]["check"]["steps"] if one.get("name") == "Check what changed"]  # type: ignore[index]
    stub = tmp_path / "bin" / "paddock"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    repository = tmp_path / "repository"
    for name in ("good", "bad", "untouched", "removed"):
        (repository / "contributions" / name).mkdir(parents=True)
        (repository / "contributions" / name / "README.md").write_text("x")
    environment = {
        **os.environ,
        "PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=repository, env=environment, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "before")
    environment["BASE"] = git("rev-parse", "HEAD").strip()
    for name in names:
        (repository / "contributions" / name / "README.md").write_text("changed")
    git("rm", "-rq", "contributions/removed")
    git("commit", "-qam", "after")
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=repository, env=environment, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    called = (tmp_path / "calls").read_text().splitlines() if names else []
    assert sorted(call.split()[2] for call in called) == sorted(f"contributions/{name}" for name in names)
    assert all(f"report of reports/{name}.md" in (tmp_path / "summary").read_text() for name in names)
