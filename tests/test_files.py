"""Temporary names: nobody can guess or redirect them, and what the dead leave goes with the next one who writes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock import files
from paddock.data.indexed.writer import IndexedWriter
from paddock.errors import MachineError
from paddock.files import atomic_write, replace_link, scratch_folder, shell_word, sweep, temporary_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_temporary_name_is_another_each_time(tmp_path: Path) -> None:
    seen = set()
    for _ in range(3):
        with atomic_write(tmp_path / "result.json") as stream:
            stream.write("{}")
            seen |= {name for name in names(tmp_path) if name.endswith(".partial")}
    assert len(seen) == 3 and not any(str(os.getpid()) in name for name in seen)
    assert names(tmp_path) == ["result.json"]


def test_a_link_where_a_temporary_file_would_be_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even of somebody who knows the name."""
    (tmp_path / "precious").write_text("precious")
    monkeypatch.setattr(os, "urandom", bytes)  # zeros
    (tmp_path / f".result.json.{'00' * 8}.partial").symlink_to("precious")
    with pytest.raises(MachineError), atomic_write(tmp_path / "result.json") as stream:
        stream.write("{}")
    with pytest.raises(FileExistsError):
        replace_link(tmp_path / "result.json", "elsewhere")
    with pytest.raises(MachineError), temporary_folder(tmp_path / "result.json"):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("part", ["bin", "sizes", "documents", "idx"])
def test_a_link_where_a_corpus_is_written_is_not_followed(part: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / f"corpus.{part}.partial").symlink_to("precious")
    with pytest.raises(MachineError, match="cannot write") as caught, IndexedWriter(tmp_path / "corpus", 100) as writer:
        writer.add_document([1, 2, 3])
    assert "symbolic link" in caught.value.fix
    assert (tmp_path / "precious").read_text() == "precious"


LIMITED = """
import resource
from paddock.files import atomic_write
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
with atomic_write("result.json") as stream:
    stream.write("x" * 100)
"""


def test_a_file_that_may_not_be_so_large(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True)
    assert "MachineError: cannot write result.json" in done.stderr and "ulimit -f" in done.stderr
    assert names(tmp_path) == []


DIES = """
import os, sys, time
from pathlib import Path
from paddock.files import atomic_write, scratch_folder, temporary_folder
with atomic_write("result.json") as stream, temporary_folder(Path("folder")) as folder, scratch_folder() as scratch:
    for file in (folder, scratch):
        (file / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(3600)
"""


def test_what_the_dead_left_is_swept_and_what_the_living_write_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    writers = [
        subprocess.Popen([sys.executable, "-c", DIES], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "writing\n"
        assert len(names(tmp_path)) == 6
        Path(".corpus.bin.partial").write_text("swept by its own owner only")
        dead, _ = writers
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        with atomic_write("result.json"), temporary_folder(Path("folder")), scratch_folder():
            assert len(names(tmp_path)) == 1 + 3 + 3
        assert len(names(tmp_path)) == 1 + 3 + 1
        sweep(tmp_path)
        assert ".corpus.bin.partial" not in names(tmp_path)
        assert len(names(tmp_path)) == 3 + 1  # of whoever lives, and the result
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    sweep(tmp_path)
    with scratch_folder():
        pass
    assert names(tmp_path) == ["result.json"]


def test_who_sweeps_between_making_and_locking_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    make = files._make_file

    def swept_once(path: Path) -> None:
        make(path)
        made.append(path)
        if len(made) == 1:
            sweep(tmp_path)
            assert not path.exists()

    monkeypatch.setattr(files, "_make_file", swept_once)
    with atomic_write(tmp_path / "result.json") as stream:
        stream.write("{}")
    assert len(made) == 2 and names(tmp_path) == ["result.json"]


def test_a_scratch_folder_is_for_its_user_alone() -> None:
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_folder_in_the_place_of_a_link_stays_under_another_name(tmp_path: Path) -> None:
    """As `cp -rL` leaves it, which copies what links lead to."""
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "file").write_text("kept")
    replace_link(tmp_path / "latest", "step-2")
    replace_link(tmp_path / "latest", "step-3")
    assert os.readlink(tmp_path / "latest") == "step-3"
    (copied,) = tmp_path.glob("latest-copied-*")
    assert (copied / "file").read_text() == "kept"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("name", [b"plain", b"two words", b"r\xff\xfe", b"\xffa'b\\c\x01\xc3\xa9 $x"])
def test_a_word_for_a_shell_is_the_path_again(name: bytes) -> None:
    word = shell_word(os.fsdecode(name))
    word.encode()
    assert subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout == name


def test_a_plain_path_needs_no_quotes() -> None:
    assert shell_word(Path("runs/a-1")) == "runs/a-1"
