"""Parquet tables: their rows are documents, as lines of JSON are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.data.config import CorpusConfig, TokenizerConfig
from paddock.data.language.prepare import prepare
from paddock.data.preprocess import tables
from paddock.data.preprocess.chunks import Position, read_chunks
from paddock.data.preprocess.inputs import check_readable, find_inputs, stat_input
from paddock.data.preprocess.run import Preprocessed, Snapshot, Watch, preprocess
from paddock.data.preprocess.token_use import used_tokens
from paddock.data.tokenizers.load import train_tokenizer
from paddock.errors import DataError, MachineError
from paddock.testing.samples.texts import MakeJob, sample_texts, write_lines

TEXTS = [*sample_texts(120), "zwei Straßen\n\tund „Zeilen“", "", "一二三😀"]


@pytest.fixture
def arrow() -> Any:
    pytest.importorskip("pyarrow.parquet", reason="the package pyarrow is not installed")
    import pyarrow

    return pyarrow


def write_table(path: Path, columns: dict[str, Any], **settings: Any) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path, **settings)
    return path


def texts_table(path: Path, texts: list[Any] = TEXTS, rows_in_group: int = 50, **settings: Any) -> Path:
    """A table of texts, each with its number beside it, in several row groups."""
    return write_table(path, {"other": range(len(texts)), "text": texts}, row_group_size=rows_in_group, **settings)


def corpus(prefix: str) -> list[bytes]:
    return [Path(f"{prefix}.{end}").read_bytes() for end in ("bin", "idx")]


@pytest.mark.parametrize("settings", [{}, {"use_dictionary": False, "compression": "zstd"}, {"rows_in_group": 1000}])
def test_a_table_is_what_its_json_lines_are(
    arrow: Any, make_job: MakeJob, tmp_path: Path, settings: dict[str, Any]
) -> None:
    table, lines = texts_table(tmp_path / "in.parquet", **settings), write_lines(tmp_path / "in.jsonl", TEXTS)
    jobs = [make_job(path, append_eod=True, output_prefix=str(tmp_path / path.suffix[1:])) for path in (table, lines)]
    ours, theirs = map(preprocess, jobs)
    assert corpus(ours.corpora[0].prefix) == corpus(theirs.corpora[0].prefix)
    assert ours.counts.documents == len(TEXTS) and replace(ours.counts, bytes=0) == replace(theirs.counts, bytes=0)


@pytest.mark.parametrize("kind", ["large_string", "string_view", "dictionary"])
def test_every_kind_of_strings(arrow: Any, make_job: MakeJob, tmp_path: Path, kind: str) -> None:
    column = arrow.array(TEXTS * 2)
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(getattr(arrow, kind)())
    job = make_job(write_table(tmp_path / "in.PARQUET", {"text": column}))
    assert preprocess(job).counts.documents == 2 * len(TEXTS)


def test_columns_become_corpora(arrow: Any, make_job: MakeJob, tmp_path: Path) -> None:
    table = write_table(tmp_path / "in.parquet", {"n": [1, 2], "a.b": ["one", "two"], "text": ["three", "four"]})
    result = preprocess(make_job(table, json_keys=("text", "a.b")))
    assert [Path(found.prefix).name for found in result.corpora] == ["out_text_document", "out_a.b_document"]
    assert [found.documents for found in result.corpora] == [2, 2]


def test_chunks_from_any_position(arrow: Any, tmp_path: Path) -> None:
    sources = find_inputs([str(texts_table(tmp_path / f"{name}.parquet", rows_in_group=40)) for name in "ab"])
    chunks = list(read_chunks(sources, Position(), 3000))
    for number, source in enumerate(sources):
        mine = [chunk for chunk in chunks if chunk.begin.input == number]
        assert [json.loads(line)["text"] for chunk in mine for line in chunk.data.splitlines()] == TEXTS
        consumed = [chunk.consumed for chunk in mine]
        assert consumed == sorted(consumed) and consumed[-1] == source.size
    assert len(chunks) > 10
    for number, chunk in enumerate(chunks):
        assert list(read_chunks(sources, chunk.begin, 3000)) == chunks[number:]


def stop_after(chunks: int) -> Watch:
    seen: list[Snapshot] = []
    return Watch(advances=seen.append, stopped=lambda: len(seen) >= chunks)


def test_stopped_after_any_chunk(arrow: Any, make_job: MakeJob, tmp_path: Path) -> None:
    inputs = [texts_table(tmp_path / "a.parquet"), write_lines(tmp_path / "b.jsonl", TEXTS)]
    whole = preprocess(make_job(*inputs, output_prefix=str(tmp_path / "whole")))
    for chunks in (1, 3, 6):
        job = make_job(*inputs, output_prefix=str(tmp_path / str(chunks)))
        with pytest.raises(KeyboardInterrupt):
            preprocess(job, stop_after(chunks))
        begun: list[int] = []
        continued = preprocess(
            job, Watch(begins=lambda _, at, begun=begun: begun.append(at.position.line if at else 0))
        )
        assert begun[0] > 1 and continued.counts == whole.counts
        assert corpus(continued.corpora[0].prefix) == corpus(whole.corpora[0].prefix)


def test_bad_rows(arrow: Any, make_job: MakeJob, tmp_path: Path) -> None:
    broken = arrow.array([b"fine", b"broken \xff", None, b"fine, too"]).cast(arrow.binary()).view(arrow.string())
    table = write_table(tmp_path / "in.parquet", {"text": broken})
    with pytest.raises(DataError, match=r"in\.parquet, row 2: invalid Unicode(.|\n)*correct the row"):
        preprocess(make_job(table))
    result: Preprocessed = preprocess(make_job(table, on_error="skip"))
    assert result.counts.documents == 2 and result.skipped_list is not None
    listed = [json.loads(line) for line in Path(result.skipped_list).read_text().splitlines()]
    assert [(problem["line"], problem["reason"].partition(":")[0]) for problem in listed] == [
        (2, "invalid Unicode"),
        (3, '"text" is null, not a string'),
    ]


def test_columns_that_cannot_be_read(arrow: Any, tmp_path: Path) -> None:
    table = write_table(tmp_path / "in.parquet", {"caption": ["a"], "number": [1], "lists": [["a"]]})
    with pytest.raises(DataError, match=r'no column "text"(.|\n)*caption, number, lists(.|\n)*--data\.json-key NAME'):
        check_readable(stat_input(str(table)), ["text"], "--data.json-key")
    for column, kind in (("number", "int64"), ("lists", "list<")):
        with pytest.raises(DataError, match=rf'column "{column}" of .*in\.parquet is {kind}(.|\n)*--json-keys NAME'):
            check_readable(stat_input(str(table)), [column])
    twice = arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], names=["text", "text"])
    arrow.parquet.write_table(twice, table)
    with pytest.raises(DataError, match='several columns "text"'):
        check_readable(stat_input(str(table)))


def test_damaged_tables(arrow: Any, make_job: MakeJob, tmp_path: Path) -> None:
    table = texts_table(tmp_path / "in.parquet")
    content = table.read_bytes()
    for damaged in (content[: len(content) // 2], b"no table", b""):
        table.write_bytes(damaged)
        with pytest.raises(DataError, match=r"in\.parquet cannot be read as a Parquet table(.|\n)*copy the file again"):
            preprocess(make_job(table))
    middle = len(content) // 3
    table.write_bytes(content[:middle] + bytes(2000) + content[middle + 2000 :])
    with pytest.raises(DataError, match=r"in\.parquet cannot be read to its end(.|\n)*whole rows"):
        preprocess(make_job(table))


def test_names_that_are_not_its_own(arrow: Any, tmp_path: Path) -> None:
    table = texts_table(tmp_path / "in.jsonl")
    with pytest.raises(DataError, match=r"is a Parquet table(.|\n)*a name that ends in \.parquet"):
        check_readable(stat_input(str(table)))
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(DataError, match=r"is a stream(.|\n)*write it to a file"):
        check_readable(stat_input(str(tmp_path / "pipe.parquet")))


def test_training_reads_one(arrow: Any, tmp_path: Path) -> None:
    settings = {"source": "text", "cache": str(tmp_path / "cache"), "json_key": "caption"}
    tables_and_lines = [
        str(write_table(tmp_path / "in.parquet", {"caption": TEXTS})),
        str(write_lines(tmp_path / "in.jsonl", TEXTS, "caption")),
    ]
    found = [
        prepare(CorpusConfig(path=path, **settings), TokenizerConfig(kind="trained"), 400) for path in tables_and_lines
    ]
    assert corpus(str(found[0].prefixes[0][1])) == corpus(str(found[1].prefixes[0][1]))
    write_table(tmp_path / "bad.parquet", {"caption": ["one", "two\x00"]})
    with pytest.raises(DataError, match=r"bad\.parquet, row 2: character 4 is a control(.|\n)*a Parquet table"):
        prepare(CorpusConfig(path=str(tmp_path / "bad.parquet"), **settings), TokenizerConfig(kind="trained"), 400)


def test_the_tokens_that_a_table_uses(arrow: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 400)
    used = [
        used_tokens(tokenizer, [str(path)], ["text"])
        for path in (texts_table(tmp_path / "in.parquet"), write_lines(tmp_path / "in.jsonl", TEXTS))
    ]
    np.testing.assert_array_equal(*used)


def test_without_pyarrow(make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tables, "import_module", missing)
    table = tmp_path / "in.parquet"
    table.write_bytes(b"PAR1")
    said = r"in\.parquet needs the package pyarrow(.|\n)*pip install 'paddock\[parquet\]'"
    with pytest.raises(MachineError, match=said):
        preprocess(make_job(table))
    data = CorpusConfig(source="text", path=str(table), cache=str(tmp_path / "cache"))
    with pytest.raises(MachineError, match=said):
        prepare(data, TokenizerConfig(kind="trained"), 400)
    assert not list(tmp_path.glob("cache/*")) and not list(tmp_path.glob("out*.bin"))


READ = """
import resource, sys
from paddock.data.preprocess.chunks import Position, read_chunks
from paddock.data.preprocess.inputs import find_inputs

sizes, peaks = [], []
for path in sys.argv[1:]:
    sizes.append(sum(len(chunk.data) for chunk in read_chunks(find_inputs([path]), Position(), 1 << 20)))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(sizes[1] / sizes[0], (peaks[1] - peaks[0]) / sizes[1])
"""
"""Reads two tables: how often the second has the size of the first, and how much of it memory has grown by."""


def test_memory_does_not_grow_with_a_row_group(arrow: Any, tmp_path: Path) -> None:
    """A row group of 40 MB, of texts that do not compress, behind one of 4 MB."""
    rng = np.random.default_rng(0)
    texts = [rng.bytes(25_000).hex() for _ in range(800)]
    settings = {"rows_in_group": 2000, "use_dictionary": False, "compression": "none"}
    paths = [texts_table(tmp_path / f"{n}.parquet", texts[:n], **settings) for n in (80, 800)]
    run = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True)
    times, grown = map(float, run.stdout.split())
    assert times > 9.9 and grown < 0.3
