"""A tokenizer with fewer tokens: those that some text uses, in their order, so that the text is encoded as before.

What else stays: special tokens, sentinels and bytes; and what decides how text is cut, though it is not in the result.
Unigram weighs an unknown character by the lowest score of all pieces, a symbol of the user's by the highest, and takes
a character for unknown only if it is no piece itself; WordPiece gives up a word behind the longest pieces that match.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.interface import Tokenizer
from paddock.data.tokenizers.sentencepiece import SentencePieceTokenizer
from paddock.documents import parse_json
from paddock.errors import DataError

Mask = NDArray[np.bool_]
_UNIGRAM = 1
"""A SentencePiece model's type; others build their pieces out of pieces that are not in the result."""
_NORMAL, _UNUSED = 1, 5
"""Types of pieces that may go."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class TrimmedTokenizer:
    """The smaller tokenizer, and the old id of each of its tokens."""

    tokenizer: Tokenizer
    kept: NDArray[np.int64]


def trim_tokenizer(tokenizer: Tokenizer, used: Mask) -> TrimmedTokenizer:
    """The tokenizer without the tokens that are not `used`, by id, and that nothing else needs."""
    used = used.copy()
    used[tokenizer.unmarked()[np.flatnonzero(used)]] = True
    used[[id for part in tokenizer.special if (id := tokenizer.special_id(part)) is not None]] = True
    used[tokenizer.sentinel_ids] = True
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _trim_sentencepiece(tokenizer, used)
    if isinstance(tokenizer, EngineTokenizer):
        return _trim_engine(tokenizer, used)
    raise _cannot(type(tokenizer).__name__)


def check_trimmable(tokenizer: Tokenizer) -> None:
    """An error, if no token of the tokenizer could be left out."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        kind = _Model(tokenizer.model_bytes()).kind
        if kind != _UNIGRAM:
            raise _cannot({2: "BPE", 3: "word", 4: "character"}.get(kind, "unknown") + " model of SentencePiece")
    elif isinstance(tokenizer, EngineTokenizer):
        kind = _described(tokenizer)["model"]["type"]
        if kind not in ("Unigram", "WordPiece"):
            raise _cannot(f"{kind} tokenizer")


def half_matched(tokenizer: EngineTokenizer, word: str) -> list[int]:
    """The pieces of WordPiece that match a word before one is missing and the word becomes unknown: with shorter ones
    in their place, it might become something else."""
    normalizer, prefix = tokenizer.engine.normalizer, getattr(tokenizer.engine.model, "continuing_subword_prefix", "")
    word = word if normalizer is None else normalizer.normalize_str(word)
    found: list[int] = []
    begin = 0
    while begin < len(word):
        ends = range(len(word), begin, -1)
        ids = (tokenizer.id_of((prefix if begin else "") + word[begin:end]) for end in ends)
        match = next(((id, end) for id, end in zip(ids, ends, strict=True) if id is not None), None)
        if match is None:
            break
        found.append(match[0])
        begin = match[1]
    return found


def _cannot(kind: str) -> DataError:
    return DataError(
        f"the vocabulary of a {kind} cannot be trimmed",
        why="its tokens are made of others, or not known here: without some, text would be cut otherwise",
        fix="Unigram (a spiece.model or a tokenizer.json of T5 or mT5) and WordPiece can be trimmed",
    )


def _needed_by_unigram(pieces: Sequence[str], scores: NDArray[np.float64], normal: Mask, used: Mask) -> Mask:
    """Which pieces Unigram needs, to cut text that consists of the used ones as before."""
    needed: Mask = used | ~normal
    characters = {character for index in np.flatnonzero(used).tolist() for character in pieces[index]}
    needed |= np.fromiter((len(piece) == 1 and piece in characters for piece in pieces), np.bool_, len(pieces))
    ordinary = np.flatnonzero(normal)
    if len(ordinary):
        needed[ordinary[[scores[ordinary].argmin(), scores[ordinary].argmax()]]] = True
    return needed


def _trim_engine(tokenizer: EngineTokenizer, used: Mask) -> TrimmedTokenizer:
    from tokenizers import Tokenizer as Engine

    described = _described(tokenizer)
    model, added = described["model"], described["added_tokens"]
    used[[token["id"] for token in added]] = True
    if model["type"] == "Unigram":
        pieces = [piece for piece, _ in model["vocab"]]
        normal = np.fromiter((_BYTE.fullmatch(piece) is None for piece in pieces), np.bool_, len(pieces))
        normal[model["unk_id"] or 0] = model["unk_id"] is None
        scores = np.array([score for _, score in model["vocab"]], np.float64)
        used[: len(pieces)] = _needed_by_unigram(pieces, scores, normal, used[: len(pieces)])
    kept = np.flatnonzero(used)
    kept = kept[[bool(tokenizer.token_at(id)) for id in kept.tolist()]]
    new_ids = {old: new for new, old in enumerate(kept.tolist())}
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][old] for old in kept.tolist() if old < len(model["vocab"])]
        model["unk_id"] = None if model["unk_id"] is None else new_ids[model["unk_id"]]
    else:
        model["vocab"] = {token: new_ids[id] for token, id in model["vocab"].items() if id in new_ids}
    for token in added:
        token["id"] = new_ids[token["id"]]
    _renumber(described["post_processor"], new_ids)
    engine = Engine.from_str(json.dumps(described))
    return TrimmedTokenizer(type(tokenizer)(engine, tokenizer.end_of_text, tokenizer.special), kept)


