"""How well written texts match the right ones: exact match, BLEU and ROUGE-L, as sums over pairs of texts.

Sums can be added up over processes: of BLEU they are n-gram counts, so that the corpus is scored and no mean is taken
of the scores of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from paddock.errors import MachineError

UNSPACED = ("zh", "ja")
"""Languages that put no space between words: characters are compared."""
ORDERS = 4
"""BLEU looks at runs of up to so many tokens."""
_ENGLISH_WORD = re.compile("[a-z0-9]+")
_WORD = re.compile(r"[^\W_]+")
_CHARACTER = re.compile(r"[a-z0-9]+|[^\W_]")


class TextScorer:
    """Scores texts of one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        bleu = _sacrebleu().BLEU
        # Of sentences only the counts are taken; the setting keeps the library from warning about their scores.
        self._bleu = bleu(tokenize=bleu_tokenizer(language), effective_order=True)

    def sums(self, written: str, right: str) -> dict[str, float]:
        """What a pair adds to the sums."""
        found = self._bleu.sentence_score(written, [right])
        counts = {f"bleu_matches_{order}": count for order, count in enumerate(found.counts, start=1)}
        totals = {f"bleu_total_{order}": count for order, count in enumerate(found.totals, start=1)}
        lengths = {"bleu_written_length": found.sys_len, "bleu_right_length": found.ref_len}
        pair = {
            "written": 1.0,
            "exact_match": float(self._normal(written) == self._normal(right)),
            "rouge_l": rouge_l(rouge_tokens(written, self._language), rouge_tokens(right, self._language)),
        }
        return pair | {name: float(count) for name, count in (counts | totals | lengths).items()}

    def _normal(self, text: str) -> str:
        """Space does not count where there is some already or, in languages that put none, anywhere."""
        return ("" if self._language in UNSPACED else " ").join(text.split())


def text_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Percentages over all pairs that were added up."""
    count = max(sums.get("written", 0.0), 1.0)
    found = {name: 100.0 * sums.get(name, 0.0) / count for name in ("exact_match", "rouge_l")}
    matches, totals = (
        [int(sums.get(f"bleu_{kind}_{order}", 0)) for order in range(1, ORDERS + 1)] for kind in ("matches", "total")
    )
    lengths = (int(sums.get(f"bleu_{kind}_length", 0)) for kind in ("written", "right"))
    return found | {"bleu": _sacrebleu().BLEU.compute_bleu(matches, totals, *lengths).score}


def bleu_tokenizer(language: str) -> str:
    """sacrebleu's name for what finds the tokens of a language; its default, 13a, finds none inside Chinese text."""
    if language == "ja":
        return "ja-mecab" if find_spec("MeCab") is not None else "char"
    return "zh" if language == "zh" else "13a"


def rouge_tokens(text: str, language: str) -> list[str]:
    """Words of ASCII letters and digits in English, as the `rouge-score` package finds them (without stemming); words
    in other languages; characters where nothing stands between words."""
    pattern = _CHARACTER if language in UNSPACED else _ENGLISH_WORD if language == "en" else _WORD
    return pattern.findall(text.lower())


def rouge_l(written: Sequence[str], right: Sequence[str]) -> float:
    """The F-measure of the longest common subsequence."""
    common = longest_common_subsequence(written, right)
    return 2.0 * common / (len(written) + len(right)) if common else 0.0


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Its length. A row of the usual table is one number here, whose bits are computed at once: a bit that is 0 says
    that the table grows by one at this place."""
    shorter, longer = sorted((one, other), key=len)
    places: dict[str, int] = {}
    for place, token in enumerate(shorter):
        places[token] = places.get(token, 0) | 1 << place
    everything = (1 << len(shorter)) - 1
    row = everything
    for token in longer:
        met = row & places.get(token, 0)
        row = ((row + met) | (row - met)) & everything
    return len(shorter) - row.bit_count()


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MachineError(
            "BLEU needs the package sacrebleu",
            why=str(error),
            fix="pip install 'paddock[text]', or evaluate without writing: --data.generate never",
        ) from None
    return metrics
