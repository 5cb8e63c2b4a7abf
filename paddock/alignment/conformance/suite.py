"""The whole suite: what one device can be asked in this process, and then several processes with a device each."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.alignment.conformance.report import CLAIMS, Report, Row
from paddock.devices import DeviceAdapter, probe, select
from paddock.devices.config import FallbackSetting
from paddock.errors import ConfigError, UserError, bad_value, did_you_mean
from paddock.files import scratch_folder
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.phases import phase
from paddock.versions import versions

if TYPE_CHECKING:
    from paddock.alignment.conformance.together import Planned

PATIENCE = 600.0
"""Seconds that one check of several processes may take: a collective that never ends must end the suite."""


def check_device(
    name: str,
    families: Sequence[str] = (),
    fallback: FallbackSetting = "error",
    *,
    two: bool = True,
    compiles: bool = True,
    patience: float = PATIENCE,
) -> Report:
    """Put a device through all checks. Without `two`, those that take two devices or more are left out; without
    `compiles`, torch's compiler is."""
    from paddock.alignment.conformance.small import FAMILIES

    for family in families:
        if family not in FAMILIES:
            known = did_you_mean(family, list(FAMILIES))
            raise bad_value("--families", family, "the suite has no small model of it", known)
    if under_torchrun():
        raise ConfigError("the suite starts its own processes", fix="start it by itself, without torchrun")
    adapter = select(name)
    found = probe(adapter)
    wanted = tuple(families) or FAMILIES
    with scratch_folder() as folder:
        rows, by_host = _alone(adapter, wanted, fallback, folder, compiles)
        payload = {"device": adapter.name, "family": _laid_out(wanted), "fallback": fallback, "patience": patience}
        rows += _together(adapter, payload, folder, two)
    about = {**versions(), adapter.package or adapter.torch_type: found.version}
    names = ", ".join(dict.fromkeys(found.names))
    return Report(adapter.name, names, about, CLAIMS[adapter.parallelism], rows, by_host)


def _laid_out(families: Sequence[str]) -> str:
    """The family whose model is cut over two devices: the first that can be cut in every way."""
    from paddock.alignment.conformance.small import small_models

    able = [one.config.family for one in small_models(families) if one.config.tensor_parts() and one.config.has_stages]
    return able[0] if able else "gpt2"


def _alone(
    adapter: DeviceAdapter, families: Sequence[str], fallback: FallbackSetting, folder: Path, compiles: bool
) -> tuple[list[Row], Mapping[str, Mapping[str, float]]]:
    """The checks of one device, in this process, and what the host computed for it."""
    from paddock.alignment.conformance.alone import checks_alone
    from paddock.alignment.conformance.small import small_models
    from paddock.devices import prepare
    from paddock.parallel.world import World

    prepare(adapter)
    world = World(0, 1, adapter, adapter.activate(0))
    rows = []
    with adapter.falling_back(fallback) as ledger:
        for check in checks_alone(world, small_models(families), folder, compiles):
            with phase(check.name):
                row = check.row()
            rows.append(_told(row))
    return rows, ledger.to_dict()


def _together(adapter: DeviceAdapter, payload: dict[str, Any], folder: Path, two: bool) -> list[Row]:
    """The checks of several devices, in processes of their own: of two, and, where they are, of as many as all kinds
    of parallelism take at once."""
    from paddock.alignment.conformance.together import PLANS, PROCESSES

    count, rows = adapter.count(), list[Row]()
    for size, plans in PLANS.items():
        reason = "" if two else "not asked for"
        if count < size and not (adapter.computes_on_host and size == PROCESSES):
            reason = f"it takes {size} devices, and {count} {'is' if count == 1 else 'are'} here"
            if size > PROCESSES:  # no tier asks for more devices than two
                plans = tuple(replace(plan, tier=None) for plan in plans)
        if reason:
            found = [Row(plan.name, plan.tier, "skipped", reason) for plan in plans]
        else:
            found = _launched(plans, {**payload, "result": str(folder / f"{size}.json")}, size, folder)
        rows += [_told(replace(row, devices=size)) for row in found]
    return rows


def _launched(plans: Sequence[Planned], payload: dict[str, Any], size: int, folder: Path) -> list[Row]:
    """The rows of checks that so many processes make. One that ends them fails, and those behind it are not made."""
    result, failure = Path(payload["result"]), ""
    try:
        run("paddock.alignment.conformance.together:work", payload, LaunchOptions(nproc_per_node=size), folder)
    except UserError as error:
        failure = str(error).splitlines()[0]
    kept = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {"rows": []}
    rows = [Row(**row) for row in kept["rows"]]
    for number, plan in enumerate(plans[len(rows) :]):
        rows.append(Row(plan.name, plan.tier, *(("skipped", "not reached") if number else ("fail", failure))))
    return rows


def _told(row: Row) -> Row:
    """The same; whoever waits sees how far the suite is."""
    print(f"{row.verdict:<7}  {row.name}", file=sys.stderr, flush=True)
    return row
