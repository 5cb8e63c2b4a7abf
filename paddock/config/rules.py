"""The rules that span rooms. Each is one function: it returns what holds, with the numbers, or raises.

`check_recipe` stops at the first broken rule, before any work starts; `paddock check config` shows them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddock.config.recipe import Recipe
from paddock.devices import adapter_named
from paddock.errors import ConfigError, bad_value
from paddock.objects.address import Address, is_address
from paddock.parallel.config import Layout, derive_layout, divisors
from paddock.parallel.legality import (
    check_compile,
    check_device,
    check_micro_batches,
    check_pipeline,
    check_shard,
    check_tensor,
    takes_micro_batches,
)
from paddock.tasks.registry import rules_of_task, task_entry
from paddock.training.batch import BatchPlan, evaluation_batch, plan_batch
from paddock.training.config import EvaluateConfig
from paddock.training.optimization.schedule import warmup_steps
from paddock.versions import redacted

Rule = Callable[[Recipe, int], str]
"""A rule over a recipe and a number of processes: it returns what holds, or raises."""


@dataclass(frozen=True)
class Arithmetic:
    """The numbers that follow from a recipe and a number of processes."""

    layout: Layout
    batch: BatchPlan


@dataclass(frozen=True)
class RuleResult:
    """One rule as it turned out: `detail` holds the numbers, or the error in full."""

    name: str
    holds: bool
    detail: str


def check_recipe(recipe: Recipe, world: int) -> Arithmetic:
    """Check every rule for a training run over `world` processes; the first that is broken is raised."""
    for _, rule in rules_of(recipe):
        rule(recipe, world)
    return arithmetic_of(recipe, world)


def rules_of(recipe: Recipe) -> list[tuple[str, Rule]]:
    """Those of every recipe, those of its task, and whether what they leave can be evaluated."""
    of_task: list[tuple[str, Rule]] = [
        (name, lambda recipe, world, rule=rule: rule(recipe))  # type: ignore[misc]
        for name, rule in rules_of_task(recipe.task).items()
    ]
    return [("task", _task), *RULES, *of_task, ("evaluation", _evaluation)]


def arithmetic_of(recipe: Recipe, world: int) -> Arithmetic:
    """The numbers alone, of a recipe that is checked."""
    layout = derive_layout(recipe.parallel, world)
    return Arithmetic(layout, plan_batch(recipe.batch, layout.data))


def check_layout(recipe: Recipe, world: int) -> Arithmetic:
    """Check only what decides whether the model can be laid out over `world` processes."""
    for name, rule in RULES:
        if name in LAYOUT_RULES:
            rule(recipe, world)
    return arithmetic_of(recipe, world)


def check_evaluation(recipe: Recipe, world: int) -> Arithmetic:
    """Check only what an evaluation over `world` processes needs. It takes no training step, so every number of
    processes that the model can be laid out over will do, whatever the batch."""
    for name, rule in RULES:
        if name in LAYOUT_RULES and name != "batch":
            rule(recipe, world)
    for of_task in rules_of_task(recipe.task).values():
        of_task(recipe)
    _measure(recipe)
    layout = derive_layout(recipe.parallel, world)
    return Arithmetic(layout, evaluation_batch(recipe.batch, layout))


def _measure(recipe: Recipe) -> None:
    """What an evaluation is to measure on, against what the data has."""
    data, evaluate = recipe.data, recipe.evaluate
    if evaluate.split not in data.parts:
        raise bad_value("evaluate.split", evaluate.split, f"the data of {recipe.task} has no such part", "leave it out")
    if evaluate.split == "validation" and (lack := data.lacks_validation()) is not None:
        raise ConfigError("there is nothing to evaluate on", why=lack, fix="name the data to evaluate on")
    if evaluate.stride is None:
        return
    length = data.sample_shape().source
    if not data.slides():
        raise bad_value("evaluate.stride", evaluate.stride, f"{recipe.task} has no windows that slide", "leave it out")
    if evaluate.stride >= length:
        raise bad_value(
            "evaluate.stride",
            evaluate.stride,
            f"windows have {length} tokens (data.sequence_length), and would not overlap",
            f"set it to {length // 2}, or another number below {length}; or leave it out",
        )


def examine(recipe: Recipe, world: int) -> list[RuleResult]:
    """Every rule with its outcome, for people to read. What breaks several is told with the first of them."""
    results = []
    told: dict[str, str] = {}
    for name, rule in rules_of(recipe):
        try:
            results.append(RuleResult(name, True, rule(recipe, world)))
        except ConfigError as error:
            first = told.setdefault(str(error), name)
            results.append(RuleResult(name, False, str(error) if first == name else f"see {first}"))
    return results


def _task(recipe: Recipe, world: int) -> str:
    if not task_entry(recipe.task).trains:
        fix = f"train for {recipe.model.task()}, and then run `paddock evaluate RUN`; its --help says how"
        raise bad_value("task", recipe.task, "models are measured by it, and not trained for it", fix)
    return recipe.task


def _layout(recipe: Recipe, world: int) -> str:
    return f"{derive_layout(recipe.parallel, world)} = {world} process{'es' if world > 1 else ''}"


def _tensor(recipe: Recipe, world: int) -> str:
    model, shape = recipe.model, recipe.data.sample_shape()
    lengths = {"data.sequence-length": shape.source} | ({"data.target-length": shape.target} if shape.target else {})
    return check_tensor(recipe.parallel, model.tensor_parts(), model.vocabulary(), lengths)


def _pipeline(recipe: Recipe, world: int) -> str:
    check_compile(recipe.parallel, recipe.train.compile)
    return check_pipeline(recipe.parallel, recipe.model.num_units())


def _shard(recipe: Recipe, world: int) -> str:
    return check_shard(recipe.parallel, derive_layout(recipe.parallel, world).data)


def _device(recipe: Recipe, world: int) -> str:
    name = recipe.train.device
    if name == "auto":  # which it is, is found where the job runs
        return "auto"
    adapter = adapter_named(name)
    check_device(recipe.parallel, adapter)
    if recipe.device.products != "auto" and not adapter.computes_on_host:
        reason = f"{name} has one library for matrix products, and it would be ignored"
        raise bad_value("device.products", recipe.device.products, reason, "leave it out")
    return name


def _batch(recipe: Recipe, world: int) -> str:
    parallel = recipe.parallel
    plan = plan_batch(recipe.batch, derive_layout(parallel, world).data)
    check_micro_batches(parallel, plan.accumulation, lambda: _advice(recipe, plan))
    return str(plan)


def _advice(recipe: Recipe, plan: BatchPlan) -> str:
    """How to get a number of micro-batches that the schedule takes, from the same global batch if it can be."""
    parallel, batch = recipe.parallel, recipe.batch
    share = plan.micro * plan.accumulation
    legal = [count for count in divisors(share) if takes_micro_batches(parallel.schedule, parallel.pipeline, count)][:3]
    if not legal:
        return f"set --batch.global {2 * parallel.pipeline * plan.micro * plan.data}"
    if batch.micro is None or batch.global_ is None:
        return "set --batch.accumulation " + " or ".join(map(str, legal))
    return "set " + " or ".join(f"--batch.micro {share // count} ({count} micro-batches)" for count in legal)


def _addresses(recipe: Recipe, world: int) -> str:
    for field, place in (("data.cache", recipe.data.cache), ("log.file", recipe.log.file)):
        if is_address(place):
            raise bad_value(field, redacted([str(place)])[0], "it is a place of this machine", "give a path")
    sections = [recipe.data, recipe.tokenizer, recipe.checkpoint]
    values = [value for section in sections for value in section.model_dump().values()]
    words = [word for value in values for word in (value if isinstance(value, tuple) else (value,))]
    found = [str(Address.parse(word)) for word in words if is_address(word)]
    return f"read from {', '.join(found)}" if found else "none"


def _length(recipe: Recipe, world: int) -> str:
    limits = {name: getattr(recipe.train, name) for name in ("steps", "samples", "epochs")}
    given = [f"{value} {name}" for name, value in limits.items() if value is not None]
    if not given:
        raise ConfigError(
            "the run has no end",
            why="train.steps, train.samples and train.epochs are all None",
            fix="set --steps N",
        )
    return "ends after " + " or ".join(given) + (", whichever comes first" if len(given) > 1 else "")


def _schedule(recipe: Recipe, world: int) -> str:
    schedule, peak = recipe.schedule, recipe.optimizer.lr
    if schedule.min_lr > peak:
        raise bad_value(
            "schedule.min_lr",
            schedule.min_lr,
            f"it is above optimizer.lr {peak}, so the rate would rise",
            f"set --schedule.min-lr to at most {peak}",
        )
    if schedule.name == "inverse_sqrt":
        begin = schedule.warmup if schedule.hold is None else schedule.hold
        until = f"{begin} of the run" if begin < 1 else f"{schedule.unit.removesuffix('s')} {begin}"
        return f"inverse_sqrt: {peak} until {until}, then as one over the square root of the step"
    end = schedule.decay_steps or (recipe.train.steps if schedule.unit == "steps" else recipe.train.epochs)
    if end is not None:
        counts_epochs = schedule.unit == "epochs"
        warmup = schedule.warmup * (end if schedule.warmup < 1 else 1) if counts_epochs else warmup_steps(schedule, end)
        # A short trial of a long recipe may end within its warm-up; a decay that never begins is a mistake.
        if schedule.decay_steps is not None and warmup >= end and schedule.name != "constant":
            raise bad_value(
                "schedule.warmup",
                schedule.warmup,
                f"{warmup:g} warm-up {schedule.unit} leave nothing of the {end} {schedule.unit} for the decay",
                f"set --schedule.warmup below {end}, or a longer --schedule.decay-steps",
            )
        unit = schedule.unit.removesuffix("s")
        if warmup >= end and schedule.name != "constant":
            return f"{schedule.name}: all {end} {schedule.unit} are within the warm-up of {warmup:g} to {peak}"
        return f"{schedule.name}: {warmup:g} warm-up {unit}s to {peak}, then to {schedule.min_lr} at {unit} {end}"
    return f"{schedule.name}: warm-up {schedule.warmup}, {peak} to {schedule.min_lr} at the end of the run"


def _precision(recipe: Recipe, world: int) -> str:
    precision = recipe.precision
    if precision.compute != "float16":
        for name in ("loss_scale", "initial_scale", "scale_window"):
            value, default = getattr(precision, name), type(precision).model_fields[name].default
            if value != default:
                raise bad_value(
                    f"precision.{name}",
                    value,
                    f"precision.compute = {precision.compute} needs no loss scale and would ignore it",
                    "set --precision.compute float16, or leave it out",
                )
        return precision.compute
    return f"float16, loss scale {precision.loss_scale}"


def _evaluation(recipe: Recipe, world: int) -> str:
    for name in ("split", "stride"):
        value, default = getattr(recipe.evaluate, name), EvaluateConfig.model_fields[name].default
        if value != default:
            raise bad_value(
                f"evaluate.{name}",
                value,
                "training evaluates on the validation part, window after window, and would ignore it",
                f"leave it out, and then run `paddock evaluate RUN --evaluate.{name} {value}`",
            )
    if recipe.evaluate.every is None:
        return "none"
    lack = recipe.data.lacks_validation()
    if lack is not None:
        raise bad_value(
            "evaluate.every",
            recipe.evaluate.every,
            f"{lack}, and there is nothing to evaluate on",
            "change that, or set --evaluate.every None",
        )
    batches = "all" if recipe.evaluate.batches is None else recipe.evaluate.batches
    every = recipe.evaluate.every
    return f"every {every if every == 'epoch' else f'{every} steps'}, {batches} batches"


LAYOUT_RULES = ("layout", "tensor", "pipeline", "shard", "device", "batch")

RULES: list[tuple[str, Rule]] = [
    ("addresses", _addresses),
    ("layout", _layout),
    ("tensor", _tensor),
    ("pipeline", _pipeline),
    ("shard", _shard),
    ("device", _device),
    ("batch", _batch),
    ("length", _length),
    ("schedule", _schedule),
    ("precision", _precision),
]
