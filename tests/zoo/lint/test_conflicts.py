"""Whether requirements fit together: by what is installed, or by pip, which is given an index of a few wheels."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from paddock.zoo.findings import Finding
from paddock.zoo.lint.conflicts import ask_pip, check_conflicts, what_pip_says
from paddock.zoo.lint.package_index import IndexUnreachable, PackageIndex
from paddock.zoo.sandbox import Outcome

NEEDS: dict[str, list[str]] = {
    "early-1.0": ["middle<2"],
    "late-1.0": ["middle>=2"],
    "late-2.0": ["middle>=1"],
    "middle-1.0": [],
    "middle-2.0": [],
    "lost-1.0": ["nowhere-to-be-found==1"],
}
ASKED = Finding("requirements", "NOT CHECKED", "pip was asked")


def wheel(name: str) -> bytes:
    package, _, version = name.partition("-")
    lines = ["Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}"]
    lines += [f"Requires-Dist: {needed}" for needed in NEEDS[name]]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", "\n".join(lines))
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    return content.getvalue()


class Index(BaseHTTPRequestHandler):
    """An index of these wheels."""

    def do_GET(self) -> None:
        wanted = self.path.strip("/")
        files = [f"{name}-py3-none-any.whl" for name in NEEDS]
        if wanted in files:
            kind, answer = "application/zip", wheel(wanted.removesuffix("-py3-none-any.whl"))
        else:
            links = [f'<a href="/{file}">{file}</a>' for file in files if file.startswith(f"{wanted}-")]
            kind, answer = "text/html", "".join(links).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nobody wants to read it."""


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    with pytest.MonkeyPatch.context() as patch, ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield PackageIndex(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.mark.parametrize(
    ("lines", "status", "what"),
    [
        ("early==1.0 late==1.0", "failed", "early 1.0 depends on middle<2; late 1.0 depends on middle>=2"),
        ("early==1.0 late<3", "passed", "they fit together"),
        ("lost==1.0", "NOT CHECKED", "No matching distribution found for nowhere-to-be-found==1"),
    ],
)
def test_pip_says_whether_versions_fit(lines: str, status: str, what: str, index: PackageIndex) -> None:
    pytest.importorskip("pip")
    finding = check_conflicts([Requirement(line) for line in lines.split()], lambda those: ask_pip(index, those))
    assert finding.status == status and what in finding.what, finding


def test_where_nobody_can_say_it_is_not_checked() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        nobody = PackageIndex(f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(IndexUnreachable):
        nobody.releases("early")
    finding = ask_pip(nobody, [Requirement("early==1.0")])
    assert finding.status == "NOT CHECKED" and "no index could be asked" in finding.what
    outcome = Outcome(status=None, ended="time", left=[], seconds=60, memory=0, disk=0, printed=0)
    assert "pip wanted more than 1m00s" in what_pip_says(outcome, "", 60.0).what
    away = [Requirement(f"tool @ git+https://example.org/tool@{'a' * 40}")]
    assert check_conflicts(away, partial(ask_pip, nobody)).status == "NOT CHECKED"
    both = [*away, Requirement("early==1.0")]
    assert check_conflicts(both, lambda _: Finding("requirements", "passed", "")).status == "NOT CHECKED"


def install(folder: Path, **packages: tuple[str, list[str]]) -> None:
    """Packages as they would be found here, of which there is nothing but what they say of themselves."""
    for name, (version, needs) in packages.items():
        place = folder / f"{name}-{version}.dist-info"
        place.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {needed}" for needed in needs)]
        (place / "METADATA").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("lines", "status", "what"),
    [
        ("early==1 middle==2", "failed", "requirements.txt asks for middle==2, and early 1 asks for middle<2"),
        ("top==1 middle==2", "failed", "requirements.txt asks for middle==2, and early 1 asks for middle<2"),
        ("early==1 middle<3", "passed", "as they are installed here"),
        ("early[more]==1", "NOT CHECKED", "pip was asked"),
        ("early<3 middle==2", "NOT CHECKED", "pip was asked"),
        ("early==2", "NOT CHECKED", "pip was asked"),
        ("built==2.0.1 for-it==1", "passed", "as they are installed here"),
        ("built==2.0.1 for-it==1 absent", "NOT CHECKED", "pip was asked"),
        ("old==1", "NOT CHECKED", "pip was asked"),
    ],
)
def test_what_is_installed_says_it_first(
    lines: str, status: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ["middle<2", "absent ; extra == 'more'", "absent ; sys_platform == 'nowhere'"]
    install(tmp_path, early=("1", needs), middle=("1.5", []), top=("1", ["early==1"]))
    install(tmp_path, built=("2.0.1+cu118", []), for_it=("1", ["built==2.0.1+cu118"]), old=("1", ["foo (>=1.0.*)"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = check_conflicts([Requirement(line) for line in lines.split()], lambda _: ASKED)
    assert finding.status == status and what in finding.what, finding
