"""`paddock check config|parity|resume RECIPE`, `paddock check formats MODEL` and `paddock check device NAME`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from paddock.cli.arguments import parse, parse_recipe_command
from paddock.cli.pages import show_page
from paddock.config.load import merge, to_yaml
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError, did_you_mean
from paddock.files import atomic_write
from paddock.launch.options import LaunchOptions
from paddock.phases import starting
from paddock.planning.elastic import examine_job

if TYPE_CHECKING:
    from paddock.alignment.parity import Parity
    from paddock.alignment.resume import ResumeResult


@dataclass(frozen=True)
class CheckOptions:
    """Print the resolved recipe with its arithmetic and every rule checked.

    Exit code 0 if it can run, 2 if a rule is broken. Overrides and launch flags count as they would in training."""

    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class ParityOptions:
    """Train the same few steps in every layout and in one process, and compare losses and gradient norms.

    A layout is a text such as dp2,tp2,pp2,schedule=interleaved. Dropout is off and numbers are float32, in which all
    must agree to 1e-5; --double is stricter. The table shows the losses themselves and the largest relative
    differences (Δ) from one process over all steps. Exit code 7 if one differs, with the first step and the first
    gradient that does."""

    layouts: tuple[str, ...] = ()
    """The layouts; or all, for every legal one of --nproc-per-node processes."""
    double: bool = False
    """Compute in float64, in which all must agree to 1e-7. For training that makes much of small differences, such as
    a ResNet's first steps at a large learning rate: there rounding in float32 alone parts two runs."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class ResumeOptions:
    """Train undisturbed; train again, kill it between checkpoints and while saving, resume, and compare.

    In the same layout all losses must be bit-equal, in another within 1e-5 (dropout is off then). Exit code 7 if
    they are not."""

    layout: str | None = None
    """How it begins, such as dp2,tp2; None is the recipe's layout with --nproc-per-node processes."""
    resume_layout: str | None = None
    """How it goes on after each kill; None is the same."""
    kill_seed: int = 0
    """Decides the moments of the kills."""
    run_dir: Path | None = None
    """Keep the runs here; None removes them."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class FormatsOptions:
    """Measure what a model that writes loses in another weight format: the perplexity of a text in each.

    MODEL is a run directory, a checkpoint or a Hugging Face folder of a language model."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A run directory, a checkpoint or a Hugging Face folder."""
    text: Path
    """A text in UTF-8 that the model has not seen; some thousand words tell enough."""
    formats: tuple[Literal["float32", "bfloat16", "int8", "int8-dynamic"], ...] = ("bfloat16", "int8", "int8-dynamic")
    """Which."""
    device: str = "auto"
    """auto, or a name that `paddock doctor` lists."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class DeviceOptions:
    """Put a device through all that training asks of it, and say what it can be used for.

    Number types; every operator that each family calls, forward, backward and in the optimizer, held against the CPU in
    float64; training, writing, autocast, loss scaling, memory, host reads, checkpoints, determinism, compilation; with
    two devices, every kind of collective, and layouts. The tiers are inference, data parallel and full 3D. Exit code 7
    if a check fails of the tier that the device's adapter claims."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """A device that `paddock doctor` lists, such as cpu."""
    families: tuple[str, ...] = ()
    """The families to try: gpt2, bert, t5, resnet; all of them, if none is named."""
    fallback: Literal["cpu", "error"] = "error"
    """Operators that the device has no kernel for: error fails their checks; cpu lets the host compute them, and lists
    them."""
    two: bool = True
    """Check two devices together, too: collectives and layouts, in two processes."""
    compile: bool = True
    """Compare compiled training (torch.compile) with eager, where torch's compiler knows the device; may take a
    minute."""
    patience: float = 600.0
    """Seconds that one check of two processes may take before it counts as failed: a collective may never end."""
    markdown: Path | None = None
    """Write the table to this file, as Markdown for a pull request."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    checks = {"config": _config, "parity": check_parity, "resume": _resume, "formats": _formats, "device": _device}
    wanted = arguments[0] if arguments else ""
    if wanted in checks:
        checks[wanted](arguments[1:])
    elif wanted in ("-h", "--help"):
        for kind, options in (("config", CheckOptions), ("parity", ParityOptions), ("resume", ResumeOptions)):
            show_page(f"usage: paddock check {kind} RECIPE [flags]\n\n    {options.__doc__}\n")
        show_page(f"usage: paddock check formats MODEL --text FILE [flags]\n\n    {FormatsOptions.__doc__}\n")
        show_page(f"usage: paddock check device NAME [flags]\n\n    {DeviceOptions.__doc__}\n")
    else:
        raise ConfigError(
            f'paddock check cannot check "{wanted}"' if wanted else "paddock check needs to know what to check",
            fix=did_you_mean(wanted, list(checks)),
        )


def _config(arguments: list[str]) -> None:
    command = parse_recipe_command(CheckOptions, "check config", arguments)
    show_config(command.recipe, command.launch, command.options.json)


def check_parity(arguments: list[str]) -> None:
    """`paddock check parity RECIPE`."""
    command = parse_recipe_command(ParityOptions, "check parity", arguments, _for_parity)
    options = command.options
    with starting(command.launch.node_rank):
        from paddock.alignment import parity

        result = parity.check_parity(command.recipe, options.layouts, command.launch, options.double)
    print(json.dumps(result.to_dict()) if options.json else parity_table(result), flush=True)
    result.raise_if_different()


def _resume(arguments: list[str]) -> None:
    command = parse_recipe_command(ResumeOptions, "check resume", arguments, _for_resume)
    options = command.options
    with starting(command.launch.node_rank):
        from paddock.alignment.resume import check_resume

        result = check_resume(
            command.recipe,
            command.launch,
            layout=options.layout,
            resume_layout=options.resume_layout,
            seed=options.kill_seed,
            run_dir=options.run_dir,
        )
    print(json.dumps(result.to_dict()) if options.json else resume_summary(result), flush=True)
    result.raise_if_different()


def _formats(arguments: list[str]) -> None:
    options = parse(FormatsOptions, "check formats", arguments)
    with starting():
        from paddock.alignment.formats import check_formats
        from paddock.telemetry.format import bytes_

    found: list[dict[str, Any]] = []
    for cost in check_formats(options.model, options.text, options.formats, options.device):
        if not options.json and not found:
            print(f"{'format':<14}{'perplexity':>12}{'change':>10}{'weights':>12}")
        found.append(asdict(cost))
        if not options.json:
            size = bytes_(cost.weight_bytes)
            print(f"{cost.format:<14}{cost.perplexity:>12.4f}{cost.change:>+10.2%}{size:>12}", flush=True)
    if options.json:
        print(json.dumps(found))


def _device(arguments: list[str]) -> None:
    options = parse(DeviceOptions, "check device", arguments)
    with starting():
        from paddock.alignment.conformance.suite import check_device

        result = check_device(
            options.name,
            options.families,
            options.fallback,
            two=options.two,
            compiles=options.compile,
            patience=options.patience,
        )
    if options.markdown is not None:
        with atomic_write(options.markdown) as stream:
            stream.write(result.markdown())
    print(json.dumps(result.to_dict()) if options.json else result.table(), flush=True)
    result.raise_if_failed()


def _for_parity(recipe: Recipe) -> Recipe:
    """A short run, unless flags ask for more: a large model shows a difference soon, and takes long."""
    size = recipe.model.num_parameters()
    return _changed(recipe, train={"steps": 20 if size < 5e7 else 5 if size < 1e9 else 2})


def _for_resume(recipe: Recipe) -> Recipe:
    """A short run with a few checkpoints, unless flags ask for more."""
    return _changed(recipe, train={"steps": 12}, checkpoint={"every": 4}, evaluate={"every": None})


def _changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    return recipe_from_dict(merge(recipe.to_dict(), sections))


def show_config(recipe: Recipe, launch: LaunchOptions, as_json: bool) -> None:
    """Print a recipe and its rules; raises if one is broken."""
    launch.check_size()
    results = examine_job(recipe, launch)
    broken = [result for result in results if not result.holds]
    if as_json:
        rules = [{"rule": result.name, "holds": result.holds, "detail": result.detail} for result in results]
        print(json.dumps({"recipe": recipe.to_dict(), "parameters": recipe.model.num_parameters(), "rules": rules}))
    else:
        show_page(to_yaml(recipe), end="")
        show_page(f"\nparameters: {recipe.model.num_parameters():,}")
        for result in results:
            mark = "ok  " if result.holds else "FAIL"
            show_page(f"{mark} {result.name:<10} " + result.detail.replace("\n", "\n" + " " * 16))
    if broken:
        sys.stdout.flush()
        raise ConfigError(
            f"{len(broken)} rule{'s are' if len(broken) > 1 else ' is'} broken: "
            + ", ".join(result.name for result in broken)
        )


def parity_table(result: Parity) -> str:
    """The loss of one process and of every layout in the last step, how far each layout is from one process over all
    steps, and a sentence about each that differs."""
    from paddock.alignment.parity import ALONE

    losses = result.alone["losses"]
    rows = [("layout", f"loss at step {len(losses)}", "Δ loss", "Δ grad norm", "Δ by tensor", "verdict")]
    rows += [(ALONE, f"{losses[-1]:#.8g}", "–", "–", "–", "reference")]
    for one in result.differences:
        apart = (f"{one.loss:.1e}", f"{one.norm:.1e}", f"{one.tensors:.1e}")
        rows.append((one.layout, f"{one.losses[-1]:#.8g}", *apart, "agrees" if one.agrees else "DIFFERS"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers, verdict in rows:
        right = [f"{number:>{width}}" for number, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([f"{name:<{widths[0]}}", *right, verdict]))
    lines += [f"\n{one.layout}: {one.explain()}" for one in result.differences if not one.agrees]
    return "\n".join(lines)


def resume_summary(result: ResumeResult) -> str:
    """What was done to the run, and how far it came out."""
    from paddock.alignment.divergence import TOLERANCE

    lines = [f"killed {kill.moment}; resumed from step {kill.resumes_from}" for kill in result.kills]
    wanted = "bit-equal" if result.exact else f"within {TOLERANCE}"
    compared = f"{len(result.differences)} steps compared"
    return "\n".join([*lines, f"{compared}, largest difference {result.largest_difference:.1e} (wanted: {wanted})"])
