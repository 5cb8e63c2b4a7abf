"""One small interface over the tokenizers library."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.data.config import TokenizerConfig
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

FILE_NAME = "tokenizer.json"


class Tokenizer:
    """Text to token ids and back, with a token that ends a document."""

    def __init__(self, engine: Engine, end_of_text: str) -> None:
        end = engine.token_to_id(end_of_text)
        if end is None:
            raise ConfigError(
                f'tokenizer.end_of_text = "{end_of_text}"',
                why="the tokenizer has no such token",
                fix="set --tokenizer.end-of-text to the token that ends a document",
            )
        self.engine = engine
        self.end_of_text = end_of_text
        self.end_of_text_id: int = end

    @property
    def vocab_size(self) -> int:
        return self.engine.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self.engine.encode(text, add_special_tokens=False).ids

    def encode_documents(self, texts: list[str]) -> list[list[int]]:
        """Each text as ids, ended by the end-of-text token."""
        encodings = self.engine.encode_batch(texts, add_special_tokens=False)
        return [[*encoding.ids, self.end_of_text_id] for encoding in encodings]

    def decode(self, ids: list[int]) -> str:
        return self.engine.decode(ids, skip_special_tokens=True)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and beside it the configuration that transformers looks for."""
        with atomic_write(folder / FILE_NAME) as stream:
            stream.write(self.engine.to_str(pretty=False))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.end_of_text,
            "eos_token": self.end_of_text,
            "unk_token": self.end_of_text,
            "clean_up_tokenization_spaces": False,
        }
        with atomic_write(folder / "tokenizer_config.json") as stream:
            json.dump(config, stream, indent=2)


def train_tokenizer(texts: Iterable[str], vocab: int, end_of_text: str) -> Tokenizer:
    """Learn a byte-level BPE, GPT-2's kind, from text."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers, trainers

    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[end_of_text],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    return Tokenizer(engine, end_of_text)


def load_tokenizer(config: TokenizerConfig) -> Tokenizer | None:
    """The tokenizer that a recipe's files describe; None where the recipe has none."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers

    if config.kind == "file":
        assert config.path is not None
        return Tokenizer(_read_engine(Path(config.path)), config.end_of_text)
    if config.kind == "gpt2":
        assert config.vocab is not None and config.merges is not None
        for path in (config.vocab, config.merges):
            if not Path(path).is_file():
                raise DataError(f"there is no tokenizer file {path}")
        try:
            engine = Engine(models.BPE.from_file(config.vocab, config.merges))
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{config.vocab} and {config.merges} are no BPE vocabulary", why=str(error)) from None
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        return Tokenizer(engine, config.end_of_text)
    return None


def load_tokenizer_folder(folder: Path, end_of_text: str = "<|endoftext|>") -> Tokenizer | None:
    """The tokenizer in a run directory, a prepared corpus or a Hugging Face folder, if there is one."""
    if (folder / FILE_NAME).is_file():
        config = folder / "tokenizer_config.json"
        if config.is_file():
            named = json.loads(config.read_text(encoding="utf-8")).get("eos_token") or end_of_text
            end_of_text = named if isinstance(named, str) else named.get("content", end_of_text)
        return Tokenizer(_read_engine(folder / FILE_NAME), end_of_text)
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    if vocab.is_file() and merges.is_file():
        return load_tokenizer(
            TokenizerConfig(kind="gpt2", vocab=str(vocab), merges=str(merges), end_of_text=end_of_text)
        )
    return None


def _read_engine(path: Path) -> Engine:
    from tokenizers import Tokenizer as Engine

    if not path.is_file():
        raise DataError(f"there is no tokenizer file {path}")
    try:
        return Engine.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{path} is no tokenizer.json", why=str(error)) from None
