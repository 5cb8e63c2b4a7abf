"""LAMBADA and perplexities are the same, to the last example, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddock.config.layouts import parse_layout
from paddock.config.load import merge
from paddock.config.measuring import for_measure, recipe_of_weights
from paddock.data.language.embedded import embedded_documents
from paddock.testing.measuring import measure, passages, write_language_model, write_passages
from paddock.testing.pool import ProcessPool

PoolOf = Callable[[int], ProcessPool]
COUNT = 61
"""That no number of processes divides."""


@pytest.fixture(scope="module")
def measures(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Recipes: LAMBADA in small batches, and a text in windows that slide."""
    place = tmp_path_factory.mktemp("measures")
    recipe = recipe_of_weights(str(write_language_model(place / "gpt2")))
    assert recipe is not None
    lambada = for_measure(recipe, "lambada", str(write_passages(place / "passages.jsonl", passages(COUNT))))
    (place / "text.txt").write_text(embedded_documents()[5][:1500], encoding="utf-8")
    text = for_measure(recipe, "text_perplexity", str(place / "text.txt"))
    return [
        merge(lambada.to_dict(), {"data": {"tokens_at_once": 200}}),
        merge(text.to_dict(), {"evaluate": {"stride": 20}}),
    ]


@pytest.mark.parametrize(
    ("processes", "layouts"),
    [
        (2, ["dp2", "tp2", "pp2", "tp2,sequence=true", "dp2,shard=parameters"]),
        (3, ["dp3"]),
        (4, ["dp2,tp2", "tp2,pp2", "dp2,pp2,shard=parameters", "pp4"]),
    ],
)
def test_every_layout_finds_the_same(
    pool_of: PoolOf, measures: list[dict[str, Any]], processes: int, layouts: list[str]
) -> None:
    (alone,) = pool_of(1).run(measure, measures)
    (lambada, records), _ = alone
    assert sorted(number for number, _, _ in records) == list(range(COUNT))
    assert 0 < lambada["lambada_accuracy"] < 1
    laid_out = [merge(values, parse_layout(layout)) for layout in layouts for values in measures]
    for process in pool_of(processes).run(measure, laid_out):
        for (metrics, found), (expected, wanted) in zip(process, alone * len(layouts), strict=True):
            assert metrics == {name: pytest.approx(value, rel=1e-6) for name, value in expected.items()}
            assert [[number, said] for number, _, said in sorted(found)] == [
                [number, said] for number, _, said in sorted(wanted)
            ]
