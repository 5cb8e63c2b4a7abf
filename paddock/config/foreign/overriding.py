"""`a.b=c` behind a foreign config: another value for one of its keys, as LiBai and MindFormers take it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from paddock.config.plain_yaml import parse_value
from paddock.errors import ConfigError, bad_value

_WORD = re.compile(r"\+{0,2}(?P<key>[A-Za-z_][\w]*(?:(?:\.\w+)|(?:\[\d{1,4}\]))*)=(?P<value>.*)", re.DOTALL)
_STEPS = re.compile(r"[^.\[\]]+")


def take_overrides(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Which words of a command line are `a.b=c`, and the others. A value of a flag may look so too: what stands behind
    a word that begins with a dash stays there, but for MindFormers' own `--options`."""
    overrides: list[str] = []
    others: list[str] = []
    after_flag = False
    for word in arguments:
        if word == "--options":
            continue
        if not after_flag and _WORD.fullmatch(word):
            overrides.append(word)
            continue
        after_flag = word.startswith("-") and "=" not in word and not _is_switch(word)
        others.append(word)
    return overrides, others


def _is_switch(word: str) -> bool:
    return word in ("--resume", "--eval-only", "--fast-dev-run", "--dry-run", "--json", "--debug")


def override(values: dict[str, Any], words: list[str]) -> list[str]:
    """Put the values of `words` into a config, and return the dotted names of what they changed."""
    changed = []
    for word in words:
        found = _WORD.fullmatch(word)
        if found is None:
            raise bad_value("override", word, "it is KEY=VALUE, such as train.seed=7")
        key = found["key"]
        try:
            value = parse_value(found["value"])
        except yaml.YAMLError:
            raise bad_value(key, found["value"], "it is no value that YAML knows", "quote it") from None
        _put(values, key, value)
        changed.append(key)
    return changed


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    *way, last = (int(step) if step.isdecimal() else step for step in _STEPS.findall(key))
    place: Any = values
    for step in way:
        if isinstance(place, dict) and isinstance(step, str):
            below = place.setdefault(step, {})
        elif isinstance(place, list) and isinstance(step, int) and step < len(place):
            below = place[step]
        else:
            raise ConfigError(f"{key} cannot be set", why=f"there is no {step} in what stands before it")
        place = below
    if isinstance(place, dict):
        place[str(last)] = value
    elif isinstance(place, list) and isinstance(last, int) and last < len(place):
        place[last] = value
    else:
        raise ConfigError(f"{key} cannot be set", why="what stands before it is a value, and has no keys")
