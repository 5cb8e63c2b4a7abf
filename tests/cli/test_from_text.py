"""From plain text to a model that writes, without flags about tokenizers: they come with the text, the corpus or the
weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.tokenizers.load import load_tokenizer_folder, train_tokenizer
from paddock.data.tokenizers.remembered import tell_apart
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.samples.texts import sample_prompts, sample_texts, train_sentencepiece, write_lines, write_prompts
from paddock.testing.tiny import TINY, losses

Captured = pytest.CaptureFixture[str]
SMALL = [
    *("--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--model.vocab", "512"),
    *("--model.context", "32", "--data.sequence-length", "32", "--batch.micro", "2", "--batch.global", "8"),
    *("--schedule.warmup", "2", "--log.every", "1", "--steps", "3"),
]
FEW = ["--max-new-tokens", "8"]
MAGIC = ["gpt2/magicprompt-tiny", *SMALL, "--data.path", "prompts.txt"]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with prompts in it, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_prompts(Path("prompts.txt"))
    return tmp_path


def preprocess(*arguments: str, vocab: int = 300) -> None:
    """A corpus of the prompts, with a tokenizer of so many tokens in the folder `mine`."""
    Path("mine").mkdir(exist_ok=True)
    train_tokenizer(sample_prompts(), vocab).save(Path("mine"))
    tokenizer = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "mine"]
    files = ["--input", "prompts.txt", "--output-prefix", "prompts", "--append-eod", "--workers", "1"]
    assert run(["preprocess", *files, *tokenizer, *arguments]) == 0


def test_from_prompts_to_prompts(capsys: Captured) -> None:
    assert run(["train", *MAGIC, "--run-dir", "run"]) == 0
    said = capsys.readouterr().err
    assert "prepared 300 documents of prompts.txt, a line each" in said and "data: text prompts.txt\n" in said
    assert 'next: paddock generate run --prompt "The"\n' in said
    assert run(["generate", "run", "--prompt", "a cat in a garden", "--num-return-sequences", "4", *FEW, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [one["prompt"] for one in written] == ["a cat in a garden"] * 4
    assert run(["evaluate", "run"]) == 0
    told = capsys.readouterr()
    assert "val.perplexity" in told.out and "prepared" not in told.err
    assert losses(Path("run"), "val.loss")


MASKED = [
    *("--model.layers", "1", "--model.hidden", "32", "--model.heads", "2", "--model.vocab", "400"),
    *("--model.context", "32", "--data.sequence-length", "32", "--batch.micro", "4", "--batch.global", "4"),
    *("--tokenizer.kind", "trained", "--tokenizer.vocab", "None", "--tokenizer.lower-case", "false", "--steps", "2"),
]
SPANS = ["--model.layers", "1", "--batch.micro", "4", "--batch.global", "4", "--steps", "2"]


@pytest.mark.parametrize(
    ("recipe", "flags", "was", "next_command"),
    [
        ("bert/base-uncased", MASKED, "indexed", 'predict run "… [MASK] …"'),
        ("t5/tiny", SPANS, "embedded", 'generate run --prompt "… <extra_id_0> …"'),
        ("gpt2/tiny", SMALL, "embedded", 'generate run --prompt "The"'),
    ],
)
def test_a_path_alone_says_that_it_is_text(
    recipe: str, flags: list[str], was: str, next_command: str, capsys: Captured
) -> None:
    split = ["--data.split", "90,10,0", "--evaluate.batches", "1"]
    assert run(["train", recipe, *flags, *split, "--data.path", "prompts.txt", "--run-dir", "run"]) == 0
    said = capsys.readouterr().err
    assert f"note: data.source is text instead of {was}, since prompts.txt is a file of text by its name\n" in said
    assert "prepared 300 documents of prompts.txt" in said and f"next: paddock {next_command}\n" in said
    assert load_recipe("run/config.yaml").data.describe() == "text prompts.txt"
    assert run(["evaluate", "run"]) == 0
    told = capsys.readouterr()
    assert "val.perplexity" in told.out and "prepared" not in told.err and "data.source is" not in told.err


@pytest.mark.parametrize("name", ["in.txt", "in.jsonl", "in.json", "in.TXT.gz", "in.jsonl.zst", "in.parquet", "*.txt"])
def test_names_of_text(name: str, capsys: Captured) -> None:
    assert run(["train", "gpt2/tiny", "--data.path", name, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert f"note: data.source is text instead of embedded, since {name} is" in said.err
    assert "source: text" in said.out


def test_names_that_stay_what_they_were(capsys: Captured) -> None:
    Path("corpus.txt.idx").touch()
    for path in ("corpus", "corpus.txt", "corpus.bin", "0.5 a.txt 0.5 b.txt"):
        assert run(["train", "gpt2/117m", "--data.path", *path.split(), "--dry-run"]) == 0
        said = capsys.readouterr()
        assert "data.source is" not in said.err and "source: indexed" in said.out
    named = ["--data.source", "indexed", "--data.path", "in.txt"]
    assert run(["train", "gpt2/tiny", *named, "--tokenizer.kind", "none", "--dry-run"]) == 0
    assert "source: indexed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "fix"),
    [("gpt2/117m", "trained, gpt2 or file"), ("bert/base", "wordpiece"), ("t5/base", "sentencepiece")],
)
def test_text_that_nothing_turns_into_tokens(recipe: str, fix: str, capsys: Captured) -> None:
    none = ["--tokenizer.kind", "none", "--tokenizer.vocab", "None", "--tokenizer.model", "None"]
    none += ["--tokenizer.lower-case", "false"]
    assert run(["train", recipe, "--data.path", "prompts.txt", *none]) == 2
    assert f"fix: set --tokenizer.kind {fix}" in capsys.readouterr().err


def test_a_run_goes_on_with_its_own_tokenizer(workplace: Path, capsys: Captured) -> None:
    assert run(["train", *MAGIC, "--run-dir", "whole"]) == 0
    assert run(["train", *MAGIC, "--steps", "2", "--run-dir", "run", "--schedule.decay-steps", "3"]) == 0
    capsys.readouterr()
    assert run(["resume", "run", "--train.steps", "3"]) == 0
    said = capsys.readouterr().err
    assert "prepared" not in said and [line for line in said.splitlines() if line.startswith("changed: ")] == [
        "changed: train.steps 2 → 3"
    ]
    assert losses(Path("run")) == losses(Path("whole"))
    # Other text is read with it, too: none is learned from that.
    Path("others.txt").write_text("\n".join(sample_texts(40)).replace("\x0c", " "))
    assert run(["evaluate", "run", "--data.path", "others.txt"]) == 0
    assert len(list((workplace / "cache").glob("paddock/bpe-*"))) == 1


def test_a_preprocessed_corpus_needs_no_flags(capsys: Captured) -> None:
    preprocess()
    told = capsys.readouterr().err
    assert "next: paddock train gpt2/117m --data.path prompts_text_document\n" in told
    assert (
        run(["train", *TINY, "--data.source", "indexed", "--data.path", "prompts_text_document", "--run-dir", "run"])
        == 0
    )
    said = capsys.readouterr().err
    assert "note: the tokenizer is that of prompts_text_document\n" in said
    assert "next: paddock generate run" in said
    assert run(["generate", "run", "--prompt", "a cat", "--max-new-tokens", "4"]) == 0
    assert capsys.readouterr().out.startswith("a cat")
    assert run(["evaluate", "run"]) == 0
    recipe = load_recipe("run/config.yaml")
    assert (recipe.tokenizer.kind, recipe.tokenizer.path) == ("folder", "prompts_text_document.tokenizer")


def test_another_tokenizer_than_the_corpus_was_made_with(capsys: Captured) -> None:
    preprocess()
    for vocab, difference in ((290, "289 and 299 tokens"), (300, "token ")):
        Path("other").mkdir(exist_ok=True)
        train_tokenizer(sample_texts(50), vocab).save(Path("other"))
        named = ["--tokenizer.kind", "folder", "--tokenizer.path", "other"]
        indexed = ["--data.source", "indexed", "--data.path", "prompts_text_document"]
        capsys.readouterr()
        assert run(["train", *TINY, *indexed, *named, "--run-dir", "run"]) == 4
        said = capsys.readouterr().err
        assert "error: prompts_text_document was made with another tokenizer than the recipe's\n  why: " in said
        assert difference in said and "\n  fix: leave the recipe's out" in said
        assert not Path("run").exists()


def test_a_corpus_that_remembers_nothing_trains_as_ever(capsys: Captured) -> None:
    """As Megatron-LM leaves it: two files."""
    preprocess()
    for end in ("bin", "idx"):
        Path(f"prompts_text_document.{end}").rename(f"theirs.{end}")
    capsys.readouterr()
    indexed = ["--data.source", "indexed", "--data.path", "theirs"]
    assert run(["train", *TINY, *indexed, "--tokenizer.kind", "none", "--run-dir", "run"]) == 0
    said = capsys.readouterr().err
    assert "the tokenizer is that of" not in said and "next: paddock generate" not in said
    assert run(["evaluate", "run"]) == 0
    assert run(["train", *TINY, *indexed, "--tokenizer.kind", "file", "--tokenizer.path", "mine/tokenizer.json"]) == 0


def test_t5_finds_its_sentinels_beside_the_corpus(capsys: Captured) -> None:
    write_lines(Path("in.jsonl"), sample_texts(60))
    model = str(train_sentencepiece(Path()))
    files = ["--input", "in.jsonl", "--output-prefix", "corpus", "--split-sentences", "--workers", "1"]
    assert run(["preprocess", *files, "--tokenizer-name", "T5Tokenizer", "--vocab-file", model]) == 0
    Path(model).unlink()  # the recipe names it; it is not missed
    shape = ["--model.layers", "1", "--model.hidden", "16", "--model.heads", "2", "--model.head-size", "8"]
    sizes = ["--model.feed-forward", "16", "--model.vocab", "400", "--data.sequence-length", "32", "--steps", "1"]
    rest = ["--data.target-length", "16", "--batch.micro", "2", "--batch.global", "2", "--precision.compute", "float32"]
    assert (
        run(["train", "t5/base", "--data.path", "corpus_text_sentence", *shape, *sizes, *rest, "--run-dir", "run"]) == 0
    )
    assert "note: the tokenizer is that of corpus_text_sentence\n" in capsys.readouterr().err
    assert Path("run/spiece.model").is_file()


def test_finetuning_takes_the_tokenizer_of_the_weights(trained_run: Path, capsys: Captured) -> None:
    assert run(["convert", str(trained_run), "gpt2"]) == 0
    capsys.readouterr()
    assert run(["train", *MAGIC, "--checkpoint.load", "gpt2", "--run-dir", "run"]) == 0
    said = capsys.readouterr().err
    assert "note: the tokenizer is that of gpt2\n" in said and "begins from: weights of gpt2" in said
    theirs, ours = (load_tokenizer_folder(Path(name)) for name in ("gpt2", "run"))
    assert theirs is not None and ours is not None and tell_apart(theirs, ours) is None
    begins = metrics_of(next(record for record in read_metrics(Path("run/metrics.jsonl")) if "data" in record))
    assert begins["train.loss"] > 0
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (Path("gpt2") / name).unlink()
    assert run(["train", *MAGIC, "--checkpoint.load", "gpt2", "--run-dir", "other"]) == 4
    assert "error: gpt2 has no tokenizer\n" in capsys.readouterr().err
    assert not Path("other").exists()


def test_a_document_a_sample(capsys: Captured) -> None:
    whole, room = ["--data.samples", "padded"], ["--data.sequence-length", "8", "--model.context", "8"]
    assert run(["train", *MAGIC, *whole, *room, "--run-dir", "run"]) == 4
    said = capsys.readouterr().err
    assert "of the corpus has" in said and "--data.truncate" in said and not Path("run").exists()
    assert run(["train", *MAGIC, *whole, *room, "--data.truncate", "--run-dir", "run"]) == 0
    said = capsys.readouterr().err
    assert "documents have more than 9 tokens: they are cut\n" in said and "training documents and" in said


def test_one_document_is_split_inside(capsys: Captured) -> None:
    Path("book.txt").write_text("\n".join(sample_prompts()))
    one = ["gpt2/magicprompt-tiny", *SMALL, "--data.path", "book.txt", "--data.document", "file", "--run-dir", "run"]
    assert run(["train", *one]) == 0
    said = capsys.readouterr().err
    assert "note: the corpus is one document, split inside it: " in said and "val.loss" in said
    assert "prepared 1 document of book.txt: " in said and "data: text book.txt, a document a file\n" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "prompts.txt is empty"),
        (b"one\n\xff\n", "prompts.txt, line 2: invalid UTF-8"),
        (b"a\x00b", "prompts.txt, line 1: character 2 is a control character"),
        (b"one\ntwo\nthree\n", "the validation part is empty"),
    ],
)
def test_bad_text_is_an_error_before_there_is_a_run(content: bytes, said: str, capsys: Captured) -> None:
    Path("prompts.txt").write_bytes(content)
    assert run(["train", *MAGIC]) == 4
    told = capsys.readouterr().err
    assert said in told and "\n  fix: " in told
    assert not Path("runs").exists()


def test_no_path_at_all(capsys: Captured) -> None:
    assert run(["train", "gpt2/magicprompt"]) == 2
    assert "data.path is not set, and data.source = text reads it" in capsys.readouterr().err


def test_text_goes_into_preprocess_as_a_file(capsys: Captured) -> None:
    preprocess("--document", "file")
    assert IndexedTokens("prompts_text_document").num_documents == 1
    assert run(["data", "inspect", "prompts_text_document", "--documents", "1"]) == 0
    assert sample_prompts()[0] in capsys.readouterr().out
