"""Guides that there are in Chinese, too: both run and show the same, and lead to pages in their own language."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from paddock.testing.guides import Block, sections

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
CHINESE = sorted(path.name for path in GUIDES.glob("*.zh.md"))
COMMAND = re.compile(r"^(?:\w*\$ |paddock |python )", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#:]+\.md)(?:#[^)\s]*)?\)")


def essence(block: Block) -> Block:
    """What both languages have of a block: all of it, or of a list of files their names."""
    if block.kind or COMMAND.search(block.text) or not re.search(r"\S {2,}\S", block.text):
        return block
    return Block(block.kind, "\n".join(re.split(r"(?<=\S) {2,}", line)[0] for line in block.text.splitlines()))


def test_there_are_guides_in_chinese() -> None:
    assert {"launching.zh.md", "cluster.zh.md", "data.zh.md"} <= set(CHINESE)


@pytest.mark.parametrize("name", CHINESE)
def test_both_languages_run_and_show_the_same(name: str) -> None:
    english, chinese = GUIDES / name.replace(".zh.md", ".md"), GUIDES / name
    both = [[[essence(block) for block in part] for part in sections(page)] for page in (english, chinese)]
    assert any(both[0]) and both[0] == both[1]
    texts = [page.read_text(encoding="utf-8") for page in (english, chinese)]
    words = [Counter(re.findall(r"`([^`\n]+)`", FENCED.sub("", text))) for text in texts]
    assert words[0] == words[1]
    for part in (r"^#+ ", r"^\|", r"^- ", r"^!\["):
        first, second = (len(re.findall(part, text, re.MULTILINE)) for text in texts)
        assert first == second, part


@pytest.mark.parametrize("page", ["README.zh.md", "docs/faq.zh.md", *(f"docs/guides/{name}" for name in CHINESE)])
def test_chinese_pages_lead_to_chinese_ones(page: str) -> None:
    """Where there are any; but for the link to the page's own English twin."""
    path = ROOT / page
    twin = path.with_name(path.name.replace(".zh.md", ".md"))
    targets = [(path.parent / link).resolve() for link in LINK.findall(path.read_text(encoding="utf-8"))]
    english = {one for one in targets if one != twin and not one.name.endswith(".zh.md")}
    assert not [one.name for one in english if one.with_suffix(".zh.md").exists()]
