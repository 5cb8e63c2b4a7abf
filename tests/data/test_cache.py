"""Cached arrays: built once, never stale, never half, and never in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paddock.data.cache import KEPT, ArrayCache, Arrays, build_folder, cache_beside, fingerprint
from paddock.testing.samples.corpora import write_corpus

KEY = {"kind": "test", "number": 1}


def arrays_of(seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    return {
        "order": generator.integers(0, 100, 1001, dtype=np.int32),
        "begins": generator.integers(0, 2**40, (77, 3)),
        "none": np.zeros(0, np.int64),
    }


def same(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and (one[name] == other[name]).all()
        for name in one
    )


def never() -> Arrays:
    pytest.fail("built again")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.arrays"))


def test_built_once_and_then_mapped(tmp_path: Path) -> None:
    cache = ArrayCache((tmp_path / "one", tmp_path / "two"), "corpus")
    assert same(cache.get(KEY, lambda: arrays_of(0)), arrays_of(0))
    again = cache.get(KEY, never)
    assert same(again, arrays_of(0)) and not again["order"].flags.writeable
    assert len(files(tmp_path / "one")) == 1 and not (tmp_path / "two").exists()
    assert not list((tmp_path / "one").glob(".*"))


@pytest.mark.parametrize(
    ("key", "content"), [({**KEY, "number": 2}, "corpus"), (KEY, "another corpus")], ids=["key", "fingerprint"]
)
def test_other_arrays_have_another_file(tmp_path: Path, key: dict[str, object], content: str) -> None:
    ArrayCache((tmp_path,), "corpus").get(KEY, lambda: arrays_of(0))
    assert same(ArrayCache((tmp_path,), content).get(key, lambda: arrays_of(1)), arrays_of(1))
    assert len(files(tmp_path)) == 2


def test_a_file_with_another_key_is_not_trusted(tmp_path: Path) -> None:
    cache = ArrayCache((tmp_path,), "corpus")
    cache.get(KEY, lambda: arrays_of(0))
    (mine,) = files(tmp_path)
    cache.get({"kind": "other"}, lambda: arrays_of(1))
    (other,) = set(files(tmp_path)) - {mine}
    os.replace(other, mine)
    assert same(cache.get(KEY, lambda: arrays_of(2)), arrays_of(2))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "no header": lambda content: content[:100],
    "header only": lambda content: content[:4096],
    "one byte short": lambda content: content[:-1],
    "foreign": lambda content: os.urandom(len(content)),
    "zeros": lambda content: content[:4096] + bytes(len(content) - 4096),
    "one bit": lambda content: content[:5000] + bytes([content[5000] ^ 4]) + content[5001:],
    "a list": lambda content: signed(b"[]") + content[4096:],
    "nested without end": lambda content: signed(b"[" * 4000) + content[4096:],
    "other shapes": lambda content: signed(content[:4087].replace(b"[1001]", b"[9999]")) + content[4096:],
    "shapes that overflow": lambda content: (
        signed(content[:4087].replace(b"[77, 3]", b"[%d, %d]" % (2**62, 2**62))) + content[4096:]
    ),
    "shapes below zero": lambda content: signed(content[:4087].replace(b"[77, 3]", b"[-77, -3]")) + content[4096:],
    "objects": lambda content: signed(content[:4087].replace(b'"<i4"', b'"|O8"')) + content[4096:],
    "no arrays": lambda content: signed(b'{"key": {}}') + content[4096:],
    "unsigned: other types": lambda content: content.replace(b'"<i4"', b'"<u4"'),
    "unsigned: turned": lambda content: content.replace(b"[77, 3]", b"[3, 77]"),
    "two words change places": lambda content: (
        content[:4096] + content[4104:4112] + content[4096:4104] + content[4112:]
    ),
    "two bits of the same weight": lambda content: flipped(flipped(content, 4096), 4104),
}


def signed(header: bytes) -> bytes:
    """A header with the checksum that belongs to it."""
    header = header.rstrip().ljust(4087)
    return header + b"%08x\n" % zlib.crc32(header)


def flipped(content: bytes, place: int) -> bytes:
    """One bit less or more, so that another such change makes up for it in a sum."""
    bit = 1 if place == 4096 else -1
    return content[:place] + bytes([(content[place] + bit) % 256]) + content[place + 1 :]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_built_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = ArrayCache((tmp_path,), "corpus")
    cache.get(KEY, lambda: arrays_of(0))
    (path,) = files(tmp_path)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content
    assert same(cache.get(KEY, lambda: arrays_of(1)), arrays_of(1))
    assert same(cache.get(KEY, never), arrays_of(1))


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "file" / "folder"
    cache = ArrayCache((blocked, tmp_path / "other"), "corpus")
    assert same(cache.get(KEY, lambda: arrays_of(0)), arrays_of(0))
    assert same(cache.get(KEY, never), arrays_of(0)) and len(files(tmp_path / "other")) == 1
    nowhere = ArrayCache((blocked,), "corpus")
    assert same(nowhere.get(KEY, lambda: arrays_of(2)), arrays_of(2))


def test_a_folder_that_only_others_can_write_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArrayCache((tmp_path / "data", tmp_path / "cache"), "corpus")
    cache.get(KEY, lambda: arrays_of(0))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert same(cache.get(KEY, never), arrays_of(0))


SCRIPT = """
import os, resource, sys, time
from pathlib import Path
import numpy as np
from paddock.data.cache import ArrayCache

