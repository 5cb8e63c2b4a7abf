"""Small tokenizers, and jobs that use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.language.embedded import embedded_documents
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.tokenizers.load import train_tokenizer
from paddock.testing.samples.texts import MakeJob


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> TokenizerConfig:
    """GPT-2's kind of tokenizer, from vocab.json and merges.txt."""
    folder = tmp_path_factory.mktemp("gpt2")
    train_tokenizer(embedded_documents()[:20], 600).engine.model.save(str(folder))
    return TokenizerConfig(kind="gpt2", vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> TokenizerConfig:
    """BERT's kind of tokenizer, from a vocab.txt."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    marks = ".,;:!?'\"()-_*[]{}<>=+/\\@#%&|~`^$。！？中文"
    words = "the of and to is in that be as for are if an name class object value with def".split()
    path = tmp_path_factory.mktemp("bert") / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *marks, *letters, *(f"##{letter}" for letter in letters)]
    path.write_text("\n".join([*tokens, *words]) + "\n")
    return TokenizerConfig(kind="wordpiece", vocab=str(path), lower_case=True)


@pytest.fixture
def make_job(gpt2: TokenizerConfig, tmp_path: Path) -> MakeJob:
    """A job in a folder of its own; small chunks, so that there are many."""

    def make(*inputs: Path | str, **settings: object) -> PreprocessJob:
        defaults = {"output_prefix": str(tmp_path / "out"), "tokenizer": gpt2, "chunk_bytes": 4096}
        return PreprocessJob(inputs=tuple(map(str, inputs)), **{**defaults, **settings})  # type: ignore[arg-type]

    return make
