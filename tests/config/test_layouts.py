"""Layouts as texts, and the list of all that a recipe allows."""

from __future__ import annotations

import pytest

from paddock.config.layouts import layout_name, legal_layouts, parse_layout, with_layout, world_of_layout
from paddock.config.load import load_recipe
from paddock.errors import ConfigError

TINY = load_recipe("gpt2/tiny")  # 4 layers, 6 heads, global batch 8 in micro-batches of 4


def test_a_text_with_everything() -> None:
    text = "dp2,tp2,pp2,schedule=interleaved,shard=parameters,sequence=true,recompute=full,accumulation=4"
    recipe = with_layout(TINY, text)
    parallel = recipe.parallel
    assert (parallel.data, parallel.tensor, parallel.pipeline) == (2, 2, 2)
    assert (parallel.schedule, parallel.shard, parallel.recompute) == ("interleaved", "parameters", "full")
    assert parallel.sequence is True and parallel.stages == "auto"
    assert recipe.batch.accumulation == 4 and recipe.batch.micro is None and recipe.batch.global_ == 8
    assert world_of_layout(recipe).world == 8
    assert layout_name(parallel) + ",accumulation=4" == text


def test_a_text_says_the_whole_layout() -> None:
    before = with_layout(TINY, "dp2,tp2,shard=optimizer,sequence=true,recompute=selective")
    after = with_layout(before, "pp2")
    assert layout_name(after.parallel) == "pp2,recompute=selective"
    assert with_layout(after, "dp1").parallel.data == 1


def test_the_global_batch_stays() -> None:
    recipe = TINY.model_copy(update={"batch": TINY.batch.model_copy(update={"global_": None})})
    assert with_layout(recipe, "dp2,accumulation=1").batch.global_ == 4
    assert with_layout(with_layout(TINY, "dp2,accumulation=4"), "dp4,accumulation=2").batch.global_ == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither a size"),
        ("xp2", "neither a size"),
        ("dp0", "at least 1"),
        ("dp" + "9" * 5000, "at most 999,999,999"),
        ("dp²", "data is a number"),
        ("x" * 5000, "neither a size"),
        ("tpmany", "tensor is a number"),
        ("dp2,dp4", "says data twice"),
        ("dp2,shards=none", 'did you mean "shard"'),
        ("pp2,schedule=zvb", 'did you mean "zbv"'),
        ("dp2,accumulation=x", "accumulation is a number"),
        ("tp2,sequence=yes", "sequence cannot be"),
    ],
)
def test_wrong_texts(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_layout(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp4", "legal: 1, 2, 3, 6"),
        ("pp8", "legal: 1, 2, 3, 4"),
        ("dp3", "does not divide"),
        ("pp2,shard=optimizer", "no effect"),
        ("pp2,schedule=dualpipev", r"4 or more micro-batches(.|\n)*--batch.micro 2 \(4 micro-batches\)"),
        ("pp4", r"4 or more micro-batches(.|\n)*--batch.micro 2 \(4 micro-batches\)"),
        ("dp2,accumulation=8", "does not divide"),
        ("pp999999999", "less than or equal to 1048576"),
        ("pp1048576", "legal: 1, 2, 3, 4"),
        ("dp1048576", "does not divide"),
    ],
)
def test_impossible_layouts(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_layout(TINY, text)


def test_every_listed_layout_is_legal_and_has_the_right_size() -> None:
    for world in (1, 2, 3, 4, 6, 8):
        layouts = legal_layouts(TINY, world)
        assert len(layouts) == len(set(layouts)) > 0
        assert {world_of_layout(with_layout(TINY, text)).world for text in layouts} == {world}


def test_no_legal_layout_is_missing() -> None:
    assert legal_layouts(TINY, 1) == ["dp1"]
    assert legal_layouts(TINY, 2) == [
        *("dp2", "dp2,shard=optimizer", "dp2,shard=parameters", "tp2", "tp2,sequence=true"),
        *("pp2,schedule=gpipe", "pp2", "pp2,schedule=interleaved", "pp2,schedule=looped-bfs"),
        *("pp2,schedule=zero-bubble", "pp2,schedule=zbv", "pp2,schedule=dualpipev,accumulation=4"),
    ]
    assert legal_layouts(TINY, 5) == []  # 8 samples, 6 heads, 4 layers
    four = legal_layouts(TINY, 4)
    assert "pp4,accumulation=4" in four and not any("tp4" in text for text in four)
    assert not any("pp4" in text and "interleaved" in text for text in four)  # 8 stages of 4 layers
