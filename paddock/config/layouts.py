"""Layouts as short texts, such as `dp2,tp2,pp2,schedule=interleaved,accumulation=4`, and all that a recipe allows.

A text says the whole layout: what it leaves out is one process, or the default. Only `recompute` and the batch
stay the recipe's; the global batch is the same in every layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from paddock.config.load import merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_layout
from paddock.errors import ConfigError, bad_value, did_you_mean, shown
from paddock.parallel.config import Layout, ParallelConfig, RecomputeMode, ScheduleName, ShardMode, divisors
from paddock.parallel.legality import takes_micro_batches
from paddock.training.batch import plan_batch

SIZES = {"dp": "data", "tp": "tensor", "pp": "pipeline"}
CHOICES: dict[str, list[str]] = {
    "schedule": list(get_args(ScheduleName)),
    "shard": list(get_args(ShardMode)),
    "sequence": ["true", "false"],
    "recompute": list(get_args(RecomputeMode)),
}
EXAMPLE = "e.g. dp2,tp2,pp2,schedule=interleaved,shard=parameters,sequence=true,recompute=full,accumulation=4"


def parse_layout(text: str) -> dict[str, dict[str, Any]]:
    """The sections of a recipe that a text changes: `parallel` and, with an accumulation, `batch`."""
    given: dict[str, Any] = {}
    for word in text.split(","):
        name, value = _read_word(word.strip(), text)
        if name in given:
            raise bad_value("layout", text, f"it says {name} twice", EXAMPLE)
        given[name] = value
    accumulation = given.pop("accumulation", None)
    whole = ParallelConfig(data=1).model_dump(exclude={"recompute"}) | given
    return {"parallel": whole} | ({"batch": {"accumulation": accumulation, "micro": None}} if accumulation else {})


def with_layout(recipe: Recipe, text: str) -> Recipe:
    """The recipe in another layout, with the same global batch; an error if it cannot be laid out so."""
    changes = parse_layout(text)
    derived = {} if recipe.batch.micro is None else {"accumulation": None}
    changes["batch"] = {"global": global_batch(recipe)} | derived | changes.get("batch", {})
    changed = recipe_from_dict(merge(recipe.to_dict(), changes))
    check_layout(changed, world_of_layout(changed).world)
    return changed


def world_of_layout(recipe: Recipe) -> Layout:
    """The layout of a recipe that says all of it; `data: auto` counts as one."""
    parallel = recipe.parallel
    return Layout(1 if parallel.data == "auto" else parallel.data, parallel.tensor, parallel.pipeline)


def global_batch(recipe: Recipe) -> int:
    """Samples in a step of the recipe as it stands."""
    return plan_batch(recipe.batch, world_of_layout(recipe).data).total


def legal_layouts(recipe: Recipe, world: int) -> list[str]:
    """Every layout of `world` processes that the recipe's model and global batch allow.

    Where the schedule does not take the recipe's micro-batches, the nearest number of them that it takes is said.
    """
    return [text for candidate in _candidates(world) if (text := _if_legal(recipe, candidate)) is not None]


def layout_name(config: ParallelConfig) -> str:
    """The text of a layout, without what it has by default."""
    sizes = {"dp": config.data, "tp": config.tensor, "pp": config.pipeline}
    words = [f"{short}{size}" for short, size in sizes.items() if size != 1] or ["dp1"]
    values = {name: str(getattr(config, name)).lower() for name in CHOICES}
    defaults = {name: str(getattr(ParallelConfig(), name)).lower() for name in CHOICES}
    return ",".join([*words, *(f"{name}={value}" for name, value in values.items() if value != defaults[name])])


def _read_word(word: str, text: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        name, value = SIZES.get(word[:2], ""), word[2:]
        if not name:
            raise bad_value("layout", text, f'"{shown(word)}" is neither a size such as dp2 nor a setting', EXAMPLE)
    if name in (*SIZES.values(), "accumulation"):
        if not (value.isascii() and value.isdecimal()) or len(value) > 9 or int(value) < 1:
            raise bad_value(
                "layout", text, f'"{shown(word)}": {name} is a number, at least 1, at most 999,999,999', EXAMPLE
            )
        return name, int(value)
    if name not in CHOICES:
        raise bad_value("layout", text, f'there is no "{shown(name)}"', did_you_mean(name, [*CHOICES, "accumulation"]))
    if value not in CHOICES[name]:
        raise bad_value("layout", text, f'{name} cannot be "{shown(value)}"', did_you_mean(value, CHOICES[name]))
    return name, value == "true" if name == "sequence" else value


def _candidates(world: int) -> Iterator[ParallelConfig]:
    sizes = divisors(world)
    for pipeline in sizes:
        for tensor in (size for size in sizes if world // pipeline % size == 0):
            data = world // pipeline // tensor
            for schedule in get_args(ScheduleName) if pipeline > 1 else ("1f1b",):
                for shard in get_args(ShardMode) if data > 1 else ("none",):
                    for sequence in (False, True) if tensor > 1 else (False,):
                        yield ParallelConfig(
                            data=data,
                            tensor=tensor,
                            pipeline=pipeline,
                            schedule=schedule,
                            shard=shard,
                            sequence=sequence,
                        )


def _if_legal(recipe: Recipe, config: ParallelConfig) -> str | None:
    text = layout_name(config)
    for option in [text, *(f"{text},accumulation={count}" for count in _accumulations(recipe, config))]:
        try:
            with_layout(recipe, option)
        except ConfigError:
            continue
        return option
    return None


def _accumulations(recipe: Recipe, config: ParallelConfig) -> list[int]:
    """The numbers of micro-batches that the global batch and the schedule allow, nearest to the recipe's first."""
    total, data = global_batch(recipe), config.data
    if data == "auto" or total % data:
        return []
    usual = total // data // (recipe.batch.micro or total)
    legal = [
        count
        for count in range(1, total // data + 1)
        if total // data % count == 0 and takes_micro_batches(config.schedule, config.pipeline, count)
    ]
    return sorted(legal, key=lambda count: abs(count - usual))
