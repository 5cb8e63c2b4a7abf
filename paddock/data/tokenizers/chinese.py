"""Marks of Chinese words, for masking whole words.

BERT reads Chinese character by character, and nothing in the tokens tells where a word ends. With these marks the
characters behind a word's first are written as continuations: 使用语言模型, three words, becomes
使 ##用 语 ##言 模 ##型.

The ids are those of "##用", "##言", "##型" in the vocabulary (bert-base-chinese has one for each of its characters);
a character whose marked form the vocabulary lacks keeps its own id, and begins a word. Taking the marks off again,
with `unmarked`, gives exactly the ids of the plain tokenizer: that is what BERT's model reads and predicts.

LiBai's `do_chinese_wwm` differs where a word has a character that the vocabulary does not know: there the whole word
is [UNK], here only that character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from paddock.data.tokenizers.engine import CANNOT_ENCODE, EngineTokenizer
from paddock.data.tokenizers.interface import library_errors
from paddock.errors import DataError, MachineError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

# The blocks whose characters BERT takes one by one.
_CHARACTER = (
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"  # 2b920, not 2b820: the library's own border
)
_RUN = re.compile(f"{_CHARACTER}+")
_MARKED = re.compile(f"##{_CHARACTER}")


class WholeWordTokenizer(EngineTokenizer):
    """BERT's WordPiece, with the characters behind the first of every Chinese word marked. The words are jieba's."""

    saved_settings: ClassVar[dict[str, Any]] = {"chinese_whole_words": True}

    def __init__(self, engine: Engine, end_of_text: str | None = None, named: Mapping[str, str] | None = None) -> None:
        from tokenizers import normalizers

        super().__init__(engine, end_of_text, named)
        self._vocabulary = engine.get_vocab()
        self._markable = {token[2:] for token in self._vocabulary if _MARKED.fullmatch(token)}
        if not self._markable:
            raise DataError(
                "tokenizer.chinese_whole_words: the vocabulary has no marked Chinese characters",
                why='a character inside a word needs a token of its own, such as "##国"',
                fix="use the vocabulary of bert-base-chinese or its like, or leave the marks out",
            )
        separating: Any = engine.normalizer
        if not isinstance(separating, normalizers.BertNormalizer):
            raise DataError(
                "tokenizer.chinese_whole_words: this tokenizer is none of BERT's kind",
                why="its normalizer is another one",
                fix="use the vocabulary of bert-base-chinese or its like, or leave the marks out",
            )
        self._joining = type(engine).from_str(engine.to_str())
        self._joining.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=False, lowercase=separating.lowercase
        )
        self._cleaning = normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False, lowercase=False)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        with library_errors(CANNOT_ENCODE):
            marked = [_RUN.sub(self._mark, self._cleaning.normalize_str(text)) for text in texts]
            return [encoding.ids for encoding in self._joining.encode_batch_fast(marked, add_special_tokens=False)]

    def unmarked(self) -> NDArray[np.int64]:
        ids = super().unmarked()
        for character in self._markable & self._vocabulary.keys():
            ids[self._vocabulary[f"##{character}"]] = self._vocabulary[character]
        return ids

    def _mark(self, run: re.Match[str]) -> str:
        """The words of a run of characters with spaces around each: WordPiece then marks what is inside a word."""
        output = []
        for word in self._segment(run.group()):
            joined = False  # whether a character may follow the one before it without a space
            for character in word:
                joined = joined and character in self._markable
                output.append(character if joined else f" {character}")
                joined = joined or character in self._vocabulary
        return "".join([*output, " "])

    @cached_property
    def _segment(self) -> Callable[[str], list[str]]:
        try:
            import jieba
        except ImportError as error:
            raise MachineError(
                "tokenizer.chinese_whole_words needs the package jieba, which finds the words",
                why=str(error),
                fix="pip install jieba, or leave the marks out",
            ) from None
        jieba.setLogLevel("WARNING")
        return partial(jieba.lcut, HMM=False)
