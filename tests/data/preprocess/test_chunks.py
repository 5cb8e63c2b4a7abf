"""Inputs: which files are read, in which order, and how they are cut."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.preprocess import chunks as cutting
from paddock.data.preprocess import inputs as module
from paddock.data.preprocess.chunks import Position, read_chunks
from paddock.data.preprocess.inputs import check_readable, find_inputs, stat_input
from paddock.errors import ConfigError, DataError, MachineError


def test_patterns_and_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt", "odd[1].jsonl"):
        (tmp_path / name).write_text("x")
    (tmp_path / "d.jsonl").mkdir()
    found = find_inputs([str(tmp_path / "c.txt"), str(tmp_path / "[ab].jsonl"), str(tmp_path / "odd[1].jsonl")])
    assert [Path(source.path).name for source in found] == ["c.txt", "a.jsonl", "b.jsonl", "odd[1].jsonl"]
    assert [source.size for source in found] == [1, 1, 1, 1]
    assert find_inputs(["-"])[0].is_stream


@pytest.mark.parametrize(
    ("patterns", "error", "message"),
    [
        ([], ConfigError, "names no file"),
        (["nowhere.jsonl"], DataError, "cannot read --input nowhere.jsonl(.|\n)*No such file"),
        (["nowhere-*.jsonl"], DataError, r"nowhere-\*.jsonl matches no file"),
        (["."], DataError, r"is a folder(.|\n)*--input '\./\*\.jsonl'"),
        (["a.jsonl", "./a.jsonl"], ConfigError, "twice"),
        (["-", "-"], ConfigError, "twice"),
    ],
)
def test_what_cannot_be_read(
    patterns: list[str], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text("{}\n")
    with pytest.raises(error, match=message):
        find_inputs(patterns)


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(st.binary(max_size=60).map(lambda data: data.replace(b"x", b"\n")), min_size=1, max_size=4),
    size=st.integers(1, 30),
    begin=st.integers(0, 200),
    packed=st.booleans(),
)
def test_chunks_are_whole_lines_from_any_position(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], size: int, begin: int, packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("inputs")
    paths = [folder / f"{number}.{'gz' if packed else 'jsonl'}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(gzip.compress(content) if packed else content)
    inputs = [stat_input(str(path)) for path in paths]
    chunks = list(read_chunks(inputs, Position(), size))
    for number, content in enumerate(contents):
        assert b"".join(chunk.data for chunk in chunks if chunk.begin.input == number) == content
    for chunk in chunks:
        before = contents[chunk.begin.input][: chunk.begin.offset]
        assert chunk.begin.line == before.count(b"\n") + 1 and (not before or before.endswith(b"\n"))
    rest = chunks[begin % (len(chunks) or 1) :]
    if rest:
        assert list(read_chunks(inputs, rest[0].begin, size)) == rest


def test_a_truncated_gz_says_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = b"".join(b'{"text": "%d"}\n' % number for number in range(20_000))
    path.write_bytes(gzip.compress(lines)[:-5000])
    read = 0
    with pytest.raises(DataError, match=r"a\.jsonl\.gz is truncated(.|\n)*after [\d,]+ whole lines") as caught:
        for chunk in read_chunks([stat_input(str(path))], Position(), 10_000):
            read += chunk.data.count(b"\n")
    assert f"after {read:,} whole lines" in str(caught.value) and read > 1000


@pytest.mark.parametrize("content", [b"no gzip at all\n" * 10, gzip.compress(os.urandom(10_000))[:2000] + bytes(9000)])
def test_a_damaged_gz(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.gz (cannot be read to its end|is truncated)"):
        list(read_chunks([stat_input(str(path))], Position(), 1000))


def test_several_members_of_a_gz(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert b"".join(chunk.data for chunk in read_chunks([stat_input(str(path))], Position(), 1000)) == b"one\ntwo\n"


def test_a_line_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "LONGEST", 5000)
    path = tmp_path / "a.json"
    path.write_bytes(b"short\n" + b"x" * 6000)
    with pytest.raises(DataError, match=r"a\.json, line 2: the line has more than 5\.0 kB"):
        list(read_chunks([stat_input(str(path))], Position(), 1000))


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    source = stat_input(str(path))
    assert source.is_stream
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\ntwo\n"))
    writer.start()
    assert b"".join(chunk.data for chunk in read_chunks([source], Position(), 1000)) == b"one\ntwo\n"
    writer.join()


def test_waiting_for_a_pipe_can_be_stopped(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    silent = os.open(path, os.O_RDWR)
    with pytest.raises(KeyboardInterrupt):
        list(read_chunks([stat_input(str(path))], Position(), 1000, stopped=lambda: True))
    os.close(silent)


def test_zst_without_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    (tmp_path / "a.zst").write_bytes(b"")
    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(MachineError, match=r"needs the package zstandard(.|\n)*pip install zstandard"):
        check_readable(stat_input(str(tmp_path / "a.zst")))


def test_zst(tmp_path: Path) -> None:
    zstd = pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    lines = b"".join(b'{"text": "%d"}\n' % number for number in range(20_000))
    packed = zstd.ZstdCompressor().compress(lines)
    path = tmp_path / "a.zst"
    path.write_bytes(packed + packed)
    chunks = list(read_chunks([stat_input(str(path))], Position(), 10_000))
    assert b"".join(chunk.data for chunk in chunks) == lines + lines
    rest = list(read_chunks([stat_input(str(path))], chunks[30].begin, 10_000))
    assert b"".join(chunk.data for chunk in rest) == b"".join(chunk.data for chunk in chunks[30:])
    assert rest[-1].end == chunks[-1].end and rest[0].begin == chunks[30].begin
    path.write_bytes(packed + packed[:-100])
    with pytest.raises(DataError, match=r"a\.zst is truncated"):
        list(read_chunks([stat_input(str(path))], Position(), 10_000))
    path.write_bytes(packed[:1000] + bytes(1000) + packed[2000:])
    with pytest.raises(DataError, match=r"a\.zst cannot be read to its end"):
        list(read_chunks([stat_input(str(path))], Position(), 10_000))
