"""A path alone says that it is text, where its name does: nobody has to set `data.source` beside it."""

from __future__ import annotations

import os
from typing import Any

from paddock.data.config import DataConfig, TokensConfig, named_as_text


def take_text_as_it_is(section: dict[str, Any], recipe: DataConfig) -> list[str]:
    """Set `source` in a data section that is the recipe's but for its path, if that names files of text, and the task
    can read them; returns what to tell the user."""
    path, source = section.get("path"), section.get("source")
    path = (path,) if isinstance(path, str) else path
    if not isinstance(recipe, TokensConfig) or not path or path == recipe.path or source == "text":
        return []
    if "text" not in recipe.sources() or not all(map(_is_text, path)):
        return []
    section["source"] = "text"
    return [f"data.source is text instead of {source}, since {path[0]} is a file of text by its name"]


def _is_text(part: float | str) -> bool:
    return isinstance(part, str) and named_as_text(part) and not os.path.exists(f"{part}.idx")
