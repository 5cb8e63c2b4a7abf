"""Tar files of images, as webdataset lays them out."""

from __future__ import annotations

import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from paddock.data.images import shards as module
from paddock.data.images.shards import OPEN_AT_ONCE, ShardImages, shards_of
from paddock.errors import DataError
from paddock.testing.samples.images import encoded, picture, write_shard


def images_of(*paths: Path, cache: Path) -> ShardImages:
    return ShardImages(paths, cache / "cache")


def test_images_are_read_where_they_lie(tmp_path: Path) -> None:
    contents = [encoded(picture(seed)) for seed in range(4)]
    long_name = "n" * 150  # more than a plain tar header holds
    write_shard(
        tmp_path / "0.tar", {"a.jpg": contents[0], "a.cls": b"2", "sub/a.cls": b"0\n", "sub/a.jpg": contents[1]}
    )
    write_shard(
        tmp_path / "1.tar",
        {
            f"{long_name}.json": json.dumps({"label": 1, "url": "…"}).encode(),
            f"{long_name}.PNG": contents[2],
            "b.v1.jpg": contents[3],
            "b.txt": b"a caption",
            "b.cls": b"1",
        },
    )
    images = images_of(tmp_path / "0.tar", tmp_path / "1.tar", cache=tmp_path)
    assert [images.read(index) for index in range(len(images))] == contents
    assert [images.label(index) for index in range(4)] == [2, 0, 1, 1]
    assert images.classes == ["0", "1", "2"]
    assert images.name(1) == f"sub/a.jpg in {tmp_path}/0.tar"


def test_labels_may_be_names(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"1.jpg": b"x", "1.cls": b"bee", "2.jpg": b"y", "2.json": b'{"cls": "ant"}'})
    images = images_of(tmp_path / "0.tar", cache=tmp_path)
    assert images.classes == ["ant", "bee"]
    assert [images.label(index) for index in range(2)] == [1, 0]


@pytest.mark.parametrize("labels", [(b"1", b"0"), (b"bee", b"wasp")])
def test_a_list_of_names_beside_the_shards(tmp_path: Path, labels: tuple[bytes, bytes]) -> None:
    (tmp_path / "classes.txt").write_text("wasp\nbee\nant\n")
    write_shard(tmp_path / "train" / "0.tar", {"1.jpg": b"x", "1.cls": labels[0], "2.jpg": b"y", "2.cls": labels[1]})
    images = images_of(tmp_path / "train" / "0.tar", cache=tmp_path)
    assert images.classes == ["wasp", "bee", "ant"]
    assert [images.label(index) for index in range(2)] == [1, 0]


def test_the_parts_are_folders_or_are_in_the_names(tmp_path: Path) -> None:
    for name in ("imagenet-train-1.tar", "imagenet-train-0.tar", "imagenet-val-0.tar"):
        (tmp_path / name).touch()
    assert [path.name for path in shards_of(tmp_path, "train")] == ["imagenet-train-0.tar", "imagenet-train-1.tar"]
    assert [path.name for path in shards_of(tmp_path, "val")] == ["imagenet-val-0.tar"]
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "00.tar").touch()
    assert [path.name for path in shards_of(tmp_path, "val")] == ["00.tar"]


