"""`paddock data`: what it prints, where, and how it ends."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.tokenizers.load import train_tokenizer
from paddock.testing.samples.corpora import INDEX, TOKENS, write_raw_corpus

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "a \x1b[31mred\tmat\nand a second line"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three documents, with their tokenizer in a folder `tokenizer`."""
    tokenizer = train_tokenizer(TEXTS, 300)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    with IndexedWriter(tmp_path / "corpus", tokenizer.vocab_size) as writer:
        for text in TEXTS:
            writer.add_document(tokenizer.encode(text))
    return tmp_path / "corpus"


def test_inspect(corpus: Path, capsys: Captured) -> None:
    assert run(["data", "inspect", str(corpus)]) == 0
    out = capsys.readouterr().out
    tokens = IndexedTokens(corpus)
    assert "mmap index, uint16 tokens" in out and f"tokens     {tokens.num_tokens}\n" in out
    assert "█" * 40 in out and "tokens a sequence" not in out
    assert f"document 1: {tokens.sizes[1]} tokens\n  " + " ".join(map(str, tokens[1])) in out


def test_inspect_decodes(corpus: Path, capsys: Captured) -> None:
    folder = corpus.parent / "tokenizer"
    for named in (folder, folder / "tokenizer.json"):
        assert run(["data", "inspect", str(corpus), "--tokenizer", str(named)]) == 0
        out = capsys.readouterr().out
        assert "  the cat sat on the mat\n" in out and "  the dog sat on the cat\n" in out
        assert "  a �[31mred�mat\n  and a second line\n" in out and "\x1b" not in out
    (folder / "tokenizer.json").rename(corpus.parent / "tokenizer.json")
    assert run(["data", "inspect", str(corpus), "--documents", "1"]) == 0
    out = capsys.readouterr().out
    assert "  the cat sat on the mat\n" in out and "dog" not in out


def test_inspect_with_vocabulary_files(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "data").mkdir()
    prefix = tmp_path / "data" / "corpus"
    with IndexedWriter(prefix, vocab=10) as writer:
        writer.add_document([2, 0, 1])
        writer.add_document([1, 1])
    both = ["--vocab-file", str(tmp_path / "vocab.json"), "--merge-file", str(tmp_path / "merges.txt")]
    assert run(["data", "inspect", str(prefix), *both]) == 0
    assert "  abab\n" in capsys.readouterr().out
    with IndexedWriter(prefix, vocab=10) as writer:
        writer.add_document([5, 6])
    assert run(["data", "inspect", str(prefix), "--vocab-file", str(tmp_path / "vocab.txt")]) == 0
    assert "  hello world\n" in capsys.readouterr().out
    assert run(["data", "inspect", str(prefix), "--merge-file", str(tmp_path / "merges.txt")]) == 2
    assert "--merge-file needs --vocab-file" in capsys.readouterr().err
    assert run(["data", "inspect", str(prefix), *both, "--tokenizer", str(tmp_path)]) == 2
    assert "more than one tokenizer" in capsys.readouterr().err
    assert run(["data", "inspect", str(prefix), "--tokenizer", str(tmp_path / "data")]) == 4
    assert "there is no tokenizer in" in capsys.readouterr().err
    assert run(["data", "inspect", str(prefix), "--tokenizer-model", str(tmp_path / "nowhere.model")]) in (3, 4)


