"""From JSON lines to indexed tokens, held against a plain loop; and everything that can be wrong."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.sentences import split_sentences
from paddock.data.preprocess import run as running
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.data.preprocess.run import Watch, preprocess
from paddock.data.tokenizers.load import load_tokenizer, train_tokenizer
from paddock.errors import ConfigError, DataError, MachineError
from paddock.testing.samples.texts import MakeJob, sample_texts, write_lines

CHINESE = ["他说：“你好。”然后走了！是吗？好……", "中文。中文", "The end. 中。"]


def reference(job: PreprocessJob, texts: Sequence[str]) -> list[list[list[int]]]:
    """Documents as sequences of tokens, in the plainest way."""
    assert isinstance(job.tokenizer, TokenizerConfig)
    tokenizer = load_tokenizer(job.tokenizer)
    assert tokenizer is not None
    documents = []
    for text in texts:
        sentences = split_sentences(text, job.keep_newlines) if job.split_sentences else [text]
        sequences = [ids for ids in map(tokenizer.encode, sentences) if ids]
        if sequences and job.append_eod:
            assert tokenizer.end_of_text_id is not None
            sequences[-1] = [*sequences[-1], tokenizer.end_of_text_id]
        if sequences:
            documents.append(sequences)
    return documents


def written(prefix: str) -> list[list[list[int]]]:
    corpus = IndexedTokens(prefix)
    borders = corpus.documents.tolist()
    return [
        [corpus[index].tolist() for index in range(first, last)]
        for first, last in zip(borders, borders[1:], strict=False)
    ]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("append_eod", [False, True])
@pytest.mark.parametrize("form", ["document", "sentence", "newlines"])
@pytest.mark.parametrize("kind", ["gpt2", "bert", "file"])
def test_it_equals_a_plain_loop(
    make_job: MakeJob, kind: str, form: str, append_eod: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "file":  # a tokenizer that is not taken word by word
        from tokenizers import normalizers

        trained = train_tokenizer(sample_texts(20), 400)
        trained.engine.normalizer = normalizers.NFC()
        trained.save(tmp_path)
        tokenizer = TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json"))
    else:
        tokenizer = request.getfixturevalue(kind)
    texts = [*sample_texts(), "", "  ", "\x00", *CHINESE]
    path = write_lines(tmp_path / "in.jsonl", texts)
    job = make_job(
        path,
        tokenizer=tokenizer,
        append_eod=append_eod,
        split_sentences=form != "document",
        keep_newlines=form == "newlines",
    )
    result = preprocess(job)
    expected = reference(job, texts)
    prefix = str(tmp_path / f"out_text_{'document' if form == 'document' else 'sentence'}")
    assert written(prefix) == expected
    corpus = result.corpora[0]
    assert (corpus.prefix, corpus.dtype, corpus.documents) == (prefix, "uint16", len(expected))
    assert corpus.sequences == sum(map(len, expected))
    assert corpus.tokens == sum(len(sequence) for document in expected for sequence in document)
    assert result.counts.documents == len(texts) and result.counts.empty == len(texts) - len(expected)
    assert result.counts.bytes == path.stat().st_size and result.skipped_list is None


def test_the_number_of_workers_changes_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    for name, count in (("a", 200), ("b", 0), ("c", 100)):
        write_lines(tmp_path / f"{name}.jsonl", sample_texts(count, seed=ord(name)))
    contents = []
    for workers, chunk_bytes in ((1, 4096), (2, 3000), (1, 1 << 20)):
        prefix = str(tmp_path / f"out-{workers}-{chunk_bytes}")
        job = make_job(tmp_path / "[abc].jsonl", output_prefix=prefix, workers=workers, chunk_bytes=chunk_bytes)
        preprocess(replace(job, append_eod=True))
        contents.append([Path(f"{prefix}_text_document{suffix}").read_bytes() for suffix in (".bin", ".idx")])
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0][0]) > 10_000


def test_several_keys(make_job: MakeJob, tmp_path: Path) -> None:
    texts = sample_texts(40)
    lines = [{"title": text[:7], "text": text, "id": 3} for text in texts]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    job = make_job(path, json_keys=("text", "title"))
    result = preprocess(job)
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts)
    assert written(str(tmp_path / "out_title_document")) == reference(job, [text[:7] for text in texts])
    assert [Path(corpus.prefix).name for corpus in result.corpora] == ["out_text_document", "out_title_document"]


def test_a_large_vocabulary_takes_four_bytes(make_job: MakeJob, bert: TokenizerConfig, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", ["the name"])
    job = make_job(path, tokenizer=bert.model_copy(update={"extra_ids": 65500}))
    assert preprocess(job).corpora[0].dtype == "int32"
    assert written(str(tmp_path / "out_text_document")) == reference(job, ["the name"])


def test_files_as_people_have_them(make_job: MakeJob, tmp_path: Path) -> None:
    texts = sample_texts(30)
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines[:10]))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"\n\n".join(lines[10:20]) + b"\n\n"))
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "d").write_bytes(b"\n".join(lines[20:]))
    job = make_job(*(tmp_path / name for name in ("a.jsonl", "b.json.gz", "c.txt", "d")))
    preprocess(job)
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts)


def test_a_folder_with_a_tokenizer(make_job: MakeJob, tmp_path: Path) -> None:
    train_tokenizer(sample_texts(20), 400, "<end>").save(tmp_path)
    path = write_lines(tmp_path / "in.jsonl", ["one", "two"])
    preprocess(make_job(path, tokenizer=TokenizerFolder(tmp_path), append_eod=True))
    end = IndexedTokens(tmp_path / "out_text_document")[0][-1]
    assert train_tokenizer(sample_texts(20), 400, "<end>").end_of_text_id == end
    with pytest.raises(DataError, match="there is no tokenizer in"):
        preprocess(make_job(path, tokenizer=TokenizerFolder(tmp_path / "nowhere"), output_prefix=str(tmp_path / "new")))


def test_a_tokenizer_made_for_short_inputs(make_job: MakeJob, tmp_path: Path) -> None:
    trained = train_tokenizer(sample_texts(20), 400)
    trained.engine.enable_truncation(8)
    trained.engine.enable_padding(length=16)
    trained.save(tmp_path)
    texts = sample_texts(20)
    job = make_job(write_lines(tmp_path / "in.jsonl", texts), tokenizer=TokenizerFolder(tmp_path))
    preprocess(job)
    trained.engine.no_truncation()
    trained.engine.no_padding()
    assert written(str(tmp_path / "out_text_document")) == [[trained.encode(text)] for text in texts]


def test_a_tokenizer_without_an_end(make_job: MakeJob, tmp_path: Path) -> None:
    trained = train_tokenizer(["some text"], 300, "<stop>")
    trained.save(tmp_path)
    path = write_lines(tmp_path / "in.jsonl", ["one"])
    config = TokenizerConfig(kind="file", path=str(tmp_path / "tokenizer.json"))
    preprocess(make_job(path, tokenizer=config))
    with pytest.raises(ConfigError, match=r"no end-of-text token(.|\n)*--end-of-text"):
        preprocess(make_job(path, tokenizer=config, append_eod=True, overwrite=True))


def test_a_bad_line_is_an_error_with_its_place(make_job: MakeJob, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", sample_texts(20))
    with open(path, "a") as stream:
        stream.write('\n{"txt": "a"}\n')
    with pytest.raises(DataError, match=r'in\.jsonl, line 22: it has no key "text" .*(.|\n)*--on-error skip'):
        preprocess(make_job(path, chunk_bytes=1 << 20))
    assert names(tmp_path) == {"in.jsonl"}  # nothing was written before it, so nothing is left


@pytest.mark.parametrize("workers", [1, 2])
def test_skipping_bad_lines(make_job: MakeJob, tmp_path: Path, workers: int) -> None:
    texts = sample_texts(60)
    lines = [json.dumps({"text": text}) for text in texts]
    bad = {3: "{", 17: '{"text": 1}', 40: "[]", 61: "nonsense"}
    for number in sorted(bad):
        lines.insert(number - 1, bad[number])
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines))
    job = make_job(path, on_error="skip", workers=workers)
    result = preprocess(job)
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts)
    assert result.counts.skipped == 4 and result.skipped_list == str(tmp_path / "out.skipped.jsonl")
    records = [json.loads(line) for line in Path(result.skipped_list).read_text().splitlines()]
    assert [record["line"] for record in records] == sorted(bad)
    assert {record["file"] for record in records} == {str(path)}
    assert records[1]["reason"] == '"text" is a number, not a string'
    # A later run without bad lines leaves no list of them behind.
    path.write_text(json.dumps({"text": "a"}))
    assert preprocess(replace(job, overwrite=True)).skipped_list is None
    assert names(tmp_path) == {"in.jsonl", *(f"out_text_document.{end}" for end in ("bin", "idx", "tokenizer"))}


def test_going_on_without_the_bad_lines(make_job: MakeJob, tmp_path: Path) -> None:
    texts = sample_texts(100)
    path = write_lines(tmp_path / "in.jsonl", texts)
    path.write_text(path.read_text().replace('"other": 80', '"other": 80 80'))
    with pytest.raises(DataError, match="line 81"):
        preprocess(make_job(path))
    assert (tmp_path / "out.progress.json").is_file() and not (tmp_path / "out_text_document.idx").exists()
    job = make_job(path, on_error="skip")
    resumed = []
    result = preprocess(job, Watch(begins=lambda inputs, progress: resumed.append(progress)))
    assert resumed[0] is not None and resumed[0].counts.documents > 0
    assert result.counts.documents == 99 and result.counts.skipped == 1
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts[:80] + texts[81:])


@pytest.mark.parametrize(
    ("content", "on_error"),
    [("", "stop"), ("\n\n", "stop"), ('{"text": ""}\n', "stop"), ("nonsense\n", "skip")],
)
def test_no_document_at_all(make_job: MakeJob, tmp_path: Path, content: str, on_error: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match="there is no document in the input"):
        preprocess(make_job(path, on_error=on_error))
    assert names(tmp_path) == {"in.jsonl"}


def test_finished_files_are_not_written_over(make_job: MakeJob, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", ["one"])
    preprocess(make_job(path))
    before = (tmp_path / "out_text_document.bin").read_bytes()
    write_lines(path, ["two words"])
    with pytest.raises(DataError, match=r"out_text_document\.bin is there already(.|\n)*--overwrite"):
        preprocess(make_job(path))
    assert (tmp_path / "out_text_document.bin").read_bytes() == before
    job = make_job(path, overwrite=True)
    preprocess(job)
    assert written(str(tmp_path / "out_text_document")) == reference(job, ["two words"])


def test_an_input_that_changes_meanwhile(make_job: MakeJob, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", sample_texts(50))

    def touch(_: object) -> None:
        os.utime(path, (1, 1))

    with pytest.raises(DataError, match=r"in\.jsonl changed while it was read"):
        preprocess(make_job(path), Watch(advances=touch))
    assert names(tmp_path) == {"in.jsonl"}


def test_two_jobs_at_once(make_job: MakeJob, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", ["one"])

    def begin_another(*_: object) -> None:
        with pytest.raises(DataError, match=r"another `paddock preprocess` is writing .*out(.|\n)*wait for it"):
            preprocess(make_job(path))

    preprocess(make_job(path), Watch(begins=begin_another))
    assert names(tmp_path) == {"in.jsonl", *(f"out_text_document.{end}" for end in ("bin", "idx", "tokenizer"))}


def test_a_worker_that_is_killed(make_job: MakeJob, tmp_path: Path) -> None:
    texts = sample_texts(400)
    path = write_lines(tmp_path / "in.jsonl", texts)

    others = set(multiprocessing.active_children())

    def kill_a_worker(_: object) -> None:
        for child in set(multiprocessing.active_children()) - others:
            os.kill(child.pid or 0, signal.SIGKILL)

    job = make_job(path, workers=2)
    with pytest.raises(MachineError, match=r"a worker process ended unexpectedly(.|\n)*memory(.|\n)*--workers"):
        preprocess(job, Watch(advances=kill_a_worker))
    preprocess(replace(job, workers=1))
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output_prefix": "corpora/"}, "it is the beginning of file names"),
        ({"output_prefix": ""}, "it is the beginning of file names"),
        ({"json_keys": ()}, "names no key"),
        ({"json_keys": ("a/b",)}, "part of a file name"),
        ({"json_keys": ("a", "b", "a")}, "a is there twice"),
        ({"keep_newlines": True}, "--keep-newlines would be ignored"),
        ({"workers": 0}, "somebody has to do the work"),
    ],
)
def test_jobs_that_cannot_be(make_job: MakeJob, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preprocess(make_job("in.jsonl", **settings))


def test_a_full_disk_leaves_something_to_go_on_from(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = sample_texts(200)
    path = write_lines(tmp_path / "in.jsonl", texts)
    job = make_job(path, checkpoint_seconds=0.0)
    real, calls = running.Outputs.add, []

    def add(self: running.Outputs, encoded: object) -> None:
        calls.append(encoded)
        if len(calls) == 5:
            raise MachineError("cannot write", why="No space left on device")
        real(self, encoded)  # type: ignore[arg-type]

    monkeypatch.setattr(running.Outputs, "add", add)
    with pytest.raises(MachineError):
        preprocess(job)
    preprocess(job)
    assert written(str(tmp_path / "out_text_document")) == reference(job, texts)
    assert np.sum(IndexedTokens(tmp_path / "out_text_document").sizes) > 0
