"""Tokenizers of the `sentencepiece` library, with T5's sentinels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from paddock.data.tokenizers.engine import CANNOT_ENCODE, check_sentinels, need_file
from paddock.data.tokenizers.interface import (
    LARGEST_FILE,
    Tokenizer,
    find_sentinels,
    library_errors,
    sentinel_name,
)
from paddock.documents import read_text
from paddock.errors import MachineError
from paddock.files import atomic_write

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

MODEL_NAME = "spiece.model"
USUAL_SENTINELS = 100
_OFF = {"", "off", "false", "f", "no", "n", "0"}  # what the `tokenizers` library takes for no


class SentencePieceTokenizer(Tokenizer):
    """A spiece.model and, behind its pieces, the sentinels: <extra_id_0> has the highest id, as in T5.

    A model with sentinels among its pieces (mT5's) uses those, and gets no others.
    """

    def __init__(self, source: Path | bytes, extra_ids: int | None = None, end_of_text: str | None = None) -> None:
        """`source` is the model's file, or its content."""
        path = source if isinstance(source, Path) else Path(MODEL_NAME)
        self._model = _read_model(path, source if isinstance(source, bytes) else None)
        self._pieces: int = self._model.get_piece_size()
        own = len(find_sentinels(self._id_of_piece))
        check_sentinels(path, own, extra_ids or own)
        self.added_sentinels = 0 if own else USUAL_SENTINELS if extra_ids is None else extra_ids
        """How many are behind the pieces."""
        self._sentinels = {sentinel_name(index): self.vocab_size - 1 - index for index in range(self.added_sentinels)}
        super().__init__(end_of_text, self._names_in_model())
        self._specials = {name: cast(int, self.id_of(name)) for name in [*self.special.values(), *self._sentinels]}
        self._split_at_specials = re.compile(f"({'|'.join(map(re.escape, self._specials))})").split

    @property
    def sentinels_descend(self) -> bool:
        return True

    @property
    def vocab_size(self) -> int:
        return self._pieces + self.added_sentinels

    def id_of(self, token: str) -> int | None:
        return self._sentinels.get(token, self._id_of_piece(token))

    def token_at(self, id: int) -> str:
        return self._model.id_to_piece(id) if id < self._pieces else sentinel_name(self.vocab_size - 1 - id)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        split = [self._split_at_specials(text) for text in texts]
        between = [part for parts in split for part in parts[::2]]
        with library_errors(CANNOT_ENCODE):
            encoded: Iterator[list[int]] = iter(self._model.encode(between, out_type=int, num_threads=_threads()))
        return [self._joined(parts[1::2], encoded) for parts in split]

    def _joined(self, specials: list[str], encoded: Iterator[list[int]]) -> list[int]:
        ids = next(encoded)
        for name in specials:
            ids.append(self._specials[name])
            ids.extend(next(encoded))
        return ids

    def content(self) -> bytes:
        return self._model.serialized_model_proto() + repr(self._specials).encode()

    def decode(self, ids: list[int]) -> str:
        hidden = set(self._specials.values())
        with library_errors("the tokenizer cannot decode what was generated"):
            return cast(str, self._model.decode([id for id in ids if id < self._pieces and id not in hidden]))

    def continuation(self) -> NDArray[np.bool_]:
        """A piece that begins with no space continues a word: punctuation, too."""
        continues = np.zeros(self.vocab_size, dtype=np.bool_)
        pieces = list(range(self._pieces))
        continues[pieces] = [not piece.startswith("▁") for piece in self._model.id_to_piece(pieces)]
        continues[pieces] &= ~np.array([self._model.is_control(pieces), self._model.is_unknown(pieces)]).any(axis=0)
        return continues

    def save(self, folder: Path) -> None:
        with atomic_write(folder / MODEL_NAME, "wb") as stream:
            stream.write(self.model_bytes())
        self.write_config(folder, tokenizer_class="T5Tokenizer", extra_ids=self.added_sentinels)

    def model_bytes(self) -> bytes:
        """The content of its file."""
        return self._model.serialized_model_proto()

    def _id_of_piece(self, piece: str) -> int | None:
        id = self._model.piece_to_id(piece)
        return id if self._model.id_to_piece(id) == piece else None  # the library answers with the unknown piece

    def _names_in_model(self) -> dict[str, str]:
        model = self._model
        ids = {"end_of_text": model.eos_id(), "pad": model.pad_id(), "cls": model.bos_id(), "unk": model.unk_id()}
        return {part: model.id_to_piece(id) for part, id in ids.items() if id >= 0}


def _read_model(path: Path, content: bytes | None) -> SentencePieceProcessor:
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise MachineError(
            f"{path} needs the package sentencepiece",
            why=str(error),
            fix="pip install 'paddock[text]'",
        ) from None

    if content is None:
        need_file(path)
        content = read_text(path, max_bytes=LARGEST_FILE)
    with library_errors(f"{path} is no SentencePiece model"):
        if not content:
            raise RuntimeError("it is empty")
        model = SentencePieceProcessor(model_proto=content)
        model.id_to_piece(list(range(model.get_piece_size())))  # the library does not look whether they are text
        return model


def _threads() -> int:
    """As many as the `tokenizers` library would use; -1 is one a core."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "on").lower() in _OFF:
        return 1
    wanted = os.environ.get("RAYON_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else -1
