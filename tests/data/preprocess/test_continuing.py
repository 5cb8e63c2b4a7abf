"""Jobs that are killed or stopped, and go on: the result is the same, byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.journal import Progress
from paddock.data.preprocess.run import Preprocessed, Snapshot, Watch, preprocess
from paddock.errors import DataError
from paddock.testing.processes import wait_for
from paddock.testing.samples.texts import MakeJob, sample_texts, write_lines

UP_TO = """
import json, sys
from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.run import Watch, preprocess

def advances(snapshot):
    if snapshot.consumed > float(sys.argv[2]) * snapshot.total:
        sys.stdin.read()

job = json.loads(sys.argv[1])
job["tokenizer"] = TokenizerConfig(**job["tokenizer"])
preprocess(PreprocessJob(**job), Watch(advances=advances))
"""
"""A job that stands still when it has done a share of its input."""


def contents(prefix: str) -> dict[str, bytes]:
    """Every file of a job, by the end of its name; the lock is none of it."""
    folder, name = Path(prefix).parent, Path(prefix).name
    paths = [path for path in folder.iterdir() if path.name.startswith(name) and path.suffix != ".lock"]
    files = [file for path in paths for file in (path, *path.glob("*")) if file.is_file()]
    return {str(file.relative_to(folder)).removeprefix(name): file.read_bytes() for file in files}


def finished(prefix: str) -> set[str]:
    """What a corpus consists of."""
    tokenizer = {f"{prefix}.tokenizer/{name}" for name in ("tokenizer.json", "tokenizer_config.json")}
    return {f"{prefix}.bin", f"{prefix}.idx", *tokenizer}


def as_json(job: PreprocessJob) -> str:
    assert isinstance(job.tokenizer, TokenizerConfig)
    return json.dumps({**vars(job), "tokenizer": job.tokenizer.model_dump()})


def stop_after(chunks: int) -> Watch:
    seen: list[Snapshot] = []
    return Watch(advances=seen.append, stopped=lambda: len(seen) >= chunks)


def continue_it(job: PreprocessJob) -> tuple[Progress | None, Preprocessed]:
    begun: list[Progress | None] = []
    result = preprocess(job, Watch(begins=lambda _, progress: begun.append(progress)))
    return begun[0], result


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """Two inputs, one of them packed, with a few bad lines."""
    import gzip

    paths = [write_lines(tmp_path / f"{name}.jsonl", sample_texts(150, ord(name))) for name in "ab"]
    for path in paths:
        path.write_text(path.read_text().replace('"other": 70', '"other": 7 0'))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(paths[1].read_bytes()))
    return [paths[0], packed]


def test_stopped_after_any_chunk(make_job: MakeJob, inputs: list[Path], tmp_path: Path) -> None:
    whole = make_job(*inputs, on_error="skip", output_prefix=str(tmp_path / "whole" / "out"), json_keys=("text",))
    result = preprocess(whole)
    expected = contents(whole.output_prefix)
    assert set(expected) == {*finished("_text_document"), ".skipped.jsonl"}
    for chunks in (1, 2, 5, 9):
        job = replace(whole, output_prefix=str(tmp_path / str(chunks) / "out"), workers=1 + (chunks == 5))
        with pytest.raises(KeyboardInterrupt):
            preprocess(job, stop_after(chunks))
        left = contents(job.output_prefix)
        assert ".progress.json" in left and "_text_document.bin" not in left and "_text_document.idx" not in left
        progress, continued = continue_it(job)
        assert progress is not None and progress.counts.documents > 0
        assert replace(continued, corpora=[], skipped_list=None) == replace(result, corpora=[], skipped_list=None)
        assert [vars(corpus) | {"prefix": ""} for corpus in continued.corpora] == [
            vars(corpus) | {"prefix": ""} for corpus in result.corpora
        ]
        assert contents(job.output_prefix) == expected


def test_killed_at_every_step(make_job: MakeJob, tmp_path: Path) -> None:
    lines = [{"text": text, "title": text[:9]} for text in sample_texts(9)]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "nonsense\n")
    settings = {"json_keys": ("title", "text"), "on_error": "skip", "append_eod": True, "checkpoint_seconds": 0.0}
    job = make_job(path, **settings, output_prefix=str(tmp_path / "whole" / "out"))
    preprocess(job)
    expected = contents(job.output_prefix)
    killed = tmp_path / "killed"
    killed.mkdir()
    arguments = json.loads(as_json(job)) | {"folder": str(killed)}
    del arguments["output_prefix"]
    program = Path(__file__).parent / "kill_everywhere.py"
    run = subprocess.run([sys.executable, program, json.dumps(arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    steps = int(run.stdout)
    assert steps > 25
    for number in range(1, steps + 1):
        assert contents(str(killed / str(number) / "out")) == expected, f"killed before step {number}"


def test_a_real_process_killed_at_random_moments(make_job: MakeJob, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", sample_texts(1500))
    job = make_job(path, append_eod=True, output_prefix=str(tmp_path / "whole" / "out"))
    preprocess(job)
    expected = contents(job.output_prefix)
    job = replace(job, output_prefix=str(tmp_path / "killed" / "out"), workers=2, checkpoint_seconds=0.0)
    journal = Path(f"{job.output_prefix}.progress.json")
    rng = random.Random()
    places = []
    for share in (0.0, 0.4):
        command = [sys.executable, "-c", UP_TO, as_json(job), str(share + 0.3)]  # however late we are, it is not done
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        while process.poll() is None and _share_done(journal, path) < share + rng.random() * 0.1:
            time.sleep(0.001)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        wait_for(lambda session=process.pid: not _processes_of_session(session))  # type: ignore[misc]
        places.append(_share_done(journal, path))
    assert 0 < places[0] < places[1] < 1
    progress, _ = continue_it(job)
    assert progress is not None
    assert contents(job.output_prefix) == expected


def _share_done(journal: Path, path: Path) -> float:
    if not journal.is_file():
        return 0.0
    return int(json.loads(journal.read_text())["progress"]["position"]["offset"]) / path.stat().st_size


def _processes_of_session(session: int) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(entry.parent.name)
    return found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"append_eod": True}, "--append-eod was False, and is True"),
        ({"split_sentences": True}, "--split-sentences was False, and is True"),
        ({"json_keys": ("other",)}, "--json-keys was text, and is other"),
        ({"inputs": ()}, "--input was"),
        ({"tokenizer": "vocab"}, "tokenizer end_of_text was not there, and is"),
        ({"touch": True}, r"a\.jsonl was \d+ bytes, changed .* and is"),
    ],
    ids=str,
)
def test_another_job_is_not_continued(
    make_job: MakeJob, inputs: list[Path], tmp_path: Path, change: dict[str, object], said: str
) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(3))
    before = contents(job.output_prefix)
    if change.pop("touch", None):
        os.utime(inputs[0])
    if "tokenizer" in change:
        assert isinstance(job.tokenizer, TokenizerConfig)
        change["tokenizer"] = job.tokenizer.model_copy(update={"end_of_text": "<|endoftext|>"})
    if "inputs" in change:
        change["inputs"] = (str(inputs[0]),)
    changed = replace(job, **change)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=rf"was another one(.|\n)*{said}(.|\n)*--restart"):
        preprocess(changed)
    assert contents(job.output_prefix) == before
    if "json_keys" not in change:
        preprocess(replace(changed, restart=True))
        assert set(contents(job.output_prefix)) == {*finished(f"_text_{_form(changed)}"), ".skipped.jsonl"}


def _form(job: PreprocessJob) -> str:
    return "sentence" if job.split_sentences else "document"


def test_what_may_change(make_job: MakeJob, inputs: list[Path], tmp_path: Path) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(3))
    progress, _ = continue_it(replace(job, workers=2, chunk_bytes=10_000, checkpoint_seconds=1.0))
    assert progress is not None
    whole = replace(job, output_prefix=str(tmp_path / "whole" / "out"))
    preprocess(whole)
    assert {name: contents(job.output_prefix)[name] for name in contents(whole.output_prefix)} == contents(
        whole.output_prefix
    )


def test_beginning_again(make_job: MakeJob, inputs: list[Path]) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(3))
    progress, result = continue_it(replace(job, restart=True))
    assert progress is None and result.counts.documents == 298


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"form": 1}',
        '{"form": 2, "job": {}, "progress": {}}',
        '{"form": 2, "outputs": [], "job": {}, "progress": {"position": {"offset": []}}}',
        '{"form": 2, "outputs": [], "job": {}, "progress": {"position": {"offset": -1}}}',
        '{"form": 2, "outputs": [], "job": {}, "progress": {"writers": {"text": {"checksums": [1]}}}}',
        "[" * 100_000,
        "1" * 5000,
    ],
)
def test_a_damaged_journal(make_job: MakeJob, inputs: list[Path], content: str) -> None:
    job = make_job(*inputs, on_error="skip")
    Path(f"{job.output_prefix}.progress.json").write_text(content)
    with pytest.raises(DataError, match=r"progress\.json (.|\n)*--restart"):
        preprocess(job)


def test_a_partial_file_that_is_gone(make_job: MakeJob, inputs: list[Path]) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(9))
    Path(f"{job.output_prefix}.skipped.jsonl.partial").write_bytes(b"")
    with pytest.raises(DataError, match=r"no longer what was written(.|\n)*--restart"):
        preprocess(job)


@pytest.mark.parametrize(
    "part", ["_text_document.bin", "_text_document.sizes", "_text_document.documents", ".skipped.jsonl"]
)
def test_a_partial_file_that_has_changed(make_job: MakeJob, inputs: list[Path], part: str) -> None:
    """Two bytes change places: every length and every sum stays as it was."""
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(9))
    path = Path(f"{job.output_prefix}{part}.partial")
    content = bytearray(path.read_bytes())
    place = next(place for place in range(0, len(content), 8) if content[place] != content[place + 4])
    content[place], content[place + 4] = content[place + 4], content[place]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"no longer what was written"):
        preprocess(job)
    assert continue_it(replace(job, restart=True))[0] is None


def test_a_journal_of_which_one_digit_has_changed(make_job: MakeJob, inputs: list[Path]) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(3))
    journal = Path(f"{job.output_prefix}.progress.json")
    whole = journal.read_text()
    for before, after in (
        ('"offset": ', '"offset": 1'),
        ('"line": ', '"line": 1'),
        ('"documents": ', '"documents": 1'),
    ):
        journal.write_text(whole.replace(before, after, 1))
        with pytest.raises(DataError, match=r"progress\.json is damaged(.|\n)*--restart"):
            preprocess(job)


def test_a_journal_removes_nothing_elsewhere(make_job: MakeJob, inputs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other.bin.partial").write_text("mine")
    job = make_job(*inputs, on_error="skip")
    (tmp_path / f"{Path(job.output_prefix).name}_x").mkdir()
    content = {"form": 2, "outputs": ["_x/../other"], "job": {}, "progress": {}, "checksum": 0}
    Path(f"{job.output_prefix}.progress.json").write_text(json.dumps(content))
    preprocess(replace(job, restart=True))
    assert (tmp_path / "other.bin.partial").read_text() == "mine"


def test_a_stream_does_not_end_another_job(make_job: MakeJob, inputs: list[Path], tmp_path: Path) -> None:
    job = make_job(*inputs, on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, stop_after(3))
    before = contents(job.output_prefix)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"was another one(.|\n)*--input was(.|\n)*--restart"):
        preprocess(make_job(tmp_path / "pipe"))
    assert contents(job.output_prefix) == before


def test_a_pipe_that_nobody_writes_to_can_be_left(make_job: MakeJob, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(KeyboardInterrupt):
        preprocess(make_job(tmp_path / "pipe"), Watch(stopped=stopped))


def test_a_stream_begins_again(make_job: MakeJob, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    job = make_job(path)
    lines = write_lines(tmp_path / "in.jsonl", sample_texts(100)).read_bytes()
    for stop in (True, False):
        writer = subprocess.Popen(
            [sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())", path],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert writer.stdin is not None
        writer.stdin.write(lines)
        writer.stdin.close()
        if stop:
            with pytest.raises(KeyboardInterrupt):
                preprocess(job, stop_after(1))
            assert contents(job.output_prefix) == {}
        else:
            assert preprocess(job).counts.documents == 100
        writer.wait()
