"""The batch arithmetic: global = micro × data × accumulation."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.errors import ConfigError, bad_value
from paddock.parallel.config import Layout, divisors
from paddock.training.config import BatchConfig


@dataclass(frozen=True)
class BatchPlan:
    """How a global batch is cut over processes and time."""

    micro: int
    accumulation: int
    data: int

    @property
    def total(self) -> int:
        return self.micro * self.accumulation * self.data

    def __str__(self) -> str:
        return f"global {self.total} = micro {self.micro} × data {self.data} × accumulation {self.accumulation}"


def plan_batch(config: BatchConfig, data: int) -> BatchPlan:
    """Derive what the recipe leaves open, and check that the product is whole."""
    micro, total, accumulation = config.micro, config.global_, config.accumulation
    if total is None:
        if micro is None:
            raise _no_batch()
        return BatchPlan(micro, accumulation or 1, data)
    if micro is None:
        parts = data * (accumulation or 1)
        if total % parts:
            raise bad_value(
                "batch.global",
                total,
                f"it does not divide by data {data} × accumulation {accumulation or 1} = {parts}",
                f"set --batch.global to a multiple of {parts}: {_around(total, parts)}",
            )
        return BatchPlan(total // parts, accumulation or 1, data)
    if total % (micro * data):
        raise bad_value(
            "batch.global",
            total,
            f"it does not divide by micro {micro} × data {data} = {micro * data}",
            f"set --batch.global {_around(total, micro * data)}, or --batch.micro "
            + " or ".join(map(str, divisors(total // data)[-3:] if total % data == 0 else [1])),
        )
    derived = total // (micro * data)
    if accumulation not in (None, derived):
        raise bad_value(
            "batch.accumulation",
            accumulation,
            f"global {total} ÷ (micro {micro} × data {data}) is {derived}",
            f"set --batch.accumulation {derived} or None, or --batch.global {micro * data * (accumulation or 1)}",
        )
    return BatchPlan(micro, derived, data)


def evaluation_batch(config: BatchConfig, layout: Layout) -> BatchPlan:
    """The micro-batches of an evaluation: those of training, or about as large where the recipe leaves them open.

    No optimizer step has to come out whole. Their number is one that every pipeline schedule takes, since a pipeline
    is built with its schedule; an evaluation itself goes on until its samples end.
    """
    micro = config.micro
    if micro is None:
        if config.global_ is None:
            raise _no_batch()
        micro = max(1, config.global_ // (layout.data * (config.accumulation or 1)))
    return BatchPlan(micro, 2 * layout.pipeline, layout.data)


def _no_batch() -> ConfigError:
    return ConfigError("batch.micro and batch.global are both None", fix="set at least one of them")


def _around(value: int, unit: int) -> str:
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else str(unit)
