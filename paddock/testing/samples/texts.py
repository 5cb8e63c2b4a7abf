"""Texts worth tokenizing, questions that a small model learns in a minute, and a vocabulary small enough to read."""

from __future__ import annotations

import io
import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock.data.config import TokenizerConfig
from paddock.data.language.embedded import embedded_documents
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.questions.synthetic import synthetic_squad
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import load_tokenizer

MakeJob = Callable[..., PreprocessJob]


def sample_texts(count: int = 300, seed: int = 0) -> list[str]:
    """Pieces of the embedded corpus, of very different lengths."""
    rng = random.Random(seed)
    source = "\n\n".join(embedded_documents())
    texts = []
    for _ in range(count):
        begin = rng.randrange(len(source))
        texts.append(source[begin : begin + int(rng.paretovariate(1.2) * 40)])
    return texts


def write_lines(path: Path, texts: list[str], key: str = "text") -> Path:
    """Texts as JSON lines, each with its number under a key that nobody asks for."""
    path.write_text("".join(json.dumps({key: text, "other": number}) + "\n" for number, text in enumerate(texts)))
    return path


THINGS = "a cat in a garden|a castle on a cliff|portrait of an old sailor|two robots playing chess|a lonely lighthouse"
STYLES = "oil on canvas|highly detailed|digital painting|soft light|concept art|sharp focus|by a famous painter|8 k"


def sample_prompts(count: int = 300, seed: int = 0) -> list[str]:
    """What people ask of image models: a thing, and words on how it should look."""
    rng = random.Random(seed)
    things, styles = THINGS.split("|"), STYLES.split("|")
    return [", ".join([rng.choice(things), *rng.sample(styles, rng.randint(1, 5))]) for _ in range(count)]


def write_prompts(path: Path, count: int = 300) -> Path:
    """Such prompts as plain text, a line each."""
    path.write_text("".join(f"{prompt}\n" for prompt in sample_prompts(count)), encoding="utf-8")
    return path


def write_squad(folder: Path, train: int = 3000, validation: int = 300, unanswerable: bool = False) -> Path:
    """Write a training and a validation file of so many questions, under their usual names; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    version = "v2.0" if unanswerable else "v1.1"
    for name, count, first in (("train", train, 0), ("dev", validation, 500_000)):
        content = synthetic_squad(count, first, unanswerable)
        (folder / f"{name}-{version}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("berlin", "the", "is", "in", "capital", "of", "who", "where", "germany", "##ing", "##s")
CHINESE = tuple("中国北京首都是哪里")


def write_vocabulary(folder: Path) -> Path:
    """Write it as a vocab.txt; returns the file."""
    characters = (*string.ascii_letters, *string.digits, *string.punctuation, *"éüß", *CHINESE)
    lines = [*SPECIAL, *characters, *(f"##{character}" for character in characters), *WORDS]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def train_sentencepiece(folder: Path, **options: Any) -> Path:
    """A small model as T5's: <pad>, </s>, <unk>, then the pieces; returns its file `spiece.model`."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter("\n".join(embedded_documents()[:20]).splitlines()),
        model_writer=model,
        **{
            **{"vocab_size": 300, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
            **{"minloglevel": 2, "num_threads": 1, **options},
        },
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    return folder / "spiece.model"


def word_tokenizer(folder: Path, lower_case: bool = True) -> EngineTokenizer:
    """The tokenizer of that vocabulary."""
    found = load_tokenizer(
        TokenizerConfig(kind="wordpiece", vocab=str(write_vocabulary(folder)), lower_case=lower_case)
    )
    assert isinstance(found, EngineTokenizer)
    return found
