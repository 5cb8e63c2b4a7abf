"""Every bad input: a clear message, the right exit code, no stack trace, nothing lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.checkpoint import storage
from paddock.cli.main import run
from paddock.data.indexed.writer import IndexedWriter
from paddock.testing.tiny import TINY, losses

DOING = {"starting", "preparing data", "converting", "loading the model"}
"""What a command may have said before."""
LONG = "n" * 300
"""A name that no file system takes."""
PIPELINE = ["--pipeline-model-parallel-size"]
STAGES = ["--num-layers-per-virtual-pipeline-stage"]
BERT = ["--tokenizer-type", "BertWordPieceCase"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["trian"], 2, 'no verb "trian"'),
        (["train"], 2, "needs a recipe"),
        (["evaluate"], 2, "needs a run or a model or a recipe"),
        (["train", "gpt2/tinny"], 2, '"gpt2/tiny"'),
        (["train", "nowhere/recipe.yaml"], 2, "no recipe file nowhere/recipe.yaml"),
        (["train", *TINY, "--nproc-per-node", "0"], 2, "--nproc-per-node = 0"),
        (["train", *TINY, "--batch.global", "9"], 2, "batch.global = 9"),
        (["train", *TINY, "--device", "cdua"], 2, "cdua"),
        (["train", *TINY, "--device", "npu"], 3, "torch_npu"),
        (["train", *TINY, "--checkpoint.load", "auto"], 2, "--run-dir"),
        (["train", "gpt2/117m"], 2, "data.path is not set"),
        (["train", "gpt2/117m", "--dataset", "nowhere_text_document"], 4, "there is no nowhere_text_document.idx"),
        (["evaluate", "nowhere"], 2, "there is no such run directory"),
        (["evaluate", "gpt2/tiny"], 2, "no weights to evaluate"),
        (["evaluate", *TINY, "--checkpoint.load", "nowhere"], 4, "there is no nowhere"),
        (["generate", "nowhere", "--prompt", "x"], 4, "there is no nowhere"),
        (["generate", "nowhere"], 2, "there is no prompt"),
        (["convert", "nowhere", "out"], 4, "there is no nowhere"),
        (["train", *TINY, "--nnodes", "0", "--dry-run"], 2, "--nnodes = 0"),
        (["train", *TINY, "--nnodes", "-1", "--dry-run"], 2, "--nnodes = -1"),
        (["train", *TINY, "--nproc-per-node", "0", "--dry-run"], 2, "--nproc-per-node = 0"),
        (["train", *TINY, "--nproc-per-node", "100000", "--dry-run"], 2, "--nproc-per-node = 100000"),
        (["train", *TINY, "--nnodes", "1000000", "--nproc-per-node", "8", "--dry-run"], 2, "= 8000000"),
        (["train", *TINY, "--dry-run", "--world", "1000000000", "--batch.global", "None"], 2, "--world = 1000000000"),
        (["check", "config", "gpt2/tiny", "--nnodes", "0"], 2, "--nnodes = 0"),
        (["train", *TINY, "--node-ips", "a,,b"], 2, "has an empty place"),
        (["train", *TINY, "--rank-table", "nowhere"], 4, "there is no rank table nowhere"),
        (["train", *TINY, "--simulate-nodes", "1"], 2, "--simulate-nodes = 1"),
        (["launch", "sbatch"], 2, "needs a command"),
        (["launch", "slurm"], 2, "has no form"),
        (["ranktable", "check", "nowhere"], 4, "there is no rank table nowhere"),
        (["ranktable", "mend", "nowhere"], 2, "has no verb"),
        (["ranktable", "make", "--devices", "8"], 2, "--devices = 8"),
        (["train", *TINY, "--num-nodes", "2", "--node-ips", "a..b," + "c" * 300], 2, "none of them is an address"),
        (["train", *TINY, *STAGES, "1", *PIPELINE, "0"], 2, "size = 0"),
        (["train", *TINY, *STAGES, "1", *PIPELINE, "x"], 2, "size = x"),
        (["train", *TINY, *STAGES, "9" * 5000, *PIPELINE, "2"], 2, "(5,000 characters)"),
        (["train", "gpt2", *STAGES, "1", *PIPELINE, "2", "--num-layers", "1" * 13], 2, "--num-layers = 11111"),
        (["train", *TINY, "--loss-scale-window", "inf"], 2, "--loss-scale-window = inf"),
        (["train", *TINY, "--train.seed", "9" * 30], 2, "a number of 64 bits"),
        (["train", LONG], 2, "there is no recipe"),
        (["train", f"{LONG}.yaml"], 2, "there is no recipe file"),
        (["train", *TINY, "--run-dir", LONG], 4, "File name too long"),
        (["train", *TINY, "--data.cache", f"/{LONG}"], 3, "File name too long"),
        (["train", *TINY, "--checkpoint.load", LONG], 4, LONG[:200]),
        (["train", "gpt2/117m", "--dataset", LONG], 4, "there is no"),
        (["train", "bert/tiny", "--data.source", "squad", "--data.path", LONG], 4, "there is no file or folder"),
        (["train", "resnet/18", "--data.path", LONG], 4, "there is no folder"),
        (["evaluate", LONG], 2, "there is no such run directory"),
        (["evaluate", *TINY, "--checkpoint.load", LONG], 4, LONG[:200]),
        (["generate", LONG, "--prompt", "x"], 4, LONG[:200]),
        (["generate", "nowhere", "--prompt-file", LONG], 4, "cannot read --prompt-file"),
        (["generate", "~nobody-of-this-name", "--prompt", "x"], 4, "~nobody-of-this-name"),
        (["predict", LONG, "x"], 4, LONG[:200]),
        (["predict", "nowhere", "x", "--output", f"{LONG}/x.csv"], 4, LONG[:200]),
        (["convert", LONG, "out"], 4, LONG[:200]),
        (["convert", "nowhere", LONG], 4, LONG[:200]),
        (["data", "inspect", LONG], 4, "there is no"),
        (["data", "merge", LONG, "--output-prefix", "x"], 4, "there is no"),
        (["preprocess", *BERT, "--vocab-file", LONG, "--input", __file__, "--output-prefix", "y"], 4, "there is no"),
        (["preprocess", *BERT, "--vocab-file", "x", "--input", LONG, "--output-prefix", "y"], 4, "File name too long"),
        (["check"], 2, "needs to know what to check"),
        (["check", "confg", "gpt2/tiny"], 2, '"config"'),
    ],
)
def test_what_cannot_work(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
    captured = capsys.readouterr()
    before, found, error = captured.err.partition("error: ")
    assert found and message in error and set(before.splitlines()) <= DOING
    assert captured.out == "" and "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_a_run_is_never_overwritten(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained_run / "metrics.jsonl").read_bytes()
    assert run(["train", *TINY, "--run-dir", str(trained_run)]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (trained_run / "metrics.jsonl").read_bytes() == before


def test_a_folder_in_place_of_a_run_or_a_recipe(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained_run / "checkpoints"
    assert run(["evaluate", str(folder)]) == 2
    assert f"RECIPE --checkpoint.load {folder}" in capsys.readouterr().err


def test_a_run_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "file" / "run")]) == 3
    assert "cannot write" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EROFS, "the file system is read-only"),
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "may not write"),
        (errno.ENOENT, "cannot be made there"),
    ],
)
def test_a_read_only_or_full_run_directory(
    number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Path.mkdir

    def refuse(path: Path, *arguments: object, **options: object) -> None:
        if "locked" in path.parts:
            raise OSError(number, os.strerror(number))
        make(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "locked" / "run")]) == 3
    captured = capsys.readouterr().err
    assert "error: cannot write" in captured and message in captured


def test_a_disk_that_fills_up_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = storage.write_pieces
    writes: list[int] = []

    def fill_up(*arguments: object) -> object:
        writes.append(1)
        if len(writes) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_pieces", fill_up)
        assert run(["train", *TINY, "--run-dir", str(tmp_path / "run")]) == 3
    assert "No space left on device" in capsys.readouterr().err
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "run"), "--checkpoint.load", "auto"]) == 0
    assert len(losses(tmp_path / "run")) == 6  # it went on from the checkpoint before


def test_an_empty_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexedWriter(tmp_path / "empty", vocab=512):
        pass
    corpus = ["--data.source", "indexed", "--tokenizer.kind", "none", "--data.path", str(tmp_path / "empty")]
    assert run(["train", *TINY, *corpus, "--run-dir", str(tmp_path / "run")]) == 4
    assert "holds no tokens" in capsys.readouterr().err


def test_a_corpus_of_another_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexedWriter(tmp_path / "large", vocab=60000) as writer:
        for _ in range(40):
            writer.add_document([50000] * 40)
    corpus = ["--data.source", "indexed", "--tokenizer.kind", "none", "--data.path", str(tmp_path / "large")]
    assert run(["train", *TINY, *corpus, "--run-dir", str(tmp_path / "run")]) == 4
    assert "the corpus has token 50000, but model.vocab = 512" in capsys.readouterr().err


def test_a_validation_part_without_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with IndexedWriter(tmp_path / "small", vocab=512) as writer:
        for _ in range(2):  # a single one would be split inside
            writer.add_document([1] * 200)
    corpus = ["--data.source", "indexed", "--tokenizer.kind", "none", "--data.path", str(tmp_path / "small")]
    assert run(["train", *TINY, *corpus, "--run-dir", str(tmp_path / "run")]) == 4
    assert "the validation part is empty" in capsys.readouterr().err


def test_a_damaged_checkpoint(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    broken = tmp_path / "run"
    shutil.copytree(trained_run, broken, symlinks=True)
    file = next((broken / "checkpoints" / "step-00000006").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-10])
    for command in (
        ["evaluate", str(broken)],
        ["generate", str(broken), "--prompt", "x", "--max-new-tokens", "4"],
        ["train", *TINY, "--steps", "8", "--checkpoint.load", "auto", "--run-dir", str(broken)],
    ):
        assert run(command) == 4
        assert f"step-00000006/{file.name} is damaged" in capsys.readouterr().err
    earlier = ["--checkpoint.load", str(broken / "checkpoints" / "step-00000003"), "--run-dir", str(tmp_path / "b")]
    assert run(["train", *TINY, *earlier]) == 0
    assert losses(tmp_path / "b") == losses(trained_run)[3:]


def test_a_checkpoint_of_another_model(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--checkpoint.load", str(trained_run), "--run-dir", str(tmp_path / "run")]
    assert run(["train", *TINY, *flags, "--model.layers", "3"]) == 2
    assert "layers: 2 in the checkpoint, 3 here" in capsys.readouterr().err
    assert run(["train", *TINY, *flags, "--run-dir", str(tmp_path / "b"), "--model.hidden", "64"]) == 2
    assert "hidden: 32 in the checkpoint, 64 here" in capsys.readouterr().err


def test_a_huggingface_folder_with_a_missing_tensor(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    assert run(["convert", str(trained_run), str(tmp_path / "hf")]) == 0
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.bias"]
    save_file(weights, tmp_path / "hf" / "model.safetensors", metadata={"format": "pt"})
    for command in (
        ["generate", str(tmp_path / "hf"), "--prompt", "x", "--max-new-tokens", "4"],
        ["train", *TINY, "--checkpoint.load", str(tmp_path / "hf"), "--run-dir", str(tmp_path / "run")],
        ["convert", str(tmp_path / "hf"), str(tmp_path / "back"), "--to", "paddock"],
    ):
        assert run(command) == 4
        assert "transformer.h.1.mlp.c_fc.bias" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_prompts(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["generate", str(trained_run)]
    assert run([*base, "--prompt", "word " * 100]) == 2
    assert "the model's context is 32" in capsys.readouterr().err
    assert run([*base, "--prompt", "A", "--max-new-tokens", "64"]) == 2
    assert "--max-new-tokens 31" in capsys.readouterr().err
    assert run([*base, "--prompt", "A", "--temperature", "-1"]) == 2
    assert run([*base, "--prompt-file", str(tmp_path / "nowhere")]) == 4
    assert run([*base, "--prompt", "a\udcff"]) == 4  # a byte of the command line that is no text
    assert "--prompt is not text in UTF-8" in capsys.readouterr().err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert run([*base, "--prompt-file", str(tmp_path / "binary")]) == 4
    assert "is not text in UTF-8" in capsys.readouterr().err


def test_destinations(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(trained_run), str(tmp_path)]) == 2
    assert "is already there" in capsys.readouterr().err
    assert run(["convert", str(trained_run), str(tmp_path / "x"), "--to", "paddock"]) == 2
    assert "--to huggingface" in capsys.readouterr().err


def test_numbers_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--optimizer.lr", "1e30", "--optimizer.clip", "None", "--schedule.warmup", "0"]
    assert run(["train", *TINY, *flags, "--run-dir", str(tmp_path / "run")]) == 5
    errors = capsys.readouterr().err
    assert "error: step 2: loss" in errors and "not finite" in errors and "--optimizer.lr" in errors


def test_debug_shows_the_stack(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError):
        run(["train", "gpt2/tinny", "--debug"])


def test_help_does_not_import_torch_nor_build_validators() -> None:
    pages = ("train", "generate", "zoo check", "zoo wrap")
    for arguments in (["--help"], ["train", "gpt2/tiny", "--dry-run"], *([*page.split(), "--help"] for page in pages)):
        script = (
            "import sys; from paddock.cli.main import run\n"
            f"try: run({arguments!r})\n"
            "except SystemExit: pass\n"
            "print('torch' in sys.modules, 'pydantic.plugin._loader' in sys.modules, file=sys.stderr)"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        checks_values = "--dry-run" in arguments
        assert result.stderr.strip().endswith(f"False {checks_values}"), arguments
        assert result.stdout


def test_the_help_of_training_imports_nothing_that_looks_for_machines_or_packages() -> None:
    script = (
        "import sys; from paddock.cli.main import run\n"
        "try: run(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('importlib.metadata', 'paddock.launch.placement', 'socket') if name in sys.modules],"
        " file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stderr == "[]\n" and result.stdout


@pytest.mark.parametrize("columns", ["1", "2", "0", "-3", "abc", "²", "1000000000", "9" * 5000])
def test_a_help_page_for_any_width(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns, "LINES": columns}
    result = subprocess.run(
        [sys.executable, "-m", "paddock", "generate", "--help"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0 and "--max-new-tokens" in result.stdout and not result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 400


def test_a_reader_that_leaves_early() -> None:
    command = f"{sys.executable} -m paddock train --help | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "0"
    assert "Traceback" not in result.stderr
