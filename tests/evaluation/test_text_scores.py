"""Exact match, BLEU and ROUGE-L, beside the packages that people know, however the texts are dealt out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from paddock.evaluation import text_scores
from paddock.evaluation.text_scores import (
    TextScorer,
    bleu_tokenizer,
    longest_common_subsequence,
    rouge_l,
    rouge_tokens,
    text_metrics,
)
from paddock.tasks.task import Judgement
from paddock.testing.samples.texts import sample_texts

CHINESE = [
    ("今天天气很好。", "今天的天气很好。"),
    ("我在北京学习 GPU 编程", "我在北京学习GPU编程"),
    ("不对", "完全没有"),
]


def scored(pairs: Sequence[tuple[str, str]], language: str) -> dict[str, float]:
    scorer, found = TextScorer(language), Judgement()
    for written, right in pairs:
        found.add(Judgement(scorer.sums(written, right)))
    return text_metrics(found.sums)


def english_pairs() -> list[tuple[str, str]]:
    """Texts and what a model might make of them: words left out, repeated, or in another place."""
    rng, pairs = random.Random(3), []
    for text in sample_texts(60):
        words = text.split()[:60]
        kept = [word for word in words if rng.random() < 0.8] + words[: rng.randrange(3)]
        pairs.append((" ".join(kept), " ".join(words)))
    return [*pairs, ("", "something"), ("Café 12.5%", "the CAFÉ: 12.5 percent")]


def test_bleu_is_that_of_the_corpus() -> None:
    pairs = english_pairs()
    expected = sacrebleu.corpus_bleu([one for one, _ in pairs], [[other for _, other in pairs]])
    assert scored(pairs, "en")["bleu"] == pytest.approx(expected.score, rel=1e-9) and 10 < expected.score < 90


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_sums_of_several_processes_are_those_of_one(parts: int) -> None:
    pairs, everything = english_pairs(), Judgement()
    for part in range(parts):
        scorer, found = TextScorer("en"), Judgement()
        for written, right in pairs[part::parts]:
            found.add(Judgement(scorer.sums(written, right)))
        everything.add(found)
    assert text_metrics(everything.sums) == pytest.approx(scored(pairs, "en"), rel=1e-12)


def test_chinese_is_compared_by_characters() -> None:
    found = scored(CHINESE, "zh")
    written, right = ([pair[side] for pair in CHINESE] for side in (0, 1))
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [right], tokenize="zh").score)
    assert found["bleu"] > 40 > scored(CHINESE, "en")["bleu"]
    assert found["exact_match"] == pytest.approx(100 / 3), "space between characters does not count"
    assert rouge_tokens("我在北京学习 GPU 编程！", "zh") == [*"我在北京学习", "gpu", *"编程"]
    assert found["rouge_l"] == pytest.approx(100 * (2 * 6 / 13 + 1 + 0) / 3)


def test_tokenizers_by_language(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bleu_tokenizer("zh") == "zh" and bleu_tokenizer("en") == bleu_tokenizer("de") == "13a"
    monkeypatch.setattr(text_scores, "find_spec", lambda name: object() if name == "MeCab" else None)
    assert bleu_tokenizer("ja") == "ja-mecab"
    monkeypatch.setattr(text_scores, "find_spec", lambda name: None)
    assert bleu_tokenizer("ja") == "char"


def test_rouge_l_is_that_of_the_package() -> None:
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    for written, right in english_pairs():
        expected = scorer.score(right, written)["rougeL"].fmeasure
        assert rouge_l(rouge_tokens(written, "en"), rouge_tokens(right, "en")) == pytest.approx(expected, abs=1e-12)
    assert rouge_tokens("Müde, größer", "de") == ["müde", "größer"]


@given(one=st.lists(st.sampled_from("abcd"), max_size=80), other=st.lists(st.sampled_from("abcd"), max_size=80))
def test_common_subsequences_are_those_of_the_table(one: list[str], other: list[str]) -> None:
    row = [0] * (len(other) + 1)
    for token in one:
        above = row
        row = [0]
        for place, candidate in enumerate(other):
            row.append(above[place] + 1 if token == candidate else max(above[place + 1], row[place]))
    assert longest_common_subsequence(one, other) == row[-1]


def test_common_subsequence_of_long_texts() -> None:
    """A table of 10¹⁰ places would never be filled here."""
    numbers = [str(number) for number in range(20_000)]
    assert longest_common_subsequence(numbers, [*numbers[::2], *numbers]) == 20_000


def test_exact_match_and_nothing_at_all() -> None:
    found = scored([("a b", "a  b "), ("A b", "a b"), ("ab", "a b")], "en")
    assert found["exact_match"] == pytest.approx(100 / 3)
    assert text_metrics({}) == {"exact_match": 0.0, "rouge_l": 0.0, "bleu": 0.0}
