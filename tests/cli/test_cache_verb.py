"""`paddock cache`: what is kept, and what of it goes."""

from __future__ import annotations

import io
import json
import mmap
import os
import sys
import time
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.objects.address import Address
from paddock.objects.fetch import copied
from paddock.objects.store import Store

DAY = 86400


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a corpus of last week, a new list of images, and what somebody else put there."""
    folder = tmp_path / "cache"
    files = {
        "text-0123456789abcdef/corpus_text_document.bin": 5000,
        "text-0123456789abcdef/tokenizer.json": 1000,
        "images/photos-ab/x.arrays": 2000,
        "images/photos-ab/lock": 0,
        "products-2-2.13.0.json": 10,
        "holiday/beach.jpg": 9000,
        "thesis-final/notes.txt": 100,
    }
    for name, size in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    week_ago = time.time() - 7 * DAY
    for path in (folder / "text-0123456789abcdef").iterdir():
        os.utime(path, (week_ago, week_ago))
    return folder


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert run(["cache", *arguments, "--json"]) == 0
    return {Path(one["path"]).name: one for one in json.loads(capsys.readouterr().out)}


def test_sizes_and_ages(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "list", "--folder", str(cache))
    assert set(found) == {"text-0123456789abcdef", "images", "products-2-2.13.0.json"}
    text = found["text-0123456789abcdef"]
    assert text["bytes"] == 6000 and text["kind"] == "prepared" and 6.9 * DAY < float(str(text["age"])) < 8 * DAY
    assert run(["cache", "list", "--folder", str(cache)]) == 0
    out = capsys.readouterr().out
    assert "6.0 kB" in out and "7d00h ago" in out and "8.0 kB  3 things in" in out


def test_the_old_goes_and_the_rest_stays(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = ["clean", "--folder", str(cache), "--older-than", "3"]
    assert set(listed(capsys, *old, "--dry-run")) == {"text-0123456789abcdef"}
    assert (cache / "text-0123456789abcdef").exists()
    assert set(listed(capsys, *old, "--yes")) == {"text-0123456789abcdef"}
    assert not (cache / "text-0123456789abcdef").exists() and (cache / "images").exists()
    assert set(listed(capsys, "clean", "--folder", str(cache), "--yes")) == {"images", "products-2-2.13.0.json"}
    assert sorted(path.name for path in cache.iterdir()) == ["holiday", "thesis-final"], "what is not ours stays"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_goes_unasked(cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["cache", "clean", "--folder", str(cache)]
    assert run(command) == 2 and "add --yes, or look first with --dry-run" in capsys.readouterr().err
    for answer in ("\n", "n\n", "y\n"):
        assert (cache / "images").exists() and (cache / "text-0123456789abcdef").exists()
        screen = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        monkeypatch.setattr(sys, "stderr", screen)
        assert run(command) == 0
        assert "text-0123456789abcdef" in screen.getvalue() and "remove 8.0 kB? [y/N]" in screen.getvalue()
    assert not (cache / "images").exists() and not (cache / "text-0123456789abcdef").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(command) == 0, "where nothing would go, nobody is asked"


def test_samples_of_a_trainer_stay_unless_they_are_named(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cache / "samples-0123456789abcdef"
    folder.mkdir()
    (folder / "samples.jsonl").write_text('{"text": "a castle"}\n')
    assert listed(capsys, "list", "--folder", str(cache))[folder.name]["kind"] == "samples"
    clean = ["cache", "clean", "--folder", str(cache), "--yes"]
    assert run(clean) == 0 and folder.exists() and not (cache / "images").exists()
    assert "left alone: samples of Trainers, 1 of them" in capsys.readouterr().err
    assert run([*clean, "--samples"]) == 0 and not folder.exists()


def test_copies_from_a_store_are_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    (bucket / "corpus.bin").write_bytes(bytes(3000))
    os.utime(bucket / "corpus.bin", (0, 0))
    address = Address("file", "", str(bucket / "corpus.bin").strip("/"))
    store = Store(address)
    entry = store.find(address.key)
    assert entry is not None
    copy = copied(store, address, [entry], str(bucket).strip("/"))
    [found] = listed(capsys, "list").values()
    assert found["path"] == str(copy) and found["kind"] == "fetched" and found["bytes"] == 3000
    assert float(str(found["age"])) < DAY, "what counts is when it came"
    assert set(listed(capsys, "clean", "--older-than", "1", "--yes")) == set()
    assert set(listed(capsys, "clean", "--yes")) == {copy.name} and not copy.exists()


def test_what_is_in_use_stays(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("nobody says here what is in use")
    file = cache / "text-0123456789abcdef" / "corpus_text_document.bin"
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ):
        assert "text-0123456789abcdef" not in listed(capsys, "clean", "--folder", str(cache), "--yes")
        assert file.exists()


def test_an_empty_place_and_a_wrong_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "list", "--folder", str(tmp_path / "nowhere")) == {}
    assert run(["cache", "clean", "--older-than", "-1"]) == 2
