"""Plain text: a document a line, or a document a file; and what is no text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.preprocess import chunks as cutting
from paddock.data.preprocess.inputs import stat_input
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.parsing import BadLine, parse_lines, parse_text
from paddock.data.preprocess.run import Watch, preprocess
from paddock.data.tokenizers.load import load_tokenizer
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.texts import MakeJob, sample_texts, write_lines

LINES = ["a cat in a garden", "two  dogs\t, oil on canvas", "größer, 花园里的猫 \u2028 x", '{"quoted', "page\x0ctwo"]


def texts_of(job: PreprocessJob) -> list[str]:
    """What was written, as text; every document ends in the end of text."""
    tokenizer = load_tokenizer(job.tokenizer)  # type: ignore[arg-type]
    assert tokenizer is not None
    corpus = IndexedTokens(job.output("text"))
    documents = [corpus[number].tolist() for number in range(len(corpus))]
    assert all(tokens[-1] == tokenizer.end_of_text_id for tokens in documents)
    return [tokenizer.decode(tokens[:-1]) for tokens in documents]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("chunk_bytes", [7, 4096])
def test_a_document_a_line(make_job: MakeJob, tmp_path: Path, end: str, mark: bytes, chunk_bytes: int) -> None:
    content = mark + f"{end}{end} {end}".join(LINES).encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.TXT.gz").write_bytes(gzip.compress(content + b"\n"))
    job = make_job(tmp_path / "a.txt", tmp_path / "b.TXT.gz", append_eod=True, chunk_bytes=chunk_bytes)
    result = preprocess(job)
    assert texts_of(job) == LINES * 2
    assert result.counts.documents == 2 * len(LINES)


def test_a_document_a_file_beside_json_lines(make_job: MakeJob, tmp_path: Path) -> None:
    texts = ["\n".join(sample_texts(40, seed)) for seed in range(3)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    (tmp_path / "blank.txt").write_text(" \n\n")
    lines = write_lines(tmp_path / "more.jsonl", ["one", "two"])
    job = make_job(tmp_path / "*.txt", lines, append_eod=True, document="file", chunk_bytes=1000)
    preprocess(job)
    assert texts_of(job) == [*texts, "one", "two"]


def test_it_goes_on_between_two_files(make_job: MakeJob, tmp_path: Path) -> None:
    texts = sample_texts(6)
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    job = make_job(tmp_path / "*.txt", append_eod=True, document="file")
    seen: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        preprocess(job, Watch(advances=seen.append, stopped=lambda: len(seen) >= 3))
    preprocess(job)
    assert texts_of(job) == texts


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"one\ntwo \xff\xfe\n", 2, "invalid UTF-8: byte 5 of the line is 0xff"),
        (b"one\n\nt\x00wo", 3, "character 2 is a control character, U+0000"),
        (b"one\n\x1b[31mred", 2, "character 1 is a control character, U+001B"),
        ("größer\x7f".encode(), 1, "character 7 is a control character, U+007F"),
        (b"one\rtwo\rthree", 1, "character 4 is a control character, U+000D"),
        (b'{"text": "a"}\n', 1, 'it is a JSON object with the key "text"'),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_no_text(content: bytes, line: int, reason: str, whole: bool) -> None:
    found = parse_text(content, 1, "text", begins_file=True, whole=whole)
    assert [bad.line for bad in found.bad] == [line] and found.bad[0].reason.startswith(reason)
    assert found.texts == [[] if whole or line == 1 else ["one"]]


def test_json_spells_control_characters_unless_they_are_refused() -> None:
    line = json.dumps({"text": "a\nb\tc\x07"}).encode()
    assert parse_lines(line, 1, ["text"]).texts == [["a\nb\tc\x07"]]
    [bad] = parse_lines(line, 5, ["text"], refuses_control=True).bad
    assert bad == BadLine(5, "character 4 is a control character, U+0007")


def test_bad_lines_are_skipped_and_listed(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"one\nt\x00wo\nthree\n")
    with pytest.raises(DataError, match=r"in\.txt, line 2: character 2 is a control character(.|\n)*--on-error skip"):
        preprocess(make_job(tmp_path / "in.txt"))
    job = make_job(tmp_path / "in.txt", on_error="skip", append_eod=True)
    assert preprocess(job).counts.skipped == 1
    assert texts_of(job) == ["one", "three"]
    assert json.loads((tmp_path / "out.skipped.jsonl").read_text())["line"] == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1\x15\x04", "a Parquet table"),
        (gzip.compress(b"text", mtime=0), r"compressed by gzip(.|\n)*ends in \.gz"),
        ("text".encode("utf-16"), r"text in UTF-16(.|\n)*iconv"),
        (b"PK\x03\x04\x14", "a ZIP archive"),
        (b"MMIDIDX\x00\x00", r"the index of a corpus(.|\n)*--data\.source indexed"),
    ],
)
@pytest.mark.parametrize("name", ["in.txt", "in.jsonl"])
def test_files_that_say_what_they_are(make_job: MakeJob, tmp_path: Path, content: bytes, said: str, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is {said}"):
        preprocess(make_job(tmp_path / name))


def test_a_file_that_is_too_long_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "LONGEST", 100)
    (tmp_path / "in.txt").write_text("a line\n" * 50)
    source = stat_input(str(tmp_path / "in.txt"))
    with pytest.raises(DataError, match=r"in\.txt, the file has more than(.|\n)*a document a line"):
        list(cutting.read_chunks([source], cutting.Position(), 64, document="file"))
    chunks = list(cutting.read_chunks([source], cutting.Position(), 64))
    assert {chunk.form for chunk in chunks} == {"line"} and len(chunks) > 1


def test_settings_that_would_be_ignored(make_job: MakeJob, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", ["one"])
    with pytest.raises(ConfigError, match=r"--document = file(.|\n)*no input is plain text"):
        preprocess(make_job(lines, document="file"))
    (tmp_path / "in.txt").write_text("one")
    with pytest.raises(ConfigError, match=r"--json-keys = text title(.|\n)*has no keys"):
        preprocess(make_job(tmp_path / "in.txt", json_keys=("text", "title")))