def _described(tokenizer: EngineTokenizer) -> dict[str, Any]:
    """Its tokenizer.json, as the library writes it."""
    described: dict[str, Any] = parse_json(tokenizer.engine.to_str(), "tokenizer.json")
    return described


def _renumber(processor: dict[str, Any] | None, new_ids: dict[int, int]) -> None:
    """The ids in a tokenizer.json of what is put around a text."""
    if processor is None:
        return
    for inner in processor.get("processors", ()):
        _renumber(inner, new_ids)
    for token in (processor.get("special_tokens") or {}).values():
        token["ids"] = [new_ids[id] for id in token["ids"]]
    for part in ("sep", "cls"):
        if part in processor:
            name, id = processor[part]
            processor[part] = [name, new_ids[id]]


def _trim_sentencepiece(tokenizer: SentencePieceTokenizer, used: Mask) -> TrimmedTokenizer:
    model = _Model(tokenizer.model_bytes())
    count = len(model.pieces)
    normal = np.isin(model.types, (_NORMAL, _UNUSED))
    keep = _needed_by_unigram(model.pieces, model.scores, normal, used[:count])
    kept = np.flatnonzero(keep)
    smaller = SentencePieceTokenizer(model.with_pieces(kept.tolist()), tokenizer.added_sentinels, tokenizer.end_of_text)
    return TrimmedTokenizer(smaller, np.concatenate([kept, np.arange(count, tokenizer.vocab_size)]))


class _Model:
    """A SentencePiece model file, as far as trimming goes: a list of pieces, of which a piece's place is its id, and
    settings that name some ids. It is a message of protocol buffers; whatever is not looked at stays byte for byte."""

    _SETTINGS = 2
    _KIND, _SIZE = 3, 4
    _IDS: ClassVar[dict[int, int]] = {40: 0, 41: 1, 42: 2, 43: -1}
    """The fields of the unknown, the first, the last and the padding piece, and the ids that go without saying."""

    def __init__(self, content: bytes) -> None:
        entries = [(number, bytes(value)) for number, value in _fields(content) if isinstance(value, bytes)]
        self._pieces = [value for number, value in entries if number == 1]
        self._settings = next((value for number, value in entries if number == self._SETTINGS), b"")
        self._others = [entry for entry in entries if entry[0] not in (1, self._SETTINGS)]
        read = [dict(_fields(piece)) for piece in self._pieces]
        self.pieces = [value.decode() if isinstance(value := one.get(1, b""), bytes) else "" for one in read]
        self.scores = np.array([_float(one.get(2)) for one in read], np.float64)
        self.types = np.array([one.get(3, _NORMAL) for one in read], np.int64)
        kind = dict(_fields(self._settings)).get(self._KIND, _UNIGRAM)
        self.kind = kind if isinstance(kind, int) else 0

    def with_pieces(self, kept: list[int]) -> bytes:
        """The file of these pieces alone."""
        new_ids = {old: new for new, old in enumerate(kept)}
        before = dict(_fields(self._settings))
        numbers: dict[int, int] = {self._SIZE: len(kept)}
        for number, usual in self._IDS.items():
            old = before.get(number, usual)
            assert isinstance(old, int)
            numbers[number] = new_ids.get(old, -1)
        settings = b"".join(_raw_fields(self._settings, without=numbers))
        settings += b"".join(_varint(number << 3) + _varint(value % 2**64) for number, value in numbers.items())
        messages = [(1, self._pieces[old]) for old in kept] + [(self._SETTINGS, settings)] + self._others
        return b"".join(_varint(number << 3 | 2) + _varint(len(value)) + value for number, value in messages)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not content[at - 1] & 0x80:
            return value, at


def _places(content: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, form, beginning, beginning of the value and end of each field of a message."""
    at = 0
    while at < len(content):
        begin = at
        key, at = _read_varint(content, at)
        form = key & 7
        if form == 0:
            value, at = at, _read_varint(content, at)[1]
        elif form == 2:
            length, value = _read_varint(content, at)
            at = value + length
        else:  # numbers of 8 or 4 bytes
            value, at = at, at + (8 if form == 1 else 4)
        yield key >> 3, form, begin, value, at


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: whole numbers (signed, of 64 bits), and the bytes of all else."""
    for number, form, _, value, end in _places(content):
        if form == 0:
            whole = _read_varint(content, value)[0]
            yield number, whole - 2**64 if whole >= 2**63 else whole
        else:
            yield number, content[value:end]


def _raw_fields(content: bytes, without: Collection[int]) -> Iterator[bytes]:
    for number, _, begin, _, end in _places(content):
        if number not in without:
            yield content[begin:end]


def _float(value: int | bytes | None) -> float:
    return struct.unpack("<f", value)[0] if isinstance(value, bytes) else 0.0
