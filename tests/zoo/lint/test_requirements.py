"""Requirements: pinned always; there to be had if installed, or if an index says so; NOT CHECKED if nobody can say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.tags import sys_tags
from packaging.version import Version

from paddock.errors import DataError
from paddock.zoo.contribution import Contribution
from paddock.zoo.findings import Finding
from paddock.zoo.lint.package_index import IndexUnreachable, PackageIndex, Release, releases_on
from paddock.zoo.lint.requirements import check_requirements

JSON = '{"files": [{"filename": "seen-1.0.tar.gz"}, {"filename": "seen-1.5-py3-none-any.whl"}, \
{"filename": "seen-2.0-py3-none-any.whl", "yanked": "broken"}, {"filename": "seen.txt"}]}'
HTML = '<a href="../linked-0.9.zip#sha256=0">x</a><a href="linked-1.1-py3-none-any.whl">y</a>\
<a href="linked-3.0.tar.gz" data-yanked="">z</a>'
ELSEWHERE = "cp27-cp27m-win32.whl"
MACHINES = {
    "files": [
        {"filename": f"picky-1.0-{ELSEWHERE}"},
        {"filename": "picky-2.0-py3-none-any.whl", "requires-python": "<3"},
        {"filename": f"picky-3.0-{ELSEWHERE}"},
        {"filename": "picky-3.0.tar.gz", "requires-python": ">=3.9"},
        {"filename": f"picky-4.0-{ELSEWHERE}"},
        {"filename": f"picky-4.0-{next(sys_tags())}.whl"},
        {"filename": "picky-5.0.tar.gz", "requires-python": ">=99"},
        {"filename": "picky-6.0.tar.gz", "requires-python": "as you like"},
    ]
}
LINKS = '<a href="old-1.0-py3-none-any.whl#sha256=0" data-requires-python="&lt;3">x</a><a href="old-0.9%2B1.zip">y</a>'
PAGES = {
    "/seen/": ("application/vnd.pypi.simple.v1+json", JSON),
    "/linked/": ("text/html", HTML),
    "/picky/": ("application/vnd.pypi.simple.v1+json", json.dumps(MACHINES)),
    "/old/": ("text/html", LINKS),
}


FIT = Finding("requirements", "passed", "all of them together")


class Index(BaseHTTPRequestHandler):
    """An index of a few packages."""

    def do_GET(self) -> None:
        kind, page = PAGES.get(self.path, ("text/plain", ""))
        self.send_response(500 if self.path == "/broken/" else 200 if page else 404)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Nobody wants to read it."""


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def check(lines: str, place: Path, address: str) -> Finding:
    (place / "requirements.txt").write_text(lines)
    finding, *together = check_requirements(Contribution.open(place), PackageIndex(address).releases, lambda _: FIT)
    assert len(together) == (finding.status != "failed")
    return finding


@pytest.mark.parametrize(
    ("line", "status", "what"),
    [
        ("seen==1.5", "passed", "1 requirement, pinned and to be had"),
        ("seen[extra]~=1.0 ; python_version > '3'  # why", "passed", ""),
        ("linked<1", "passed", ""),
        ("absent==1 ; sys_platform == 'nowhere'", "passed", ""),
        ("packaging>1,<1000", "passed", ""),
        ("seen==1.7", "failed", "no version of seen is ==1.7; its newest is 1.5"),
        ("seen==2.0", "failed", "no version of seen"),
        ("linked>=3,<4", "failed", "no version of linked is <4,>=3; its newest is 1.1"),
        ("absent==1.0", "failed", "the index has no absent"),
        ("picky==1.0", "failed", "picky 1.0 cannot be installed here: it has no sources, and no wheel for this Python"),
        ("picky==2.0", "failed", "picky 2.0 cannot be installed here: it is for Python <3, and this is 3."),
        ("picky==3.0", "passed", ""),
        ("picky==4.0", "passed", ""),
        ("picky==5.0", "failed", "picky 5.0 cannot be installed here: it is for Python >=99"),
        ("picky==6.0", "passed", ""),
        ("picky<3", "failed", "picky 2.0 cannot be installed here"),
        ("picky>2,<6", "passed", ""),
        ("old==1.0", "failed", "old 1.0 cannot be installed here: it is for Python <3"),
        ("old==0.9+1", "passed", ""),
        ("broken==1.0", "NOT CHECKED", "broken==1.0 is not installed, and no index could be asked: it answered 500"),
        (f"tool @ git+https://example.org/tool@{'a' * 40}", "NOT CHECKED", "tool is in a repository"),
    ],
)
def test_a_requirement(line: str, status: str, what: str, tmp_path: Path, index: str) -> None:
    finding = check(line, tmp_path, index)
    assert finding.status == status and what in finding.what


def test_without_an_index_nothing_is_said_to_pass(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        nobody = f"http://127.0.0.1:{server.server_port}"
    finding = check("seen==1.5", tmp_path, nobody)
    assert finding.status == "NOT CHECKED" and "no index could be asked" in finding.what


def test_versions_of_both_kinds_of_pages(index: str) -> None:
    assert PackageIndex(index).releases("Seen") == [Release(Version("1.0")), Release(Version("1.5"))]
    assert PackageIndex(index + "/").releases("linked") == [Release(Version("0.9")), Release(Version("1.1"))]


def test_an_index_that_does_not_answer_is_asked_once(index: str) -> None:
    broken = PackageIndex(index)
    for name in ("broken", "seen"):
        with pytest.raises(IndexUnreachable, match="it answered 500"):
            broken.releases(name)


@pytest.mark.parametrize(
    ("kind", "page", "why"),
    [
        ("application/vnd.pypi.simple.v1+json", b"[" * 100_000, "nested too deeply"),
        ("application/vnd.pypi.simple.v1+json", b'{"files": [', "not valid JSON"),
        ("application/vnd.pypi.simple.v1+json", b'{"files": [{"filename": 3}]}', "expected form"),
        ("application/vnd.pypi.simple.v1+json", b'{"versions": []}', "expected form"),
        ("text/html", b"<![what]>", "not HTML"),
    ],
)
def test_an_answer_that_no_index_gives(kind: str, page: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError) as caught:
        releases_on(kind, page)
    assert why in str(caught.value)
    asked = PackageIndex("http://127.0.0.1:1")
    monkeypatch.setattr(asked, "_page", lambda name: (kind, page))
    with pytest.raises(IndexUnreachable, match=why):
        asked.releases("seen")
