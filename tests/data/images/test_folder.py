"""Folders of images: their order, their index, and what is wrong with them."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from paddock.data.images import folder as module
from paddock.data.images.folder import FolderImages
from paddock.errors import DataError
from paddock.testing.samples.images import write_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "images", ("bee", "ant")) / "train"


def listed(images: FolderImages, root: Path) -> list[tuple[str, int]]:
    return [(os.path.relpath(images.name(index), root), images.label(index)) for index in range(len(images))]


def never(root: Path) -> None:
    pytest.fail("the folder was listed again")


def test_classes_are_sorted_and_files_come_by_path(root: Path, tmp_path: Path) -> None:
    (root / "ant" / "nest" / "deep").mkdir(parents=True)
    shutil.copy(root / "ant" / "0.jpg", root / "ant" / "nest" / "deep" / "A.JPEG")
    shutil.copy(root / "ant" / "0.jpg", root / "ant" / "nest" / "b.png")
    for name in ("notes.txt", ".hidden.jpg", "._0.jpg"):
        (root / "bee" / name).write_text("no image")
    (root / ".ipynb_checkpoints").mkdir()
    (root / "readme.md").write_text("no class")
    images = FolderImages(root, tmp_path / "cache")
    assert images.classes == ["ant", "bee"]
    assert listed(images, root) == [
        *((f"ant/{number}.jpg", 0) for number in range(6)),
        ("ant/nest/b.png", 0),
        ("ant/nest/deep/A.JPEG", 0),
        *((f"bee/{number}.jpg", 1) for number in range(6)),
    ]
    assert images.read(6) == (root / "ant" / "nest" / "b.png").read_bytes()


def test_names_that_are_not_utf8(root: Path, tmp_path: Path) -> None:
    strange = os.fsencode(root / "ant") + b"/\xff\xfe \xe4.jpg"
    with open(strange, "wb") as stream:
        stream.write(b"content")
    os.rename(root / "bee", os.fsencode(root) + b"/b\xe4r")
    images = FolderImages(root, tmp_path / "cache")
    assert images.classes == ["ant", "b\ufffdr"]
    assert images.read(len(images) - 1).startswith(b"\xff\xd8")
    assert b"content" in [images.read(index) for index in range(len(images))]


def test_the_index_is_kept_and_used_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed(FolderImages(root, tmp_path / "cache"), root)
    monkeypatch.setattr(module, "_list", never)
    assert listed(FolderImages(root, tmp_path / "cache"), root) == before


@pytest.mark.parametrize("change", ["file comes", "file goes", "file is renamed", "class comes", "nested file comes"])
def test_a_change_is_seen(root: Path, tmp_path: Path, change: str) -> None:
    (root / "ant" / "nest").mkdir()
    shutil.copy(root / "ant" / "0.jpg", root / "ant" / "nest" / "x.jpg")
    for folder in (root, root / "ant", root / "ant" / "nest", root / "bee"):
        os.utime(folder, (1, 1))  # long ago, so that a change gives another time however coarse the clock is
    before = listed(FolderImages(root, tmp_path / "cache"), root)
    if change == "file comes":
        shutil.copy(root / "ant" / "0.jpg", root / "ant" / "new.jpg")
    elif change == "file goes":
        (root / "bee" / "3.jpg").unlink()
    elif change == "file is renamed":
        (root / "bee" / "3.jpg").rename(root / "bee" / "33.jpg")
    elif change == "class comes":
        shutil.copytree(root / "bee", root / "cat")
    else:
        shutil.copy(root / "ant" / "0.jpg", root / "ant" / "nest" / "y.jpg")
    after = listed(FolderImages(root, tmp_path / "cache"), root)
    assert after != before
    assert {path for path, _ in after} == {os.path.relpath(path, root) for path in root.rglob("*.jpg")}


def test_the_data_is_left_as_it_is_and_a_cache_that_cannot_be_written_does_not_matter(
    root: Path, tmp_path: Path
) -> None:
    before = sorted(root.parent.rglob("*"))
    (tmp_path / "cache").write_text("a file is in the way")
    assert len(FolderImages(root, tmp_path / "cache")) == 12
    (tmp_path / "cache").unlink()
    assert len(FolderImages(root, tmp_path / "cache")) == 12
    assert sorted(root.parent.rglob("*")) == before


def test_another_process_finds_the_same_or_an_error(root: Path, tmp_path: Path) -> None:
    os.utime(root / "bee", (1, 1))
    images = FolderImages(root, tmp_path / "cache")
    sent = pickle.dumps(images)
    assert len(sent) < 1000, "the index itself does not travel"
    assert listed(pickle.loads(sent), root) == listed(images, root)  # noqa: S301 (our own)
    (root / "bee" / "3.jpg").unlink()
    with pytest.raises(DataError, match="has changed while it was in use"):
        pickle.loads(sent)  # noqa: S301


def test_an_empty_class_is_named(root: Path, tmp_path: Path) -> None:
    (root / "cat").mkdir()
    (root / "cat" / "notes.txt").write_text("to do: find cats")
    with pytest.raises(DataError, match="train/cat has no images in it"):
        FolderImages(root, tmp_path / "cache")


def test_images_without_classes(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="has no folders in it") as caught:
        FolderImages(tmp_path / "train", tmp_path / "cache")
    assert "<class>" in caught.value.fix


def test_what_is_named_like_an_image_and_is_none(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "ant" / "!.jpg")
    images = FolderImages(root, tmp_path / "cache")
    with pytest.raises(OSError, match="it is a pipe, not a file"):
        images.read(0)


def test_links_that_lead_back(root: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        os.symlink("..", root / "ant" / name)
    with pytest.raises(DataError, match="it is a link to a folder above it"):
        FolderImages(root, tmp_path / "cache")
