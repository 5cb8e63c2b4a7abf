"""A recipe's training step on a device, beside the reference: aligned, or the layer and the operator that are not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paddock.alignment.layers.closeness import has_few_bits
from paddock.alignment.layers.collectives import compare_collectives
from paddock.alignment.layers.comparison import Compared, OnTensor, align_parts, forgive
from paddock.alignment.layers.inside import compare_modules
from paddock.alignment.layers.operators import OperatorFinding, find_operators
from paddock.alignment.layers.parts import PartRunner, Reference
from paddock.alignment.layers.reproduction import write_reproductions
from paddock.alignment.layers.update import compare_update
from paddock.config.recipe import Recipe
from paddock.config.rules import arithmetic_of
from paddock.devices import DeviceAdapter
from paddock.errors import CheckFailed
from paddock.inference.trained import load_any_weights
from paddock.launch.options import LaunchOptions
from paddock.models.layers.initialization import initialize
from paddock.models.model import Model
from paddock.models.registry import build_model, example_batch
from paddock.training.compilation import compile_units
from paddock.training.precision import autocast_for

MOST_EXAMINED = 3
"""Parts that went wrong and are looked into, module by module and operator by operator. In types of few bits the
operators of all parts that might be wrong are looked at: they decide."""
OnPart = Callable[[int, int], None]


@dataclass(frozen=True)
class LayerAlignment:
    """What came of it."""

    recipe: str
    device: str
    reference: str
    number_type: str
    compared: Sequence[Compared]
    operators: Sequence[OperatorFinding] = ()
    modules: Mapping[str, Sequence[Compared]] = field(default_factory=dict)
    """What is inside the first few parts that differ: each module's outputs and their gradients."""
    scripts: Sequence[Path] = ()
    """Each shows one of the operators' errors by itself."""
    reference_seconds: float | None = None
    """What the reference took for the step, forward and backward."""
    seconds: float | None = None
    """What all of it took, once the models were there."""

    @property
    def failures(self) -> list[Compared]:
        return [one for one in self.compared if not one.agrees]

    @property
    def aligned(self) -> bool:
        return not self.failures

    @property
    def farthest(self) -> float:
        """How far any of what the parts hand on is from the reference, the loss included."""
        return max((one.distance.whole for one in self.compared if one.direction == "forward"), default=0.0)

    @property
    def noisiest(self) -> Compared | None:
        """The tensor that differs most from itself; None where nobody looked."""
        measured = [one for one in self.compared if one.noise is not None]
        return max(measured, key=lambda one: one.noise.whole if one.noise else 0.0, default=None)

    @property
    def deterministic(self) -> bool | None:
        """Whether the device computes the same twice; None where nobody looked."""
        noisiest = self.noisiest
        return None if noisiest is None or noisiest.noise is None else noisiest.noise.whole == 0.0

    @property
    def culprit(self) -> str | None:
        """The module that computes wrong numbers: an operator's where one was found, else the part."""
        if self.operators:
            return self.operators[0].module
        return self.failures[0].part if self.failures else None

    def to_dict(self) -> dict[str, Any]:
        facts = ("recipe", "device", "reference", "number_type", "aligned", "farthest", "culprit", "deterministic")
        times = ("reference_seconds", "seconds")
        noisiest = self.noisiest
        return {
            **{name: getattr(self, name) for name in (*facts, *times)},
            "noise": asdict(noisiest.noise) if noisiest is not None and noisiest.noise is not None else None,
            "compared": len(self.compared),
            "failures": [asdict(one) for one in self.failures],
            "operators": [
                {
                    **{
                        name: value
                        for name, value in vars(one).items()
                        if name not in ("arguments", "distance", "allowed")
                    },
                    "distance": asdict(one.distance),
                    "allowed": asdict(one.allowed),
                }
                for one in self.operators
            ],
            "modules": {
                part: [{**asdict(one), "agrees": one.agrees} for one in inside] for part, inside in self.modules.items()
            },
            "scripts": [str(path) for path in self.scripts],
        }

    def raise_if_different(self) -> None:
        """Raise CheckFailed if the device computes something else."""
        if self.aligned:
            return
        first = self.failures[0]
        where = f"{len({one.part for one in self.failures})} of {len({one.part for one in self.compared})} parts"
        raise CheckFailed(
            f"{self.device} is not aligned with {self.reference}: {where} differ",
            why=f"{first.part}, {first.direction}: {first.tensor} is {first.distance.whole:.2g} away, and "
            f"{first.allowed.whole:.2g} would be rounding"
            + (f"; {self.operators[0].operator} in {self.operators[0].module}" if self.operators else ""),
        )


