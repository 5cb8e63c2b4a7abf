"""Whether a contribution's README has the sections that a user needs, in English or in Chinese, and what is in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paddock.zoo.contribution import SCRIPTS, Contribution
from paddock.zoo.findings import Finding, failed, passed_unless

CHECK, README = "readme", "README.md"
SECTIONS = {
    "training results": ("result", "结果"),
    "Docker environment": ("docker", "environment", "环境", "容器"),
    "dataset preparation": ("data", "数据"),
    "how to start training": ("train", "start", "训练", "启动"),
    "model introduction": ("model", "introduction", "overview", "origin", "模型", "介绍", "简介", "概述"),
}
"""What the headings of each say. A heading belongs to the first that it fits: `训练结果` is about results."""
UNFINISHED = re.compile(r"\b(TODO|FIXME|TBD)\b")


@dataclass(frozen=True)
class Section:
    """A heading, and all that is under it, deeper headings too."""

    title: str
    level: int
    body: str


def check_readme(contribution: Contribution) -> list[Finding]:
    """All sections, none of them empty, and numbers in the table of results."""
    if not contribution.has(README):
        return [failed(CHECK, f"{README} is missing")]
    text = contribution.text(README)
    found: dict[str, list[Section]] = {}
    for section in sections(text):
        for name, words in SECTIONS.items():
            if any(word in section.title.lower() for word in words):
                found.setdefault(name, []).append(section)
                break
    findings = []
    for name, words in SECTIONS.items():
        if name not in found:
            fix = f"add a heading with one of: {', '.join(words)}"
            findings.append(failed(CHECK, f"there is no section on {name}", README, fix))
        elif not any(section.body.strip() for section in found[name]):
            findings.append(failed(CHECK, f"the section on {name} is empty", README))
    findings += _results(found.get("training results", []))
    findings += _commands(contribution, found.get("how to start training", []))
    findings += [
        failed(CHECK, f"it still says {match.group()}", f"{README}:{number}", "write what only you can know")
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := UNFINISHED.search(line))
    ]
    return passed_unless(CHECK, findings, "all sections are there, with results and a command")


def sections(text: str) -> list[Section]:
    """The sections of a Markdown text; what is fenced as code has no headings."""
    headings: list[tuple[int, int, str]] = []
    lines = text.splitlines()
    fenced = False
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and (match := re.match(r"(#{1,6})\s+(.+)", line)):
            headings.append((number, len(match.group(1)), match.group(2).strip()))
    found = []
    has_title = [level for _, level, _ in headings].count(1) == 1  # under which everything stands
    for number, level, title in headings:
        reach = len("######") if has_title and level == 1 else level
        end = next((other for other, deep, _ in headings if other > number and deep <= reach), len(lines))
        body = [line for line in lines[number + 1 : end] if not re.match(r"#{1,6}\s", line)]
        found.append(Section(title, level, "\n".join(body)))
    return found


def _results(candidates: list[Section]) -> list[Finding]:
    """Parameters and what they reached, as a table with numbers."""
    if not any(section.body.strip() for section in candidates):
        return []  # told already
    rows = [row for section in candidates for row in table_rows(section.body)]
    if not rows:
        fix = "| device | batch size | … | metric |, with a row of what you measured"
        return [failed(CHECK, "the training results are no table", README, fix)]
    if not any(re.search(r"\d", cells[-1]) or UNFINISHED.search(cells[-1]) for cells in rows):
        return [failed(CHECK, "the table of training results has no number in its last column", README)]
    return []


def table_rows(text: str) -> list[list[str]]:
    """The rows of Markdown tables, without their heads."""
    rows: list[list[str]] = []
    in_table = False
    for line in text.splitlines():
        line = line.strip()
        if not line.startswith("|"):
            in_table = False
        elif re.fullmatch(r"[|:\s-]+", line):
            in_table = True
        elif in_table:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def _commands(contribution: Contribution, candidates: list[Section]) -> list[Finding]:
    """The command that starts training names a script that is there."""
    if not any(section.body.strip() for section in candidates):
        return []
    named = {name for section in candidates for name in re.findall(r"\brun_\w+\.py\b", section.body)}
    there = {path.name for path in contribution.scripts()}
    if not named:
        fix = f"python {SCRIPTS}/{min(there, default='run_NAME.py')} …"
        return [failed(CHECK, f"how to start training names no script of {SCRIPTS}", README, fix)]
    return [
        failed(CHECK, f"the command names {name}, which is not in {SCRIPTS}", str(Path(README)))
        for name in sorted(named - there)
    ]
