"""What `paddock convert` writes appears when all of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.checkpoint.names import is_checkpoint
from paddock.data.tokenizers.load import load_tokenizer_folder, train_tokenizer
from paddock.jobs.convert import convert
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize


def test_a_checkpoint_gets_its_name_with_the_tokenizer_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer(["some words, and some more"] * 3, 300)
    model = GPT2(GPT2Config(hidden=8, layers=1, heads=2, vocab=300, context=8))
    initialize(model, 1)
    source, converted = tmp_path / "huggingface", tmp_path / "converted"
    save_folder(model.state_dict(), model.config, source, add_files=tokenizer.save)

    def interrupted(self: object, folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(tokenizer), "save", interrupted)
        convert(str(source), converted, "paddock", "float32")
    assert not converted.exists()
    convert(str(source), converted, "paddock", "float32")
    assert is_checkpoint(converted) and load_tokenizer_folder(converted) is not None
    assert not list(tmp_path.glob(".*")), "nothing half written is left"