def align_layers(
    name: str,
    recipe: Recipe,
    device: DeviceAdapter,
    reference: DeviceAdapter,
    *,
    compiled: bool = False,
    folder: Path | None = None,
    on_part: OnPart | None = None,
    on_tensor: OnTensor | None = None,
    prepare_model: Callable[[Model], None] | None = None,
    every_operator: bool = False,
    processes: LaunchOptions = LaunchOptions(),  # noqa: B008 - frozen
) -> LayerAlignment:
    """Compare one training step of the recipe's model, without dropout, on random samples; with several `processes`,
    what their devices exchange besides. Scripts that show what is wrong go to `folder`. `prepare_model` may change the
    device's model before the step. `every_operator` is compared, also those of parts that agree."""
    config = recipe.model.without_dropout()
    micro = arithmetic_of(recipe, 1).batch.micro
    batch = example_batch(config, micro, recipe.data.sample_shape(), seed=recipe.train.seed)
    right, model = _model(recipe, reference), _model(recipe, device)
    if compiled:
        compile_units(model.unit_modules(), "on", device, config.num_parameters())
    if prepare_model is not None:
        prepare_model(model)
    number_type = getattr(torch, recipe.precision.compute)
    started = time.perf_counter()
    rounds = has_few_bits(number_type) and recipe.precision.compute in reference.autocast
    rounding = PartRunner(right, batch, _autocast(recipe, reference)) if rounds else None
    expected = Reference(PartRunner(right, batch), rounding)
    reference_seconds = time.perf_counter() - started
    # A record of the reference itself is of what that has just computed; whoever compares wants it computed again.
    is_itself = device == reference and number_type == torch.float32 and not compiled and prepare_model is None
    records_itself = on_tensor is not None and is_itself
    runner = expected.runner if records_itself else PartRunner(model, batch, _autocast(recipe, device))
    compared: list[Compared] = []
    modules: dict[str, list[Compared]] = {}
    operators: list[OperatorFinding] = []
    looks_inside = not compiled and on_tensor is None
    parts = align_parts(expected, runner, number_type, on_tensor, wide=not looks_inside)
    for number, found in enumerate(parts, start=1):
        if looks_inside:
            found, wrong = _look_inside(found, expected, runner, number_type, modules, every_operator)
            operators += wrong
        compared += found
        if on_part is not None:
            on_part(number, len(runner.parts) + 1)
    compared += compare_update(expected.runner.model, model, expected.gradients, recipe.optimizer)
    if processes.world_size > 1:
        compared += compare_collectives(_exchanged_shapes(model, expected), device.name, processes)
    operators.sort(key=lambda one: -one.excess)
    scripts = [] if folder is None else write_reproductions(operators, folder, device, reference)
    return LayerAlignment(
        name,
        device.name + (", compiled" if compiled else ""),
        reference.name,
        recipe.precision.compute,
        compared,
        operators,
        modules,
        scripts,
        reference_seconds,
        time.perf_counter() - started,
    )


def _look_inside(
    found: list[Compared],
    reference: Reference,
    device: PartRunner,
    number_type: torch.dtype,
    modules: dict[str, list[Compared]],
    every_operator: bool,
) -> tuple[list[Compared], list[OperatorFinding]]:
    """What is found of a part, once its operators were looked at, and those that are wrong. What its modules make is
    added to `modules`. In a type of few bits a part is wrong if an operator is, or if it is very far away."""
    part, few = found[0].part, has_few_bits(number_type)
    wrong: list[OperatorFinding] = []
    if every_operator or (_differs(found) and (few or len(modules) < MOST_EXAMINED)):
        wrong = find_operators(part, reference, device, number_type)
    if few and not wrong and _differs(found):
        found = forgive(found, reference, number_type)
    if wrong and not _differs(found):
        found = [*found, *(_of_operator(part, one) for one in wrong)]
    elif _differs(found) and len(modules) < MOST_EXAMINED:
        modules[part] = compare_modules(part, reference, device, number_type)
    return found, wrong


def _differs(found: Sequence[Compared]) -> bool:
    return any(not one.agrees for one in found)


def _of_operator(part: str, finding: OperatorFinding) -> Compared:
    """An operator's result, which no tensor of its part shows."""
    name = f"{finding.operator} in {finding.module or 'no module'}"
    return Compared(part, finding.direction, name, finding.distance, finding.allowed)


def _model(recipe: Recipe, adapter: DeviceAdapter) -> Model:
    """The recipe's model on a device, with the weights that a run would begin from."""
    model = build_model(recipe.model.without_dropout())
    if recipe.checkpoint.load is None:
        initialize(model, recipe.train.seed)
    else:
        load_any_weights([model], recipe.checkpoint.load)
    return model.to(adapter.torch_device(0)).train()


def _exchanged_shapes(model: Model, expected: Reference) -> dict[str, torch.Size]:
    """What a job of several processes sends: gradients and weights, and what one part hands to the next."""
    shapes = {f"gradient of {name}": one.shape for name, one in model.named_parameters()}
    for part, step in expected.steps.items():
        shapes |= {f"output {name} of {part}": one.shape for name, one in step.outputs.items()}
    return shapes


def _autocast(recipe: Recipe, adapter: DeviceAdapter) -> Callable[[], AbstractContextManager[Any]]:
    return nullcontext if recipe.precision.compute == "float32" else partial(autocast_for, recipe.precision, adapter)
