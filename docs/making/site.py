"""What mkdocs is told besides mkdocs.yml: pages that are generated, pages from outside docs/, and their links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from links import ROOT_PAGES, for_the_site, slug
from mkdocs.structure.files import File
from reference import navigation, pages

ROOT = Path(__file__).parents[2]


def on_config(config: Any) -> Any:
    """The reference is where mkdocs.yml says `Reference: []`."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Those of the root, and those that are made of the code."""
    outside = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ROOT_PAGES.items()}
    for name, text in {**outside, **pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are written for the repository hold on the site."""
    own = page.file.src_uri
    source = next((name for name, made in ROOT_PAGES.items() if made == own), f"docs/{own}")
    return for_the_site(markdown, source)