folder, how = Path(sys.argv[1]), sys.argv[2]

def build():
    with open(folder / "built", "a") as stream:
        stream.write("x")
    if how == "hang":
        (folder / "cache" / ".half.1.partial").write_bytes(b"half")
        print("building", flush=True)
        sys.stdin.read()
    time.sleep(0.3)
    return {"values": np.arange(100_000)}

if how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
if how == "together":
    print("ready", flush=True)
    sys.stdin.readline()
print(int(ArrayCache((folder / "cache",), "corpus").get({}, build)["values"].sum()), flush=True)
"""


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(folder), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_of_many_processes_one_builds(tmp_path: Path) -> None:
    processes = [start(tmp_path, "together") for _ in range(4)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    results = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        results.append(process.communicate()[0].strip())
    assert results == [str(sum(range(100_000)))] * 4
    assert (tmp_path / "built").read_text() == "x"


def test_a_builder_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    process = start(tmp_path, "hang")
    assert process.stdout is not None and process.stdout.readline() == "building\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    cache = ArrayCache((tmp_path / "cache",), "corpus")
    assert same(cache.get({}, lambda: arrays_of(0)), arrays_of(0))
    assert not list((tmp_path / "cache").glob(".*"))  # what it left half written is gone


def test_a_builder_that_takes_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(tmp_path, "hang")
    try:
        assert process.stdout is not None and process.stdout.readline() == "building\n"
        monkeypatch.setattr("paddock.data.cache.PATIENCE", 0.2)
        cache = ArrayCache((tmp_path / "cache",), "corpus")
        assert same(cache.get({}, lambda: arrays_of(0)), arrays_of(0))
        assert not files(tmp_path / "cache")
    finally:
        process.kill()
        process.communicate()


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands in for it: writing fails in the middle."""
    output, _ = start(tmp_path, "full").communicate()
    assert output.strip() == str(sum(range(100_000)))
    assert not files(tmp_path / "cache") and not list((tmp_path / "cache").glob(".*"))


def test_files_do_not_pile_up_and_those_in_use_stay(tmp_path: Path) -> None:
    cache = ArrayCache((tmp_path,), "corpus")
    used = cache.get({"number": 0}, lambda: arrays_of(0))
    for number in range(1, KEPT + 4):
        cache.get({"number": number}, lambda number=number: arrays_of(number))  # type: ignore[misc]
        for age, path in enumerate(files(tmp_path)):  # files made within one tick of the clock have no order
            os.utime(path, ns=(0, path.stat().st_mtime_ns - age))
    assert len(files(tmp_path)) == KEPT + 1
    assert same(cache.get({"number": 0}, never), used)
    del used
    cache.get({"number": 99}, lambda: arrays_of(99))
    assert len(files(tmp_path)) == KEPT


def test_a_changed_corpus_has_another_fingerprint(tmp_path: Path) -> None:
    prefix = tmp_path / "corpus"
    documents = [[3, 4], [5], [1, 1, 1]] * 100
    before = fingerprint(write_corpus(prefix, documents))
    status = os.stat(f"{prefix}.idx")
    for changed in (
        [[4, 3], *documents[1:]],  # the same sum, the same number of everything
        [*documents[:-1], [1, 2, 0]],
        [[3], [4, 5], *documents[2:]],
    ):
        corpus = write_corpus(prefix, changed)
        os.utime(f"{prefix}.idx", ns=(status.st_atime_ns, status.st_mtime_ns))
        assert fingerprint(corpus) != before
    corpus = write_corpus(prefix, documents)
    os.utime(f"{prefix}.idx", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint(corpus) == before
    os.utime(f"{prefix}.idx", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert fingerprint(corpus) != before


def test_a_cache_lies_beside_its_corpus(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[3]])
    cache = cache_beside(corpus, tmp_path / "fallback")
    assert cache.folders[0] == tmp_path / "corpus.paddock"
    assert cache.folders[1].parent == tmp_path / "fallback" / "arrays"


def test_a_folder_is_built_by_one_and_waited_for_by_others(tmp_path: Path) -> None:
    folder, begun, go_on = tmp_path / "cache" / "folder", threading.Event(), threading.Event()
    others: list[str] = []

    def build(partial: Path) -> None:
        begun.set()
        go_on.wait()
        (partial / "file").write_text("whole")

    def wait() -> None:
        build_folder(folder, lambda _: pytest.fail("built twice"))
        others.append((folder / "file").read_text())

    first = threading.Thread(target=build_folder, args=(folder, build))
    first.start()
    begun.wait()
    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    go_on.set()
    for thread in [first, *waiting]:
        thread.join()
    assert others == ["whole"] * 3
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]


def test_a_folder_that_could_not_be_built_is_built_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with pytest.raises(RuntimeError, match="no"):
        build_folder(folder, lambda _: (_ for _ in ()).throw(RuntimeError("no")))
    assert not list(tmp_path.iterdir())
    build_folder(folder, lambda partial: None)
    assert folder.is_dir()
