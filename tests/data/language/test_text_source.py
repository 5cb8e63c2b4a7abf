"""Training from plain text: what is read, what is kept, when it is made anew, and what is refused."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.config.load import load_recipe
from paddock.data.config import CorpusConfig, MaskedConfig, SpanConfig, TokenizerConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language import prepare as preparing
from paddock.data.language import text_files
from paddock.data.language.prepare import PreparedCorpus, prepare
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.data.tokenizers.engine import train_wordpiece
from paddock.data.tokenizers.load import Tokenizer, train_tokenizer
from paddock.errors import ConfigError, DataError, UserError
from paddock.tasks.registry import task_class

TRAINED = TokenizerConfig(kind="trained")
PROMPTS = [f"a cat in a garden, number {number}, oil on canvas" for number in range(30)]


def write(folder: Path, name: str = "prompts.txt", texts: list[str] = PROMPTS) -> str:
    """A file of texts, a line each, in the form and the compression of its name."""
    is_json = ".jsonl" in name
    content = "".join((json.dumps({"text": text, "n": 1}) if is_json else text) + "\n" for text in texts).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def text(folder: Path, *paths: str, **settings: Any) -> CorpusConfig:
    return CorpusConfig(source="text", path=paths, cache=str(folder / "cache"), **settings)


def texts_of(prepared: PreparedCorpus) -> list[str]:
    """The documents of a corpus, each of which ends in the end of text."""
    corpus, tokenizer = IndexedTokens(prepared.prefixes[0][1]), prepared.tokenizer
    assert tokenizer is not None
    rows = [corpus[number].tolist() for number in range(len(corpus))]
    assert all(row[-1] == tokenizer.end_of_text_id for row in rows) and corpus.num_documents == len(rows)
    return [tokenizer.decode(row[:-1]) for row in rows]


@pytest.mark.parametrize("name", ["prompts.txt", "prompts.txt.gz", "prompts.jsonl", "prompts.jsonl.gz", "prompts.json"])
def test_a_file_of_any_form(tmp_path: Path, name: str) -> None:
    if name.endswith(".json"):
        Path(write(tmp_path, "prompts.jsonl")).rename(tmp_path / name)
    else:
        write(tmp_path, name)
    assert texts_of(prepare(text(tmp_path, str(tmp_path / name)), TRAINED, 400)) == PROMPTS


def test_several_files_and_patterns(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", PROMPTS[:10])
    write(tmp_path, "a.txt", PROMPTS[10:20])
    write(tmp_path, "c.jsonl", PROMPTS[20:])
    found = prepare(text(tmp_path, str(tmp_path / "c.jsonl"), str(tmp_path / "[ab].txt")), TRAINED, 400)
    assert texts_of(found) == PROMPTS[20:] + PROMPTS[10:20] + PROMPTS[:10]


def test_a_document_a_file(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", PROMPTS[:3])
    write(tmp_path, "b.txt", PROMPTS[3:])
    found = prepare(text(tmp_path, str(tmp_path / "*.txt"), document="file"), TRAINED, 400)
    assert texts_of(found) == ["\n".join(part) + "\n" for part in (PROMPTS[:3], PROMPTS[3:])]


def test_another_key(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"caption": text}) + "\n" for text in PROMPTS))
    found = prepare(text(tmp_path, str(tmp_path / "in.jsonl"), json_key="caption"), TRAINED, 400)
    assert texts_of(found) == PROMPTS


def test_it_is_made_once_and_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = text(tmp_path, write(tmp_path))
    first = prepare(data, TRAINED, 400)
    said = capsys.readouterr().err
    assert "prepared 30 documents of " in said and "a line each (--data.document file: a file each)" in said
    monkeypatch.setattr(preparing, "preprocess", lambda *_: pytest.fail("made again"))
    assert prepare(data, TRAINED, 400).prefixes == first.prefixes
    assert capsys.readouterr().err == ""
    os.rename(tmp_path / "prompts.txt", tmp_path / "moved.txt")  # the same text is the same corpus
    assert prepare(text(tmp_path, str(tmp_path / "moved.txt")), TRAINED, 400).prefixes == first.prefixes
    # So it is with the same tokenizer from elsewhere, as a run keeps it.
    assert first.tokenizer is not None
    (tmp_path / "run").mkdir()
    first.tokenizer.save(tmp_path / "run")
    kept = TokenizerConfig(kind="file", path=str(tmp_path / "run" / "tokenizer.json"))
    assert prepare(text(tmp_path, str(tmp_path / "moved.txt")), kept, 400).prefixes == first.prefixes


def test_how_far_it_is_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, list[int]] = {}

    @contextmanager
    def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
        shown[title] = [total, 0]

        def advance(count: int) -> None:
            shown[title][1] += count

        yield advance

    for module in (preparing, text_files):
        monkeypatch.setattr(module, "byte_progress_bar", bar)
    paths = [write(tmp_path, name) for name in ("a.txt", "b.jsonl", "c.txt.gz")]
    prepare(text(tmp_path, *paths), TRAINED, 400)
    size = sum(map(os.path.getsize, paths))
    assert shown == {title: [size, size] for title in ("checking", "reading", "tokenizing")}


def change_content(folder: Path) -> None:
    """The same length and the same time: only the content tells."""
    path = folder / "prompts.txt"
    status = path.stat()
    path.write_text(path.read_text().replace("number 7", "number 8"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def truncate(folder: Path) -> None:
    os.truncate(folder / "prompts.txt", 600)


@pytest.mark.parametrize("change", [change_content, truncate])
def test_a_changed_file_is_noticed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    data = text(tmp_path, write(tmp_path))
    first = prepare(data, TRAINED, 400)
    change(tmp_path)
    second = prepare(data, TRAINED, 400)
    assert second.prefixes != first.prefixes
    assert texts_of(second) == (tmp_path / "prompts.txt").read_text().splitlines() != PROMPTS


@pytest.mark.parametrize("settings", [{"document": "file"}, {"end_of_text": "<end>"}, {"vocab": 270}])
def test_other_settings_are_another_corpus(tmp_path: Path, settings: dict[str, Any]) -> None:
    path, vocab = write(tmp_path), settings.pop("vocab", 400)
    tokenizer = TokenizerConfig(kind="trained", end_of_text=settings.pop("end_of_text", None))
    first = prepare(text(tmp_path, path), TRAINED, 400)
    assert prepare(text(tmp_path, path, **settings), tokenizer, vocab).prefixes != first.prefixes


def prepare_and_tell(data: CorpusConfig, begin: Any, told: Any) -> None:
    built = []
    preparing.preprocess = lambda *arguments: built.append(1) or preprocess(*arguments)  # type: ignore[func-returns-value]
    begin.wait()
    prepared = prepare(data, TRAINED, 400)
    told.put((len(built), str(prepared.prefixes[0][1])))


preprocess = preparing.preprocess


def test_of_several_processes_one_prepares(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    data, begin, told = text(tmp_path, write(tmp_path)), context.Barrier(3), context.Queue()
    processes = [context.Process(target=prepare_and_tell, args=(data, begin, told)) for _ in range(3)]
    for process in processes:
        process.start()
    results = [told.get() for _ in processes]
    for process in processes:
        process.join()
    assert sorted(count for count, _ in results) == [0, 0, 1]
    assert len({prefix for _, prefix in results}) == 1


@pytest.mark.parametrize("work", ["train_tokenizer", "preprocess"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """What was made of it is not kept under the name of what it was."""
    data, usual = text(tmp_path, write(tmp_path)), getattr(preparing, work)

    def disturbed(*arguments: Any) -> Any:
        result = usual(*arguments)
        write(tmp_path, texts=PROMPTS[2:])
        return result

    monkeypatch.setattr(preparing, work, disturbed)
    with pytest.raises(DataError, match=r"prompts\.txt changed while it was read"):
        prepare(data, TRAINED, 400)
    kept = [path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()]
    assert kept == (["bpe"] if work == "preprocess" else [])


BAD: dict[str, tuple[str, bytes, type[UserError], str]] = {
    "empty": ("in.txt", b"", DataError, r"in\.txt is empty(.|\n)*leave it out"),
    "blank": ("in.txt", b"\n \n", DataError, r"in\.txt holds no text"),
    "empty texts": ("in.jsonl", b'{"text": ""}\n', DataError, r"in\.jsonl holds no text"),
    "not UTF-8": ("in.txt", b"one\nzwei Stra\xdfen\n", DataError, r"in\.txt, line 2: invalid UTF-8: byte 10 .* 0xdf"),
    "binary": ("in.txt", bytes(range(1, 32)) * 9, DataError, r"in\.txt, line 1: .*control character, U\+0001"),
    "an image": ("in.txt", b"\x89PNG\r\n\x1a\n", DataError, r"in\.txt is an image"),
    "gzip": ("in.txt", gzip.compress(b"text"), DataError, r"in\.txt is compressed by gzip(.|\n)*ends in \.gz"),
    "truncated": ("in.txt.gz", gzip.compress(os.urandom(999))[:500], DataError, r"in\.txt\.gz is truncated"),
    "no JSON": (
        "in.jsonl",
        b'{"text": "a"}\nhello\n',
        DataError,
        r"in\.jsonl, line 2: invalid JSON(.|\n)*name it \.txt",
    ),
    "no key": (
        "in.jsonl",
        b'{"text": "a"}\n\n{"prompt": "b"}',
        DataError,
        r'line 3: it has no key "text" \(it has: prompt',
    ),
    "JSON in .txt": ("in.txt", b'{"text": "a"}\n', DataError, r"line 1: it is a JSON object(.|\n)*name it \.jsonl"),
    "NUL": ("in.txt", b"a\nb\x00c\n", DataError, r"in\.txt, line 2: character 2 is a control character, U\+0000"),
    "NUL in JSON": ("in.jsonl", b'{"text": "a\\u0000b"}', DataError, r"in\.jsonl, line 1: character 2 is a control"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    file, content, error, said = BAD[name]
    (tmp_path / file).write_bytes(content)
    good = write(tmp_path, "good.txt")
    with pytest.raises(error, match=said) as refused:
        prepare(text(tmp_path, good, str(tmp_path / file)), TRAINED, 400)
    assert refused.value.fix
    assert not list(tmp_path.glob("cache/*"))  # no tokenizer was learned, either


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("nowhere.txt", DataError, r"cannot read --data\.path nowhere\.txt(.|\n)*No such file"),
        (".", DataError, r"--data\.path \. is a folder(.|\n)*--data\.path '\./\*\.jsonl', or \*\.txt"),
        ("*.text", DataError, r"--data\.path \*\.text matches no file"),
        ("/dev/null", ConfigError, r"--data\.path /dev/null is no file(.|\n)*a stream"),
        ("corpus", ConfigError, r"data\.source = text(.|\n)*corpus\.idx is the index(.|\n)*--data\.source indexed"),
    ],
)
def test_paths_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, error: type[UserError], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.idx").touch()
    with pytest.raises(error, match=said):
        prepare(text(tmp_path, path), TRAINED, 400)


def test_text_where_tokens_are_expected(tmp_path: Path) -> None:
    data = CorpusConfig(source="indexed", path=write(tmp_path), cache=str(tmp_path))
    with pytest.raises(ConfigError, match=r"data\.source = indexed(.|\n)*a file by itself(.|\n)*--data\.source text"):
        prepare(data, TokenizerConfig(), 400)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": "indexed", "document": "file"}, r"data\.document = file(.|\n)*ignored(.|\n)*--data\.source text"),
        ({"source": "embedded", "json_key": "x"}, r"data\.json_key = x(.|\n)*ignored"),
        ({"truncate": True}, r"data\.truncate = True(.|\n)*ignored(.|\n)*--data\.samples padded"),
        ({"samples": "padded", "eod_mask_loss": True, "eod": 3}, r"data\.eod = 3(.|\n)*nothing looks for it"),
        (
            {"source": "text", "path": [0.5, "a", 0.5, "b"]},
            r"data\.path = 0\.5 a(.|\n)*weights are for corpora of tokens",
        ),
        ({"source": "text", "json_key": "a/b"}, r"data\.json_key(.|\n)*part of a file name"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CorpusConfig(**settings)


def test_settings_that_no_file_minds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.document = file(.|\n)*no file of --data\.path is plain text"):
        prepare(text(tmp_path, write(tmp_path, "in.jsonl"), document="file"), TRAINED, 400)
    with pytest.raises(ConfigError, match=r"data\.json_key = x(.|\n)*all are plain text"):
        prepare(text(tmp_path, write(tmp_path), json_key="x"), TRAINED, 400)


STORIES = [f"It was day {number}. The cat ran to Mr. Smith! Was it late? Nobody knew" for number in range(40)]
Config = type[MaskedConfig] | type[SpanConfig]


@pytest.mark.parametrize(
    ("config", "tokenizer", "check"),
    [
        (MaskedConfig, TokenizerConfig(kind="trained"), lambda found: found.special_id("mask")),
        (SpanConfig, TokenizerConfig(kind="trained", extra_ids=20), lambda found: len(found.sentinel_ids)),
    ],
)
def test_for_masks_and_spans_it_becomes_sentences(
    tmp_path: Path, config: Config, tokenizer: TokenizerConfig, check: Callable[[Tokenizer], int]
) -> None:
    """As `paddock preprocess --split-sentences` makes them of the same files, byte for byte."""
    data = config(source="text", path=write(tmp_path, texts=STORIES), cache=str(tmp_path / "cache"))
    found = prepare(data, tokenizer, 400)
    prefix = found.prefixes[0][1]
    corpus, learned = IndexedTokens(prefix), found.tokenizer
    assert learned is not None and check(learned)
    assert prefix.name == "corpus_text_sentence"
    assert (corpus.num_documents, len(corpus)) == (40, 160)
    read = [learned.decode(corpus[number].tolist()).replace(" ", "").lower() for number in range(4)]
    assert read == ["itwasday0.", "thecatrantomr.smith!", "wasitlate?", "nobodyknew"]
    learned.save(tmp_path)
    job = PreprocessJob((str(tmp_path / "prompts.txt"),), str(tmp_path / "p"), TokenizerFolder(tmp_path))
    preprocess(replace(job, split_sentences=True))
    for end in ("bin", "idx"):
        assert (tmp_path / f"p_text_sentence.{end}").read_bytes() == Path(f"{prefix}.{end}").read_bytes()
    assert prepare(data, tokenizer, 400).prefixes == found.prefixes
    # A language model reads the same text otherwise, and finds no corpus of sentences in its place.
    kept = TokenizerConfig(kind="folder", path=str(tmp_path))
    if config is SpanConfig:
        whole = prepare(CorpusConfig(source="text", path=data.path, cache=data.cache), kept, 400)
        assert IndexedTokens(whole.prefixes[0][1]).num_documents == len(IndexedTokens(whole.prefixes[0][1])) == 40


def test_learning_words_reads_text_of_any_length_piece_by_piece(tmp_path: Path) -> None:
    data = MaskedConfig(source="text", path=write(tmp_path, texts=STORIES), cache=str(tmp_path / "cache"))
    found = prepare(data, TRAINED, 400).tokenizer
    assert found is not None and found.content() == train_wordpiece(STORIES, 400).content()


@pytest.mark.parametrize(
    ("recipe", "said"),
    [("bert/base-uncased", "the tokenizer has no cls token"), ("t5/base", "the tokenizer has 0 sentinels")],
)
def test_a_tokenizer_without_what_the_task_needs(tmp_path: Path, recipe: str, said: str) -> None:
    """Before anything is made of the text."""
    loaded = load_recipe(recipe)
    train_tokenizer(PROMPTS, 300).save(tmp_path)
    data = loaded.data.model_copy(
        update={"source": "text", "path": (write(tmp_path),), "cache": str(tmp_path / "cache")}
    )
    with pytest.raises(ConfigError, match=said):
        task_class(loaded.task).prepare(data, TokenizerConfig(kind="folder", path=str(tmp_path)), loaded.model)
    assert not (tmp_path / "cache").exists()


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path)
    assert texts_of(prepare(text(tmp_path, "~/prompts.txt"), TRAINED, 400)) == PROMPTS
