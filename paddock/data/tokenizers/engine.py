"""Tokenizers of the `tokenizers` library: byte-level BPE, WordPiece, and whatever a tokenizer.json describes."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paddock.data.tokenizers.interface import (
    LARGEST_FILE,
    Tokenizer,
    find_sentinels,
    library_errors,
    sentinel_name,
)
from paddock.documents import Document, Parser, read_text
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

FILE_NAME = "tokenizer.json"
CANNOT_ENCODE = "the tokenizer cannot encode this text"
MOST_MISSING = 100_000
"""Ids that a vocabulary may leave out, however small it is."""
BERT_NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BEGIN_AND_END = ("[BOS]", "[EOS]")
_SPACE_MARKS = ("Ġ", "▁")


class EngineTokenizer(Tokenizer):
    """A tokenizer that the library runs."""

    saved_settings: ClassVar[dict[str, Any]] = {}
    """What `save` writes down besides the special tokens."""

    def __init__(self, engine: Engine, end_of_text: str | None = None, named: Mapping[str, str] | None = None) -> None:
        self.engine = engine
        vocabulary = engine.get_vocab()
        self._size = max(vocabulary.values(), default=-1) + 1
        if self._size > 10 * len(vocabulary) + MOST_MISSING:
            raise DataError(
                f"the tokenizer's highest id is {self._size - 1}",
                why=f"it has {len(vocabulary)} tokens, so most of a model's vocabulary would stand for nothing",
                fix="number its tokens from 0 on",
            )
        super().__init__(end_of_text, named)

    @property
    def sentinels_descend(self) -> bool:
        from tokenizers import models

        return isinstance(self.engine.model, models.Unigram)

    @property
    def algorithm(self) -> str:
        return type(self.engine.model).__name__

    @property
    def cuts_by_longest_match(self) -> bool:
        """Whether it is WordPiece."""
        from tokenizers import models

        return isinstance(self.engine.model, models.WordPiece)

    @property
    def vocab_size(self) -> int:
        return self._size

    def id_of(self, token: str) -> int | None:
        return self.engine.token_to_id(token)

    def token_at(self, id: int) -> str:
        return self.engine.id_to_token(id) or ""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return self.encode_plain(texts)

    def encode_plain(self, texts: list[str]) -> list[list[int]]:
        with library_errors(CANNOT_ENCODE):
            return [encoding.ids for encoding in self.engine.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The same ids and, for each, the characters of the text as it was given that it stands for."""
        with library_errors(CANNOT_ENCODE):
            encodings = self.engine.encode_batch(texts, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def content(self) -> bytes:
        return self.engine.to_str().encode()

    def decode(self, ids: list[int]) -> str:
        with library_errors("the tokenizer cannot decode what was generated"):
            return self.engine.decode(ids, skip_special_tokens=True)

    def continuation(self) -> NDArray[np.bool_]:
        """Where words begin with a mark (BPE, Unigram), whatever has none continues one: punctuation, too."""
        from tokenizers import models

        model: Any = self.engine.model
        tokens = [self.token_at(id) for id in range(self.vocab_size)]
        prefix = getattr(model, "continuing_subword_prefix", None)
        starts = next((mark for mark in _SPACE_MARKS if any(token.startswith(mark) for token in tokens)), None)
        if prefix:
            continues = np.array([token.startswith(prefix) for token in tokens], dtype=np.bool_)
        elif starts is None or isinstance(model, models.WordLevel):
            return np.zeros(len(tokens), dtype=np.bool_)
        else:
            continues = np.array([not token.startswith(starts) for token in tokens], dtype=np.bool_)
        continues[list(self.engine.get_added_tokens_decoder())] = False
        return continues

    def save(self, folder: Path) -> None:
        with atomic_write(folder / FILE_NAME) as stream:
            stream.write(self.engine.to_str(pretty=False))
        begins = {} if self.end_of_text is None or "cls" in self.special else {"bos_token": self.end_of_text}
        self.write_config(folder, tokenizer_class="PreTrainedTokenizerFast", **begins, **self.saved_settings)


def train_bpe(
    texts: Iterable[str], vocab: int, end_of_text: str, extra_ids: int = 0, pads: bool = False
) -> EngineTokenizer:
    """Learn a byte-level BPE, GPT-2's kind, from text; with sentinels, which like T5's are the last ids, <extra_id_0>
    the very last, or with `pads`, it has a token for padding too."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers, trainers

    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    padding = ["<pad>"] if extra_ids or pads else []
    added = [*padding, *(sentinel_name(index) for index in reversed(range(extra_ids)))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(added),
        special_tokens=[end_of_text],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    engine.add_special_tokens(added)
    return EngineTokenizer(engine, end_of_text)


def train_wordpiece(texts: Iterable[str], vocab: int) -> EngineTokenizer:
    """Learn a WordPiece, BERT's uncased kind, from text, which is gone through twice: the same one wherever and
    whenever it is learned.

    The library numbers the characters that continue a word in the order of a hash table, another one each time, and
    numbers decide between pairs of equal count. So they are numbered beforehand, as if they were special.
    """
    from tokenizers import trainers

    learner = _finds_words(lower_case=True)
    distinct = {part for text in texts for part in text.split(" ")}  # much less than all of the text
    inner = {character for part in distinct for word in _words(learner, part) for character in word[1:]}
    fixed = [*BERT_NAMES, *(f"##{character}" for character in sorted(inner))]
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=fixed, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    return EngineTokenizer(_wordpiece(learner.get_vocab(), lower_case=True), "[SEP]")


def _finds_words(lower_case: bool) -> Engine:
    """What BERT does to a text before WordPiece."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import models, normalizers, pre_tokenizers

    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return engine


def _words(engine: Engine, text: str) -> list[str]:
    normal = engine.normalizer.normalize_str(text)
    return [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(normal)]


def _wordpiece(vocab: dict[str, int], lower_case: bool) -> Engine:
    from tokenizers import decoders, models, processors

    engine = _finds_words(lower_case)
    engine.model = models.WordPiece(vocab, unk_token="[UNK]")
    engine.decoder = decoders.WordPiece()
    engine.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    engine.add_special_tokens([name for name in BERT_NAMES if name in vocab])
    return engine


def read_bpe(
    vocab: Path, merges: Path, end_of_text: str | None = None, named: Mapping[str, str] | None = None
) -> EngineTokenizer:
    """GPT-2's kind, from its two files."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers

    for path in (vocab, merges):
        need_file(path)
    with library_errors(f"{vocab} and {merges} are no BPE vocabulary"):
        engine = Engine(models.BPE.from_file(str(vocab), str(merges)))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    tokenizer = EngineTokenizer(engine, end_of_text, named)
    engine.add_special_tokens(list(tokenizer.special.values()))
    return tokenizer


def read_wordpiece(path: Path, lower_case: bool, extra_ids: int = 0) -> Engine:
    """BERT's kind, from its vocab.txt. With `extra_ids`, what a T5 needs takes the ids behind the vocabulary, as in
    Megatron-LM and LiBai: [BOS], [EOS], and so many sentinels, <extra_id_0> first."""
    vocab = _read_lines(path)
    missing = [name for name in ("[UNK]", "[CLS]", "[SEP]") if name not in vocab]
    if missing:
        raise DataError(
            f"{path} is no WordPiece vocabulary",
            why=f"it has no line {' or '.join(missing)}",
            fix="give the vocab.txt of a BERT model: one token a line",
        )
    with library_errors(f"{path} is no WordPiece vocabulary"):
        engine = _wordpiece(vocab, lower_case)
    own = len(find_sentinels(vocab.get))
    check_sentinels(path, own, extra_ids or own)
    if extra_ids and max(vocab.values()) >= len(vocab):
        raise DataError(f"{path} has lines twice", why="ids behind the vocabulary would be taken", fix="remove them")
    if extra_ids and not own:
        engine.add_special_tokens([*BEGIN_AND_END, *(sentinel_name(index) for index in range(extra_ids))])
    return engine


def read_engine(path: Path) -> Engine:
    """Whatever a tokenizer.json describes."""
    from tokenizers import Tokenizer as Engine

    need_file(path)
    content = read_text(path, max_bytes=LARGEST_FILE)
    _check_maps(content, path)
    with library_errors(f"{path} is no tokenizer.json"):
        engine = Engine.from_str(content.decode())
    # Some files cut or fill every text to the length of one model's input.
    engine.no_truncation()
    engine.no_padding()
    return engine


class Normalizer(Document):
    """A step before tokenization, or several."""

    normalizers: list[Normalizer] = Field(default_factory=list)
    precompiled_charsmap: str | None = None


class TokenizerFile(Document):
    """What is looked at before the library sees a tokenizer.json."""

    normalizer: Normalizer | None = None


def _check_maps(content: bytes, path: Path) -> None:
    """The library takes the memory for a map of characters that the map itself asks for, up to 4 GB, or dies of it."""
    normalizer = Parser(TokenizerFile)(content, str(path)).normalizer
    waiting = [] if normalizer is None else [normalizer]
    while waiting:
        step = waiting.pop()
        waiting += step.normalizers
        if step.precompiled_charsmap is not None:
            try:
                content = b64decode(step.precompiled_charsmap)
            except ValueError as error:
                raise DataError(f"{path} is no tokenizer.json", why=f"a map of characters: {error}") from None
            if len(content) < 4 or int.from_bytes(content[:4], "little") > len(content) - 4:
                raise DataError(f"{path} is no tokenizer.json", why="a map of characters is truncated")


def need_file(path: Path) -> None:
    """An error that names the file, if it is not there."""
    if not os.path.isfile(path):
        raise DataError(f"there is no tokenizer file {path}", fix="check the path")
    if os.path.getsize(path) > LARGEST_FILE:
        raise DataError(f"{path} is no file of a tokenizer", why=f"it has more than {LARGEST_FILE:,} bytes")


def check_sentinels(path: Path, own: int, wanted: int) -> None:
    """A vocabulary that has sentinels gets no further ones."""
    if own and wanted != own:
        raise ConfigError(
            f"tokenizer.extra_ids = {wanted}",
            why=f"{path} has {own} sentinels of its own",
            fix=f"set --tokenizer.extra-ids {own}, or leave it out",
        )


def _read_lines(path: Path) -> dict[str, int]:
    need_file(path)
    try:
        with open(path, encoding="utf-8") as stream:
            return {line.rstrip("\n"): index for index, line in enumerate(stream)}
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no WordPiece vocabulary", why=f"it is not UTF-8 text: {error}") from None
