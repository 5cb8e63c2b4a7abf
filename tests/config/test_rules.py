"""The rules that span sections, with the numbers and the fix in each message."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_evaluation, check_recipe, examine
from paddock.errors import ConfigError
from paddock.parallel.config import ScheduleName
from paddock.parallel.legality import takes_micro_batches


def tiny(**sections: dict[str, Any]) -> Recipe:
    return recipe_from_dict(merge(load_recipe("gpt2/tiny").to_dict(), sections))


@pytest.mark.parametrize(
    ("batch", "world", "expected"),
    [
        ({"micro": 8, "global": 16}, 1, (8, 2, 1)),
        ({"micro": 8, "global": 16}, 2, (8, 1, 2)),
        ({"micro": 4, "global": None}, 2, (4, 1, 2)),
        ({"micro": 4, "global": None, "accumulation": 3}, 2, (4, 3, 2)),
        ({"micro": None, "global": 24, "accumulation": 3}, 2, (4, 3, 2)),
        ({"micro": 4, "global": 24, "accumulation": 3}, 2, (4, 3, 2)),
    ],
)
def test_batch_arithmetic(batch: dict[str, Any], world: int, expected: tuple[int, int, int]) -> None:
    plan = check_recipe(tiny(batch=batch), world).batch
    assert (plan.micro, plan.accumulation, plan.data) == expected
    assert plan.total == plan.micro * plan.accumulation * world


@pytest.mark.parametrize(
    ("batch", "world", "message"),
    [
        ({"micro": 3, "global": 16}, 1, r"batch\.global = 16(.|\n)*micro 3 × data 1 = 3(.|\n)*15 or 18"),
        ({"micro": 8, "global": 16}, 3, r"micro 8 × data 3 = 24(.|\n)*--batch.global 24"),
        ({"micro": None, "global": 16}, 3, r"data 3 × accumulation 1 = 3"),
        ({"micro": None, "global": None}, 1, r"both None"),
        ({"micro": 8, "global": 16, "accumulation": 4}, 1, r"accumulation = 4(.|\n)*is 2"),
    ],
)
def test_impossible_batches(batch: dict[str, Any], world: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_recipe(tiny(batch=batch), world)


@pytest.mark.parametrize(
    ("batch", "world", "micro"),
    [
        ({"micro": 8, "global": 8}, 3, 8),
        ({"micro": None, "global": 8}, 3, 2),
        ({"micro": None, "global": 24, "accumulation": 3}, 3, 2),
        ({"micro": None, "global": 2}, 3, 1),
        ({"micro": 5, "global": 7, "accumulation": 11}, 2, 5),
    ],
)
def test_an_evaluation_takes_any_number_of_processes(batch: dict[str, Any], world: int, micro: int) -> None:
    with pytest.raises(ConfigError, match=r"batch\.(global|accumulation)"):
        check_recipe(tiny(batch=batch), world)
    arithmetic = check_evaluation(tiny(batch=batch), world)
    assert (arithmetic.batch.micro, arithmetic.layout.data) == (micro, world)


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_an_evaluation_has_micro_batches_for_every_schedule(schedule: ScheduleName) -> None:
    recipe = tiny(model={"layers": 8}, parallel={"pipeline": 3, "schedule": schedule}, batch={"micro": 1, "global": 1})
    plan = check_evaluation(recipe, 3).batch
    assert takes_micro_batches(schedule, 3, plan.accumulation)


@pytest.mark.parametrize(
    ("sections", "world", "message"),
    [
        ({"parallel": {"tensor": 4}}, 4, "6 heads do not divide by 4"),
        ({"data": {"sequence_length": 4096}}, 1, "positions"),
        ({"data": {"split": [1, 0, 0]}, "evaluate": {"every": None}}, 1, "leaves no validation part"),
        ({"batch": {"micro": None, "global": None}}, 1, "both None"),
    ],
)
def test_what_an_evaluation_needs(sections: dict[str, Any], world: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_evaluation(tiny(**sections), world)


@pytest.mark.parametrize(
    ("sections", "world", "message"),
    [
        ({"parallel": {"data": 3}}, 2, r"parallel\.data = 3(.|\n)*2 are started(.|\n)*--nproc-per-node 3"),
        ({"parallel": {"tensor": 2}}, 3, r"3 processes do not divide by 2"),
        ({"parallel": {"tensor": 4}}, 4, r"6 heads do not divide by 4(.|\n)*legal: 1, 2, 3, 6"),
        ({"parallel": {"pipeline": 8}}, 8, r"8 stages, and the model has 4 layers(.|\n)*legal: 1, 2, 3, 4"),
        ({"parallel": {"pipeline": 2, "schedule": "dualpipev"}}, 2, r"4 or more(.|\n)*--batch\.micro 2"),
        ({"parallel": {"pipeline": 4}, "batch": {"micro": 1, "global": 2}}, 4, r"4 or more(.|\n)*--batch\.global 8"),
        (
            {"parallel": {"pipeline": 4}, "batch": {"micro": None, "global": 8, "accumulation": 2}},
            4,
            r"4 or more(.|\n)*--batch\.accumulation 4 or 8",
        ),
        ({"parallel": {"shard": "parameters"}}, 1, r"parallel\.shard = parameters(.|\n)*no effect"),
        ({"parallel": {"sequence": True}}, 2, r"parallel\.sequence = true(.|\n)*no effect"),
        ({"parallel": {"schedule": "gpipe"}}, 2, r"parallel\.schedule = gpipe(.|\n)*no effect"),
        ({"parallel": {"tensor": 2}, "train": {"device": "sdaa"}}, 2, r"on sdaa only plain data parallelism"),
        (
            {"parallel": {"pipeline": 2, "schedule": "zbv"}, "train": {"compile": "on"}},
            2,
            r"train\.compile = on(.|\n)*splits the backward pass",
        ),
        ({"data": {"sequence_length": 256}}, 1, r"only 128 positions(.|\n)*--model.context 256"),
        ({"train": {"steps": None}}, 1, r"no end"),
        ({"schedule": {"min_lr": 1.0}}, 1, r"above optimizer\.lr 0\.002"),
        ({"schedule": {"warmup": 50, "decay_steps": 50}}, 1, r"50 warm-up steps leave nothing"),
        ({"precision": {"loss_scale": 128.0}}, 1, r"would ignore it"),
        ({"tokenizer": {"kind": "none"}}, 1, r"nothing turns it into tokens"),
        ({"data": {"source": "synthetic"}}, 1, r"stand for no text"),
        ({"data": {"split": [1, 0, 0]}}, 1, r"no validation part"),
        ({"data": {"source": "indexed"}, "tokenizer": {"kind": "none"}}, 1, r"data\.path is not set"),
        (
            {"data": {"source": "indexed", "path": "a", "eod_mask_loss": True}, "tokenizer": {"kind": "none"}},
            1,
            r"--data\.eod",
        ),
        ({"data": {"reset_position_ids": True, "eod": 2048}}, 1, r"data\.eod = 2048(.|\n)*below 2048"),
        (
            {"evaluate": {"split": "test"}},
            1,
            r"evaluate\.split = test(.|\n)*paddock evaluate RUN --evaluate\.split test",
        ),
        ({"evaluate": {"stride": 8, "every": None}}, 1, r"evaluate\.stride = 8(.|\n)*would ignore it"),
    ],
)
def test_impossible_recipes(sections: dict[str, Any], world: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_recipe(tiny(**sections), world)
    assert caught.value.why


def test_examine_shows_every_rule_and_does_not_stop() -> None:
    results = examine(tiny(batch={"micro": 3}, schedule={"min_lr": 1.0}), 1)
    assert [result.name for result in results if not result.holds] == ["batch", "schedule"]
    assert all(result.detail for result in results)
    assert all(result.holds for result in examine(tiny(), 2))


def test_what_breaks_several_rules_is_told_once() -> None:
    results = examine(tiny(parallel={"tensor": 2}), 1)
    broken = {result.name: result.detail for result in results if not result.holds}
    assert "1 process does not divide by 2" in broken.pop("layout")
    assert broken == {"shard": "see layout", "batch": "see layout"}


def test_a_trial_within_the_warm_up_says_so() -> None:
    details = {result.name: result.detail for result in examine(tiny(train={"steps": 9}), 1)}
    assert details["schedule"] == "cosine: all 9 steps are within the warm-up of 20 to 0.002"


@pytest.mark.parametrize(
    ("recipe", "evaluate", "message"),
    [
        ("gpt2/tiny", {"stride": 128}, r"windows have 128 tokens(.|\n)*set it to 64, or another number below 128"),
        ("t5/tiny", {"stride": 8}, r"evaluate\.stride = 8(.|\n)*span_corruption has no windows that slide"),
        ("bert/tiny", {"split": "test"}, r"evaluate\.split = test(.|\n)*question_answering has no such part"),
    ],
)
def test_what_an_evaluation_cannot_measure_on(recipe: str, evaluate: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_evaluation(recipe_from_dict(merge(load_recipe(recipe).to_dict(), {"evaluate": evaluate})), 1)


def test_every_part_of_any_corpus_can_be_measured_on() -> None:
    for name, section in (("gpt2/tiny", {"split": "test", "stride": 64}), ("t5/tiny", {"split": "train"})):
        check_evaluation(recipe_from_dict(merge(load_recipe(name).to_dict(), {"evaluate": section})), 1)
    without = {"data": {"split": [1, 0, 1]}, "evaluate": {"split": "test"}}
    check_evaluation(tiny(**without), 1)


def test_padded_samples_have_no_windows_that_slide() -> None:
    sections = {"data": {"source": "text", "path": "any.txt", "samples": "padded"}, "evaluate": {"stride": 8}}
    with pytest.raises(ConfigError, match=r"evaluate\.stride = 8(.|\n)*no windows that slide"):
        check_evaluation(recipe_from_dict(merge(load_recipe("gpt2/tiny").to_dict(), sections)), 1)