def test_the_index_is_kept_until_a_shard_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard(tmp_path / "0.tar", {"a.jpg": b"one", "a.cls": b"0"})
    images_of(tmp_path / "0.tar", cache=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_list", lambda *arguments: pytest.fail("the shards were read again"))
        assert images_of(tmp_path / "0.tar", cache=tmp_path).read(0) == b"one"
    write_shard(tmp_path / "0.tar", {"b.jpg": b"other", "b.cls": b"0"})
    os.utime(tmp_path / "0.tar", (1, 1))
    assert images_of(tmp_path / "0.tar", cache=tmp_path).read(0) == b"other"


def test_more_shards_than_may_be_open_and_another_process(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:03}.tar" for number in range(OPEN_AT_ONCE + 5)]
    for number, path in enumerate(paths):
        write_shard(path, {"a.jpg": str(number).encode(), "a.cls": b"0"})
    images = images_of(*paths, cache=tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    assert [images.read(index) for index in range(len(paths))] == [str(number).encode() for number in range(len(paths))]
    assert len(os.listdir("/proc/self/fd")) - before == OPEN_AT_ONCE
    again = pickle.loads(pickle.dumps(images))  # noqa: S301 (our own)
    assert again.read(3) == b"3"


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"a.jpg": b"x"}, "a.jpg in .*0.tar has no label"),
        ({"a.jpg": b"x", "a.json": b'{"text": "no label"}'}, "has no label"),
        ({"a.jpg": b"x", "a.json": b"{"}, "a.json in .*0.tar is not valid JSON"),
        ({"a.txt": b"x", "a.cls": b"0"}, "there are no images in"),
        ({"a.jpg": b"x", "a.json": b"[1]"}, "does not have the expected form"),
        ({"a.jpg": b"x", "a.json": b'{"label": [1]}'}, "does not have the expected form"),
        ({"a.jpg": b"x", "a.json": b"[" * 100_000}, "nested too deeply"),
        ({"a.jpg": b"x", "a.cls": b"\xff"}, "a.cls in .*0.tar cannot be understood"),
        ({"a.jpg": b"x", "a.cls": b"300000000"}, "a label is 300000000"),
        ({"a.jpg": b"x", "a.cls": bytes(2**20 + 1)}, "a header or label of 1048577 bytes"),
    ],
)
def test_shards_that_lack_something(tmp_path: Path, members: dict[str, bytes], problem: str) -> None:
    write_shard(tmp_path / "0.tar", members)
    with pytest.raises(DataError, match=problem):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_label_that_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("ant\nbee\n")
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x", "a.cls": b"2"})
    with pytest.raises(DataError, match="a label is 2, and classes.txt has 2 names"):
        images_of(tmp_path / "0.tar", cache=tmp_path)
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x", "a.cls": b"cat"})
    with pytest.raises(DataError, match='a label is "cat"'):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_label_of_thousands_of_digits_is_a_name(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x", "a.cls": b"9" * 5000})
    assert images_of(tmp_path / "0.tar", cache=tmp_path).classes == ["9" * 5000]


@pytest.mark.parametrize(
    ("names", "problem"),
    [(b"\xff\xfe", "is not text in UTF-8"), (b"ant\nbee\nant\n", "has a name twice"), (None, "it is a pipe")],
)
def test_a_list_of_names_that_is_none(tmp_path: Path, names: bytes | None, problem: str) -> None:
    os.mkfifo(tmp_path / "classes.txt") if names is None else (tmp_path / "classes.txt").write_bytes(names)
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x", "a.cls": b"bee"})
    with pytest.raises(DataError, match=problem):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def crafted(path: Path, **fields: Any) -> None:
    """A tar file whose image has other fields than `write_shard` would give it, and its label behind it."""
    members = []
    for name, content in (("a.jpg", b"x" * 700), ("a.cls", b"0")):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        for field, value in (fields if name == "a.jpg" else {}).items():
            setattr(entry, field, value)
        members.append(entry.tobuf(tarfile.PAX_FORMAT) + content.ljust(1024 if len(content) > 512 else 512, b"\0"))
    path.write_bytes(b"".join(members) + bytes(1024))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"size": 2**30}, "a.jpg is said to have 1073741824 bytes|unexpected end"),
        ({"pax_headers": {"size": str(2**30)}}, "a.jpg is said to have 1073741824 bytes|unexpected end"),
        ({"pax_headers": {"size": "-2000"}}, "0.tar cannot be read"),
        ({"pax_headers": {"size": "-1024"}}, "0.tar cannot be read"),
        ({"pax_headers": {"size": "9" * 5000}}, "0.tar cannot be read"),
        ({"pax_headers": {"comment": "x" * 2**21}}, "a header or label of"),
        ({"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}}, "cannot be"),
        ({"pax_headers": {"GNU.sparse.map": "0,700", "GNU.sparse.size": str(2**40)}}, "a.jpg is a sparse file"),
        ({"pax_headers": {"GNU.sparse.map": "x", "GNU.sparse.size": "x"}}, "0.tar cannot be read"),
        ({"type": tarfile.GNUTYPE_LONGNAME, "size": 2**40}, "0.tar cannot be read"),
        ({"type": tarfile.XHDTYPE, "size": 2**62}, "0.tar cannot be read"),
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/hostname", "size": 0}, "is a link or a device"),
        ({"type": tarfile.LNKTYPE, "linkname": "b.jpg", "size": 0}, "is a link or a device"),
        ({"type": tarfile.FIFOTYPE, "size": 0}, "is a link or a device"),
        ({"type": tarfile.CHRTYPE, "size": 0}, "is a link or a device"),
        ({"type": tarfile.DIRTYPE, "size": 0}, "is a folder, not a file|is no header"),
    ],
)
def test_a_crafted_tar_file(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    crafted(tmp_path / "0.tar", **fields)
    with pytest.raises(DataError, match=problem):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_sparse_label_of_three_gigabytes(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x"})
    label = tarfile.TarInfo("a.cls")
    label.size = 3 * 2**30
    with open(tmp_path / "0.tar", "r+b") as stream:
        stream.seek(1024)
        stream.write(label.tobuf())
        stream.truncate(1536 + label.size + 1024)
    with pytest.raises(DataError, match="a header or label of 3221225472 bytes"):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_damaged_header_is_not_the_end(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.jpg": b"x", "a.cls": b"0", "b.jpg": b"y", "b.cls": b"1"})
    content = bytearray((tmp_path / "0.tar").read_bytes())
    content[2048 + 148] ^= 1  # in the sum of the third header
    (tmp_path / "0.tar").write_bytes(content)
    with pytest.raises(DataError, match="is no header of a member"):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_many_headers_before_one_member(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 0
    (tmp_path / "0.tar").write_bytes(entry.tobuf() * 5000)
    with pytest.raises(DataError, match="0.tar cannot be read"):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_shard_that_is_cut_off_later(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.cls": b"0", "a.jpg": bytes(5000)})
    images = images_of(tmp_path / "0.tar", cache=tmp_path)
    os.truncate(tmp_path / "0.tar", 3000)
    with pytest.raises(DataError, match="the tar file ends after"):
        images.read(0)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.tar")
    (tmp_path / "1.tar").mkdir()
    os.symlink("nowhere", tmp_path / "2.tar")
    for number, problem in enumerate(("it is a pipe", "it is a folder", "No such file")):
        with pytest.raises(DataError, match=problem):
            images_of(tmp_path / f"{number}.tar", cache=tmp_path)


def test_what_is_no_tar_file(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(b"to be or not to be" * 100)
    with pytest.raises(DataError, match="0.tar cannot be read"):
        images_of(tmp_path / "0.tar", cache=tmp_path)


def test_a_truncated_tar_file(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.jpg": bytes(5000), "a.cls": b"0"})
    os.truncate(tmp_path / "0.tar", 3000)
    with pytest.raises(DataError, match="0.tar"):
        images_of(tmp_path / "0.tar", cache=tmp_path)
