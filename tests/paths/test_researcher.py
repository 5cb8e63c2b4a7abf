"""From a text of one's own to a model that transformers loads, and that writes the same there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.testing.commands import paddock
from paddock.testing.samples.texts import sample_texts
from paddock.testing.tiny import TINY

PROMPT = "The class of the object"


def done(*words: str) -> str:
    """What a command prints for a pipe."""
    ended = paddock(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_own_text_to_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers: Any = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    texts = (text.replace("\x0c", " ") for text in sample_texts(300))
    Path("mine.txt").write_text("\n".join(texts), encoding="utf-8")

    corpus = ["--data.path", "mine.txt", "--data.source", "text", "--data.split", "8", "1", "1"]
    assert done("train", *TINY, *corpus, "--run-dir", "runs/mine") == "runs/mine\n"

    whole, part = (json.loads(done("evaluate", "runs/mine", *flags, "--json")) for flags in ([], ["--split", "test"]))
    assert whole["val.loss"] != part["val.loss"] and 0 < part["val.perplexity"] < 2048

    asked = ["--prompt", PROMPT, "--max-new-tokens", "12", "--temperature", "0", "--json"]
    [ours] = json.loads(done("generate", "runs/mine", *asked))
    assert done("convert", "runs/mine", "exported") == "exported\n"

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForCausalLM.from_pretrained("exported").eval()
    prompt = tokenizer(PROMPT, return_tensors="pt")
    [theirs] = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    new = theirs[prompt["input_ids"].shape[1] :].tolist()
    assert tokenizer.decode(new) == ours["text"] and len(new) == ours["tokens"]
