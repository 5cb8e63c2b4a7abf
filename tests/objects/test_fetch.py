"""Copies of objects: right, made once, gone on with where they broke off, and never half of one or a mixture of two."""

from __future__ import annotations

import random
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddock.errors import ConfigError, DataError, MachineError, UserError
from paddock.files import user_cache
from paddock.objects import fetch, store
from paddock.objects.address import Address
from paddock.objects.fetch import copied, local_path
from paddock.objects.store import Store
from paddock.testing.object_server import Fault, ObjectServer

CONTENT = random.Random(0).randbytes(10_000)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten ranges make an object."""
    monkeypatch.setattr(fetch, "PART", 1000)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails once has failed."""
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    monkeypatch.setattr(store, "RETRIES", 0)


def contents(server: ObjectServer) -> list[str]:
    """What was read of objects."""
    return [key for method, key in server.requests if method == "GET" and key]


def test_an_object_a_folder_or_the_files_of_a_prefix(any_store: str, tmp_path: Path) -> None:
    files = {"data/corpus.bin": CONTENT, "data/corpus.idx": b"index", "data/corpus.tokenizer/vocab.json": b"{}"}
    files |= {"data/corpuscle.bin": b"no", "other/a.txt": b"a", "other/deep/b.txt": b"", "data/": b""}
    target = Store(Address.parse("s3://bucket"))
    for key, content in files.items():
        target.write_bytes(key, content)
    assert local_path("s3://bucket/other/a.txt").read_bytes() == b"a"
    other = local_path("s3://bucket/other")
    assert sorted(path.relative_to(other).as_posix() for path in other.rglob("*.*")) == ["a.txt", "deep/b.txt"]
    prefix = local_path("s3://bucket/data/corpus")
    assert prefix.name == "corpus"
    assert Path(f"{prefix}.bin").read_bytes() == CONTENT
    assert sorted(path.name for path in prefix.parent.iterdir()) == ["corpus.bin", "corpus.idx", "corpus.tokenizer"]
    with pytest.raises(DataError, match="there is nothing at s3://bucket/nowhere"):
        local_path("s3://bucket/nowhere")


def test_what_is_written_is_what_is_read(any_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(large := random.Random(1).randbytes(12 << 20))  # two parts
    target = Store(Address.parse("s3://bucket"))
    target.write("folder/large", tmp_path / "large")
    entry = target.find("folder/large")
    assert entry is not None and entry.size == len(large) and entry.etag.strip('"').endswith("-2")
    assert target.has_sum_of(entry, tmp_path / "large")
    assert local_path("s3://bucket/folder/large").read_bytes() == large
    target.delete(["folder/large", "folder/never"])
    assert target.find("folder/large") is None


def test_paths_stay_paths_and_files_are_read_where_they_are(tmp_path: Path) -> None:
    assert local_path("data/corpus") == Path("data/corpus")
    (tmp_path / "a.txt").write_text("a")
    assert local_path(f"file://{tmp_path}/a.txt") == tmp_path / "a.txt"


def test_a_copy_is_made_once(server: ObjectServer) -> None:
    server.put("bucket", "folder/a", CONTENT)
    first = local_path("s3://bucket/folder")
    before = len(server.requests)
    assert local_path("s3://bucket/folder") == first
    assert len(server.requests) == before, "this process knows which version it goes by"
    fetch._copy_of.cache_clear()
    assert local_path("s3://bucket/folder") == first
    assert contents(server) == ["folder/a"], "another process asks what there is, and no more"
    fetch._copy_of.cache_clear()
    server.put("bucket", "folder/a", b"new")
    assert (local_path("s3://bucket/folder") / "a").read_bytes() == b"new"
    assert (first / "a").read_bytes() == CONTENT


def test_of_many_that_want_it_at_once_one_fetches(server: ObjectServer) -> None:
    server.put("bucket", "folder/a", CONTENT)
    address, looks = Address.parse("s3://bucket/folder"), Store(Address.parse("s3://bucket/folder"))
    entries = looks.below("folder")
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(copied, Store(address), address, entries, "folder") for _ in range(8)]
        folders = {job.result() for job in jobs}
    assert len(folders) == 1 and (folders.pop() / "a").read_bytes() == CONTENT
    assert contents(server) == ["folder/a"]


def test_what_broke_off_goes_on_from_there(server: ObjectServer, small_parts: None, no_patience: None) -> None:
    server.put("bucket", "folder/a", CONTENT)
    server.fault = lambda number, method, key: "reset" if len(contents(server)) > 6 else None
    with pytest.raises(MachineError, match="cannot be reached"):
        local_path("s3://bucket/folder/a")
    asked = len(contents(server))
    assert not list((user_cache() / "objects").glob("a-*")), "half of it has no name yet"
    server.fault = lambda number, method, key: None
    assert local_path("s3://bucket/folder/a").read_bytes() == CONTENT
    assert len(contents(server)) - asked == 4


