"""A package index, asked which versions it has (PEP 503 and 691). Nothing is downloaded, and nothing is run."""

from __future__ import annotations

import os
import re
from functools import cache
from html.parser import HTMLParser
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from paddock.documents import Document, parse_document
from paddock.errors import DataError

DEFAULT = "https://pypi.org/simple"
SECONDS = 10
LARGEST = 64 * 2**20
"""Bytes of a page: the largest projects have some tens of megabytes."""
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class IndexUnreachable(Exception):
    """Nobody answered, or not with what an index says."""


class PackageIndex:
    """An index by its address; without one, pip's own variable says it, or it is PyPI."""

    def __init__(self, address: str | None = None) -> None:
        self._address = (address or os.environ.get("PIP_INDEX_URL") or DEFAULT).rstrip("/")
        self._dead: str | None = None

    @cache  # noqa: B019 - an index lives as long as one check
    def versions(self, name: str) -> list[Version] | None:
        """The versions of a package; None if there is no such package. IndexUnreachable, if nobody knows."""
        if self._dead is not None:  # having waited once is enough
            raise IndexUnreachable(self._dead)
        try:
            return versions_on(*self._page(name))
        except HTTPError as error:
            if error.code in (404, 410):
                return None
            self._dead = f"it answered {error.code}"
        except DataError as error:
            self._dead = f"{error.what}: {error.why}"[:200]
        except (URLError, OSError, ValueError) as error:
            self._dead = str(getattr(error, "reason", error))[:120] or type(error).__name__
        raise IndexUnreachable(self._dead)

    def _page(self, name: str) -> tuple[str, bytes]:
        if urlsplit(self._address).scheme not in ("http", "https"):
            raise ValueError("its address is not http or https")
        request = Request(f"{self._address}/{canonicalize_name(name)}/", headers={"Accept": ACCEPT})  # noqa: S310
        with urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - the scheme is looked at above
            page = answer.read(LARGEST)
            return str(answer.headers.get_content_type()), page


class _File(Document):
    filename: str
    yanked: bool | str = False


class _Page(Document):
    files: list[_File]


def versions_on(kind: str, page: bytes) -> list[Version]:
    """The versions that a page names, whose media type is `kind`; a DataError, if it is no page of an index."""
    if kind.endswith("json"):
        found = parse_document(page, _Page, "what it answered")
        names = [file.filename for file in found.files if not file.yanked]
    else:
        reader = _Links()
        try:
            reader.feed(page.decode(errors="replace"))
        except AssertionError as error:  # by which Python's parser says that it knows no such declaration
            raise DataError("what it answered is not HTML", why=str(error)[:100]) from None
        names = reader.names
    return sorted({version for name in names if (version := _version_of(name)) is not None})


def _version_of(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


class _Links(HTMLParser):
    """The files that a page of links names, without those that were taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        address = attributes.get("href")
        if tag == "a" and address and "data-yanked" not in attributes:
            self.names.append(re.sub(r"[#?].*", "", address).rpartition("/")[2])
