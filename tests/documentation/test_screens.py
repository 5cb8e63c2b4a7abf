"""The page of screens: it shows every command that the script runs, and no other; its pictures are whole, and say
nothing of the machine that they were made on."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from paddock.cli.main import run
from paddock.testing.guides import sections
from paddock.testing.tiny import TINY

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "screens.md"
PICTURES = ROOT / "docs" / "pictures" / "screens"
DRAWN = sorted(PICTURES.glob("*.svg"))
LARGEST = 60_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def screens() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "docs" / "making"))
    try:
        yield importlib.import_module("screens")
    finally:
        sys.path.remove(str(ROOT / "docs" / "making"))
        sys.modules.pop("screens", None)


def test_the_page_shows_what_the_script_runs(screens: ModuleType) -> None:
    shown = [block.text.strip() for part in sections(PAGE) for block in part]
    assert sorted(shown) == sorted(screen.command for screen in screens.SCREENS)
    linked = re.findall(r"pictures/screens/([\w-]+\.svg)", PAGE.read_text(encoding="utf-8"))
    names = [name for screen in screens.SCREENS for name in screen.pictures()]
    assert sorted(linked) == sorted(f"{name}-{columns}.svg" for name in names for columns in screens.WIDTHS)
    assert sorted(linked) == [path.name for path in DRAWN]


def test_its_commands_work(
    screens: ModuleType, trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what starts processes, of which only the flags are read: it has tests of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained_run, "runs/tour", symlinks=True)
    for screen in screens.SCREENS:
        program, *words = shlex.split(screen.command)
        assert program == "paddock"
        if screen.command == screens.TRAIN:
            words = [words[0], *TINY, *words[2:], "--steps", "1", "--run-dir", "runs/other"]
        if screen.name == "generate":
            words = [word.replace("40", "8") for word in words]  # the small model reads no more than 32 tokens
        code = 2 if screen.name in ("error", "misspelt") else 0
        if screen.name in ("parity", "two"):
            with pytest.raises(SystemExit, match="0"):
                run([*words, "--help"])
        else:
            assert run(words) == code, screen.command


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_picture(path: Path, screens: ModuleType) -> None:
    name, _, columns = path.stem.rpartition("-")
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    root = ElementTree.fromstring(text)  # noqa: S314  ours
    [command] = [screen.command for screen in screens.SCREENS if name in screen.pictures()]
    assert root.tag == f"{SVG}svg" and root.findtext(f"{SVG}title") == command
    pieces = root.findall(f"{SVG}text")
    right = max(float(piece.attrib["x"]) + float(piece.attrib["textLength"]) for piece in pieces)
    assert right <= screens.MARGIN + int(columns) * screens.WIDE + 0.1
    assert all(re.fullmatch("#[0-9a-f]{6}", piece.attrib["fill"]) for piece in pieces)
    assert "http" not in text.replace(SVG[1:-1], ""), "nothing is fetched"
    said = "\n".join(piece.text or "" for piece in pieces)
    assert "Traceback" not in said and "note: other work" not in said
    for own in ("/tmp", "/home", "/root", "/work", "/Users", str(Path.home())):
        assert own not in said, own


def test_what_is_drawn_is_what_stands_there(screens: ModuleType) -> None:
    lines = [[screens.Piece(0, "loss", "#62c8cf", True), screens.Piece(6, "<&>", "#d7dae0", False)], []]
    root = ElementTree.fromstring(screens.picture("paddock x " + "y" * 30, lines, 20))  # noqa: S314
    pieces = [(piece.text, piece.attrib["x"], piece.attrib["y"]) for piece in root.findall(f"{SVG}text")]
    assert [text for text, _, _ in pieces] == ["$", "paddock x " + "y" * 8, "y" * 20, "y" * 2, "loss", "<&>"]
    assert pieces[4][1:] == ("14.0", str(screens.MARGIN + 3 * screens.HIGH + screens.FONT))
    assert pieces[5][1] == f"{screens.MARGIN + 6 * screens.WIDE:.1f}"


def test_pictures_of_the_browser() -> None:
    folder = ROOT / "docs" / "pictures" / "browser"
    linked = set(re.findall(r"pictures/browser/([\w-]+\.png)", PAGE.read_text(encoding="utf-8")))
    assert linked == {path.name for path in folder.glob("*")} and len(linked) == 12
    for name in linked:
        png = (folder / name).read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) < 150_000
        width, height = struct.unpack(">II", png[16:24])
        assert (width, height) == ((1280, 900) if "-wide-" in name else (390, 844))
