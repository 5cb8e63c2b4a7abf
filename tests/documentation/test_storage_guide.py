"""The guide to storage: its commands run as they are written, against a store on this machine."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.files import user_cache
from paddock.objects.fetch import _copy_of
from paddock.testing.object_server import object_server
from paddock.testing.tiny import TINY

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "storage.md"
SMALLER = [*TINY[1:13], "--batch.micro", "2", "--batch.global", "4", "--evaluate.batches", "2"]


def make_data(folder: Path, tokenizer: Path) -> dict[str, bytes]:
    """What the guide finds in its bucket."""
    text = "".join(json.dumps({"text": f"The class {number} is a class."}) + "\n" for number in range(400))
    (folder / "text.jsonl").write_text(text)
    made = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(tokenizer), "--append-eod"]
    prefix = folder / "corpus"
    assert run(["preprocess", "--input", str(folder / "text.jsonl"), "--output-prefix", str(prefix), *made]) == 0
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("corpus_*") if path.is_file()}
    files |= {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.tokenizer/*")}
    found = {f"data/{name}": path.read_bytes() for name, path in files.items()}
    return found | {"data/texts/a.jsonl": text.encode(), "recipes/mine.yaml": b"extends: gpt2/tiny\n"}


def test_the_guide_runs(
    tmp_path: Path, trained_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "sh", "sh", "", "sh", "sh"]
    (tmp_path / "made").mkdir()
    objects = make_data(tmp_path / "made", trained_run / "tokenizer.json")
    monkeypatch.chdir(tmp_path)
    with object_server("bucket") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        for key, content in objects.items():
            server.put("bucket", key, content)
        said = ""
        for kind, block in blocks[2:]:
            for line in block.splitlines():
                if kind == "":
                    assert line in said.splitlines()
                    continue
                words = shlex.split(line)[1:]
                if words[0] == "resume":  # on another machine
                    shutil.rmtree("runs/tour")
                    shutil.rmtree(user_cache() / "objects")
                    _copy_of.cache_clear()
                capsys.readouterr()
                assert run([*words, *(SMALLER if words[0] == "train" else [])]) == 0, (line, capsys.readouterr().err)
                said = capsys.readouterr().err
        kept = server.buckets["bucket"]
    assert "runs/tour/checkpoints/step-00000012/checkpoint.json" in kept
    assert "output/V0001/config.yaml" in kept
    assert "s3://bucket/runs/tour/checkpoints/step-00000012" in Path("runs/next/config.yaml").read_text()