def test_what_broke_off_of_another_version_is_not_gone_on_with(
    server: ObjectServer, small_parts: None, no_patience: None, tmp_path: Path
) -> None:
    server.encrypts = True  # the store's word says nothing of the content
    opened, folder = Store(Address.parse("s3://bucket/folder")), tmp_path / "run"
    server.put("bucket", "folder/a", CONTENT)
    server.fault = lambda number, method, key: "reset" if len(contents(server)) > 6 else None
    with pytest.raises(MachineError):
        fetch.fetch(opened, opened.below("folder"), "folder", folder, "s3://bucket/folder")
    server.fault = lambda number, method, key: None
    server.put("bucket", "folder/a", CONTENT[::-1])
    fetch.fetch(opened, opened.below("folder"), "folder", folder, "s3://bucket/folder")
    assert (folder / "a").read_bytes() == CONTENT[::-1]
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing is left of the other one"


@pytest.mark.parametrize("kind", ["error", "reset", "truncate"])
def test_every_third_request_fails(server: ObjectServer, small_parts: None, kind: Fault) -> None:
    for number in range(5):
        server.put("bucket", f"folder/{number}", CONTENT[number:])
    server.fault = lambda number, method, key: kind if number % 3 == 0 and (kind != "truncate" or key) else None
    folder = local_path("s3://bucket/folder")
    for number in range(5):
        assert (folder / str(number)).read_bytes() == CONTENT[number:]


def test_what_arrives_damaged_is_fetched_again(server: ObjectServer) -> None:
    server.put("bucket", "a", CONTENT)
    server.fault = lambda number, method, key: "garble" if contents(server) == ["a"] else None
    assert local_path("s3://bucket/a").read_bytes() == CONTENT


def test_what_always_arrives_damaged_is_an_error(server: ObjectServer, small_parts: None) -> None:
    server.put("bucket", "a", CONTENT)
    flips = iter(range(10**6))
    server.fault = lambda number, method, key: "garble" if key == "a" and next(flips) % 3 else None
    with pytest.raises(DataError, match="s3://bucket/a arrives damaged"):
        local_path("s3://bucket/a")
    assert not list((user_cache() / "objects").glob("a-*"))


def test_an_etag_that_is_no_sum_is_no_damage(server: ObjectServer, tmp_path: Path) -> None:
    server.encrypts = True
    (tmp_path / "large").write_bytes(random.Random(2).randbytes(12 << 20))
    target = Store(Address.parse("s3://bucket"))
    target.write("large", tmp_path / "large")
    server.put("bucket", "a", CONTENT)
    assert local_path("s3://bucket/a").read_bytes() == CONTENT


def test_two_versions_are_never_mixed(server: ObjectServer, small_parts: None) -> None:
    server.put("bucket", "a", CONTENT)

    def replace(number: int, method: str, key: str) -> None:
        if len(contents(server)) == 5:
            server.put("bucket", "a", CONTENT[::-1])

    server.fault = replace
    with pytest.raises(DataError, match="s3://bucket/a was replaced while it was read"):
        local_path("s3://bucket/a")
    assert local_path("s3://bucket/a").read_bytes() == CONTENT[::-1]


def test_an_object_that_goes_while_it_is_read(server: ObjectServer, small_parts: None) -> None:
    server.put("bucket", "a", CONTENT)

    def remove(number: int, method: str, key: str) -> None:
        if len(contents(server)) == 5:
            server.buckets["bucket"].pop("a", None)

    server.fault = remove
    with pytest.raises(DataError, match="was removed while it was read"):
        local_path("s3://bucket/a")


@pytest.mark.parametrize(
    "text, setting, kind, words",
    [
        ("s3://elsewhere/a", {}, DataError, "there is no bucket elsewhere"),
        ("s3://bucket/a", {"AWS_ACCESS_KEY_ID": "stranger"}, MachineError, "the store refuses"),
        ("s3://bucket/a", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, MachineError, "cannot be reached at http"),
        ("s3://bucket/a", {"AWS_ENDPOINT_URL": "http://"}, ConfigError, "names no machine"),
    ],
)
def test_stores_that_cannot_be_read(
    server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    no_patience: None,
    text: str,
    setting: dict[str, str],
    kind: type[UserError],
    words: str,
) -> None:
    server.put("bucket", "a", CONTENT)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind, match=words) as refused:
        local_path(text)
    assert refused.value.fix
    assert "a secret of tests" not in str(refused.value)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"] + ["obstore", "obstore.store"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MachineError, match=r"pip install 'paddock\[objects\]'"):
        local_path("s3://bucket/a")


def test_a_disk_without_room_is_noticed_before_anything_is_fetched(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("bucket", "a", CONTENT)
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 5000}))
    with pytest.raises(MachineError, match="does not fit into"):
        local_path("s3://bucket/a")
    assert not contents(server)


def test_a_disk_that_fills_up_meanwhile(server: ObjectServer, small_parts: None) -> None:
    server.put("bucket", "a", CONTENT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(MachineError, match="cannot write"):
            local_path("s3://bucket/a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    asked = len(contents(server))
    assert local_path("s3://bucket/a").read_bytes() == CONTENT
    assert len(contents(server)) - asked == 5


@pytest.mark.parametrize("key", ["folder/../../outside", "folder//b", "folder/./b"])
def test_names_that_lead_elsewhere_are_refused(server: ObjectServer, key: str) -> None:
    server.put("bucket", key, b"x")
    server.put("bucket", "folder/a", b"a")
    with pytest.raises(UserError):
        local_path("s3://bucket/folder")
    assert not list(user_cache().rglob("outside"))
