"""Pages as the repository shows them, made fit for the site: links that leave docs/, lists, and names of headings."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

ROOT_PAGES = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASING.md": "releasing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository outside docs/ that are pages of the site, and which."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *```")
ITEM = re.compile(r"^(?:[-*] |\d+\. )")


def for_the_site(text: str, source: str, pages: Mapping[str, str] = ROOT_PAGES) -> str:
    """The text of `source`, a file's path in the repository, with links that hold where its page stands."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if ITEM.match(line) and lines and lines[-1] and not ITEM.match(lines[-1]) and lines[-1][0] != " ":
                lines.append("")  # a list needs an empty line before it here, and none on the repository's own pages
            line = LINK.sub(lambda found: _link(found, source, pages), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _link(found: re.Match[str], source: str, pages: Mapping[str, str]) -> str:
    image, text, target, anchor = found.groups()
    if ":" in target:
        return found[0]
    path = os.path.normpath(PurePosixPath(source).parent / target)
    wanted = pages.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if wanted is None:
        return text  # of the repository alone
    own = pages.get(source) or source.removeprefix("docs/")
    return f"{image}[{text}]({os.path.relpath(wanted, PurePosixPath(own).parent)}{anchor or ''})"


def slug(heading: str, separator: str = "-") -> str:
    """The name by which a heading is linked to, the same as on the repository's own pages, Chinese ones too."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]+>", "", heading).strip().lower())
    return kept.replace(" ", separator)
