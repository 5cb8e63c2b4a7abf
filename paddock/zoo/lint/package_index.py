"""A package index, asked which versions it has, and which of them this Python and this machine can install (PEP 503,
691, 425). Nothing is downloaded, and nothing is run."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pydantic import Field

from paddock.documents import Document, parse_document
from paddock.errors import DataError

DEFAULT = "https://pypi.org/simple"
SECONDS = 10
LARGEST = 64 * 2**20
"""Bytes of a page: the largest projects have some tens of megabytes."""
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class IndexUnreachable(Exception):
    """Nobody answered, or not with what an index says."""


@dataclass(frozen=True)
class Release:
    """A version of a package that an index has."""

    version: Version
    lacks: str = ""
    """What keeps it from being installed here; nothing, if one of its files can be. Whether what it needs itself can be
    had, nobody has looked."""


class PackageIndex:
    """An index by its address; without one, pip's own variable says it, or it is PyPI."""

    def __init__(self, address: str | None = None) -> None:
        self.address = (address or os.environ.get("PIP_INDEX_URL") or DEFAULT).rstrip("/")
        self.dead: str | None = None
        """Why nobody answers."""

    @cache  # noqa: B019 - an index lives as long as one check
    def releases(self, name: str) -> list[Release] | None:
        """The versions of a package; None if there is no such package. IndexUnreachable, if nobody knows."""
        if self.dead is not None:  # having waited once is enough
            raise IndexUnreachable(self.dead)
        try:
            return releases_on(*self._page(name))
        except HTTPError as error:
            if error.code in (404, 410):
                return None
            self.dead = f"it answered {error.code}"
        except DataError as error:
            self.dead = f"{error.what}: {error.why}"[:200]
        except (URLError, OSError, ValueError) as error:
            self.dead = str(getattr(error, "reason", error))[:120] or type(error).__name__
        raise IndexUnreachable(self.dead)

    def _page(self, name: str) -> tuple[str, bytes]:
        if urlsplit(self.address).scheme not in ("http", "https"):
            raise ValueError("its address is not http or https")
        request = Request(f"{self.address}/{canonicalize_name(name)}/", headers={"Accept": ACCEPT})  # noqa: S310
        with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the scheme is looked at above
            page = answer.read(LARGEST)
            return str(answer.headers.get_content_type()), page


class _File(Document):
    filename: str
    yanked: bool | str = False
    requires_python: str | None = Field(None, alias="requires-python")


class _Page(Document):
    files: list[_File]


def releases_on(kind: str, page: bytes) -> list[Release]:
    """The versions that a page names, whose media type is `kind`; a DataError, if it is no page of an index."""
    if kind.endswith("json"):
        found = parse_document(page, _Page, "what it answered")
        files = [(file.filename, file.requires_python) for file in found.files if not file.yanked]
    else:
        reader = _Links()
        try:
            reader.feed(page.decode(errors="replace"))
        except AssertionError as error:  # by which Python's parser says that it knows no such declaration
            raise DataError("what it answered is not HTML", why=str(error)[:100]) from None
        files = reader.files
    return _releases(files)


def _releases(files: Iterable[tuple[str, str | None]]) -> list[Release]:
    """By their versions; a version is as good as the best of its files."""
    here, python = frozenset(sys_tags()), Version(platform.python_version())
    lacking: dict[Version, list[str]] = {}
    for name, requires_python in files:
        if (read := _read_name(name)) is not None:
            version, tags = read
            lacking.setdefault(version, []).append(_lacks(tags, requires_python, here, python))
    return [Release(version, "" if "" in lacks else lacks[0]) for version, lacks in sorted(lacking.items())]


def _lacks(tags: frozenset[Tag] | None, requires_python: str | None, here: frozenset[Tag], python: Version) -> str:
    """Why a file cannot be installed here; nothing, if it can. `tags` are those of a wheel; None is one of sources."""
    try:
        fits = not requires_python or SpecifierSet(requires_python).contains(python, prereleases=True)
    except InvalidSpecifier:  # which pip does not heed, either
        fits = True
    if not fits:
        return f"it is for Python {requires_python}, and this is {python}"
    if tags is not None and tags.isdisjoint(here):
        return f"it has no sources, and no wheel for this Python and machine: one is for {min(map(str, tags))}"
    return ""


def _read_name(file: str) -> tuple[Version, frozenset[Tag] | None] | None:
    """The version of a file, and the tags of a wheel; None, if it is nothing that can be installed."""
    try:
        if file.endswith(".whl"):
            _, version, _, tags = parse_wheel_filename(file)
            return version, tags
        return parse_sdist_filename(file)[1], None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


class _Links(HTMLParser):
    """The files that a page of links names, with the Python that they ask for, without those that were taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        address = attributes.get("href")
        if tag == "a" and address and "data-yanked" not in attributes:
            name = re.sub(r"[#?].*", "", address).rpartition("/")[2]
            self.files.append((unquote(name), attributes.get("data-requires-python")))