def test_inspect_as_json(corpus: Path, capsys: Captured) -> None:
    assert run(["data", "inspect", str(corpus), "--tokenizer", str(corpus.parent / "tokenizer"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == 3 and report["samples"][2]["text"] == TEXTS[2]
    assert sum(part["count"] for part in report["histogram"]) == 3


def test_inspect_sequences_and_nothing(tmp_path: Path, capsys: Captured) -> None:
    assert run(["data", "inspect", str(write_raw_corpus(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "sequences  3 (1.5 a document)" in out and "tokens a sequence\n  mean 1.3   shortest 0" in out
    with IndexedWriter(tmp_path / "empty", vocab=10):
        pass
    assert run(["data", "inspect", str(tmp_path / "empty")]) == 0
    assert "documents  0" in capsys.readouterr().out


def test_merge(corpus: Path, capsys: Captured) -> None:
    folder = corpus.parent / "parts"
    folder.mkdir()
    write_raw_corpus(folder, name="b")
    write_raw_corpus(folder, name="a", index=INDEX)
    merge = ["data", "merge", str(corpus), "--input", str(folder), "--output-prefix", str(corpus.parent / "all")]
    assert run(merge) == 0
    captured = capsys.readouterr()
    merged = IndexedTokens(corpus.parent / "all")
    assert merged.num_documents == 7 and merged[0].tolist() == IndexedTokens(corpus)[0].tolist()
    assert captured.out == f"{corpus.parent / 'all'}: 7 documents, 9 sequences, {merged.num_tokens} tokens (uint16)\n"
    assert run(merge) == 2
    assert "all.bin is already there" in capsys.readouterr().err
    assert run([*merge, "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["merged"] == [str(corpus), str(folder / "a"), str(folder / "b")] and result["documents"] == 7


def test_merge_says_what_changes(corpus: Path, capsys: Captured) -> None:
    with IndexedWriter(corpus.parent / "wide", vocab=100_000) as writer:
        writer.add_document([99_999])
    prefixes = [str(corpus), str(corpus.parent / "wide")]
    assert run(["data", "merge", *prefixes, "--output-prefix", str(corpus.parent / "all")]) == 0
    captured = capsys.readouterr()
    assert "note: tokens are uint16" in captured.err and captured.out.endswith("(int32)\n")


def test_merge_refuses(tmp_path: Path, capsys: Captured) -> None:
    assert run(["data", "merge", "--output-prefix", str(tmp_path / "out")]) == 2
    assert "nothing to merge" in capsys.readouterr().err
    assert run(["data", "merge", str(tmp_path / "x"), "--output-prefix", str(tmp_path / "out")]) == 4
    assert "there is no" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_verify(corpus: Path, capsys: Captured) -> None:
    assert run(["data", "verify", str(corpus), "--vocab-size", "300"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok   {corpus}\n     3 documents, 3 sequences,") and captured.err == ""
    listed = hashlib.sha256(Path(f"{corpus}.bin").read_bytes()).hexdigest()
    assert f"sha256 {listed}  corpus.bin" in captured.out


def test_verify_finds_damage(corpus: Path, capsys: Captured) -> None:
    damaged = write_raw_corpus(corpus.parent, INDEX, TOKENS + b"??", name="damaged")
    short = write_raw_corpus(corpus.parent, INDEX[:50], name="short")
    command = ["data", "verify", str(corpus), str(damaged), str(short)]
    assert run(command) == 4
    captured = capsys.readouterr()
    assert f"FAIL {damaged}\n       the last 2 bytes of the .bin belong to no sequence\n" in captured.out
    assert f"FAIL {short}\n" in captured.out and "take 94 bytes, but it has 50" in captured.out
    assert "2 of 3 corpora are broken" in captured.err
    assert run([*command, "--json"]) == 4
    reports = json.loads(capsys.readouterr().out)
    assert [report["sound"] for report in reports] == [True, False, False]
    assert reports[1]["findings"][0]["count"] == 1
    assert run(["data", "verify", str(corpus), "--vocab-size", "20"]) == 4
    assert "tokens outside the vocabulary of 20: " in capsys.readouterr().out


def test_verify_refuses(capsys: Captured) -> None:
    assert run(["data", "verify"]) == 2
    assert run(["data", "verify", "x", "--vocab-size", "0"]) == 2
    assert "at least one token" in capsys.readouterr().err


def test_verbs_and_help(capsys: Captured) -> None:
    assert run(["data"]) == 2
    assert run(["data", "inspekt"]) == 2
    assert 'did you mean "inspect"?' in capsys.readouterr().err
    assert run(["data", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb} PREFIX" in out for verb in ("inspect", "merge", "verify"))


def test_help_teaches_and_is_free_of_torch() -> None:
    for verb, lesson in (("inspect", "--merge-file"), ("merge", "--input FOLDER"), ("verify", "--vocab-size 50257")):
        script = (
            "import sys; from paddock.cli.main import run\n"
            f"try: run(['data', '{verb}', '--help'])\n"
            "except SystemExit: pass\n"
            "print('torch' in sys.modules, file=sys.stderr)"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert result.stderr.strip().endswith("False") and lesson in result.stdout


def preprocessed(folder: Path, name: str, vocab: int = 300) -> str:
    """A corpus as users make one: it remembers its tokenizer."""
    (folder / f"{name}-tokenizer").mkdir()
    train_tokenizer(TEXTS, vocab).save(folder / f"{name}-tokenizer")
    (folder / f"{name}.txt").write_text("\n".join(TEXTS[:2]))
    files = ["--input", f"{folder / name}.txt", "--output-prefix", str(folder / name)]
    kind = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(folder / f"{name}-tokenizer")]
    assert run(["preprocess", *files, *kind, "--workers", "1"]) == 0
    return f"{folder / name}_text_document"


def test_what_a_corpus_remembers_is_used_and_passed_on(tmp_path: Path, capsys: Captured) -> None:
    one, other = (preprocessed(tmp_path, name) for name in ("one", "other"))
    assert f"next: paddock data inspect {other}\n" in capsys.readouterr().err
    assert run(["data", "inspect", one]) == 0
    assert "  the cat sat on the mat\n" in capsys.readouterr().out
    joined = str(tmp_path / "joined")
    assert run(["data", "merge", one, other, "--output-prefix", joined]) == 0
    assert run(["data", "inspect", joined]) == 0
    assert "  the dog sat on the cat\n" in capsys.readouterr().out
    assert run(["data", "merge", one, other, "--output-prefix", joined]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_merging_corpora_of_different_tokenizers(corpus: Path, tmp_path: Path, capsys: Captured) -> None:
    one, smaller = preprocessed(tmp_path, "one"), preprocessed(tmp_path, "smaller", 260)
    joined = tmp_path / "joined"
    capsys.readouterr()
    assert run(["data", "merge", one, smaller, "--output-prefix", str(joined)]) == 4
    assert "was made with another tokenizer than" in capsys.readouterr().err
    assert not list(tmp_path.glob("joined*"))
    assert run(["data", "merge", one, str(corpus), "--output-prefix", str(joined)]) == 0
    said = capsys.readouterr().err
    assert f"note: {corpus} does not say which tokenizer it was made with: {joined} will not, either" in said
    assert {path.name for path in tmp_path.glob("joined*")} == {"joined.bin", "joined.idx"}
