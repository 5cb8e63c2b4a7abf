"""`model.yaml`: the cases of a contribution, that is, which script runs with which parameters and what must come of it.

The form is the ModelZoo's. Ours is `expect`, which says what a machine can hold the log against.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from paddock.config.plain_yaml import read_plain_yaml
from paddock.errors import ConfigError, bad_value, shown
from paddock.schema import ConfigModel
from paddock.zoo.contribution import SCRIPTS
from paddock.zoo.lint.structure import leads_inside

MOST_CASES = 100
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"


class Place(ConfigModel):
    """Where a case runs, and what."""

    run_dir: str = "."
    """The folder to run in: the contribution's, or its run_scripts."""
    run_file: str
    """The script, inside that folder."""


class Parameters(ConfigModel):
    """What the script is called with, as `--name value`; what is left out is not passed."""

    model_name: str
    batch_size: int = Field(gt=0)
    """Samples of each rank."""
    step: int
    """Steps to run: a check is short."""
    device: str
    epoch: int | None = None
    dataset_path: str | None = None
    lr: float | None = Field(None, gt=0)
    autocast: bool | None = None
    nproc_per_node: int | None = Field(None, ge=1, le=64)
    nnode: int | None = Field(None, ge=1)
    nnodes: int | None = Field(None, ge=1)
    node_rank: int | None = Field(None, ge=0)
    master_addr: str | None = None
    master_port: int | None = None
    others: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Parameters of the script's own."""

    @field_validator("dataset_path")
    @classmethod
    def _is_relative(cls, path: str | None) -> str | None:
        if path is not None and (os.path.isabs(path) or path.startswith("~") or ".." in Path(path).parts):
            raise ValueError("it is a path of one machine: --dataset-root says where datasets are")
        return path

    def given(self) -> dict[str, Any]:
        """By name, those that are passed on."""
        named = {name: value for name, value in self.model_dump(exclude={"others"}).items() if value is not None}
        return named | self.others


class Expectation(ConfigModel):
    """What must come of a case, beside an exit status of 0 and a log with a finite loss and a speed."""

    loss_falls: bool = False
    """The loss at the end is below that of the beginning."""
    metric: str | None = Field(None, pattern=r"^val\.")
    """A metric that the log must have: the case validates."""
    log: str | None = None
    """The log's name inside run_dir; None looks for it among the files that the case writes."""


class Case(ConfigModel):
    """One way to run a contribution."""

    case_name: str = Field(pattern=NAME)
    desc: Place
    params: Parameters
    expect: Expectation = Field(default_factory=Expectation)


@dataclass(frozen=True)
class CasePlace:
    """A case, with its paths found and held inside the contribution."""

    case: Case
    contribution: Path
    run_dir: Path
    """Relative to the contribution."""
    run_file: Path
    """Relative to run_dir."""


def read_cases(path: Path) -> list[Case]:
    """The cases of a model.yaml, or a ConfigError that names the case and the key."""
    values = read_plain_yaml(path, "a list of cases")
    if not isinstance(values, list) or not values or not all(isinstance(value, dict) for value in values):
        example = "- {case_name: …, desc: {run_dir: ., run_file: run_scripts/run_NAME.py}, params: {…}}"
        raise ConfigError(f"{path.name} is no list of cases", fix=f"each case is: {example}")
    if len(values) > MOST_CASES:
        raise ConfigError(f"{path.name} has {len(values)} cases, and may have {MOST_CASES}")
    cases = [_case(number, value) for number, value in enumerate(values, start=1)]
    names = [case.case_name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise bad_value("case_name", name, "two cases have it", "a report tells them apart by their names")
    return cases


def _case(number: int, values: dict[str, Any]) -> Case:
    try:
        return Case(**values)
    except ConfigError as error:
        name = values.get("case_name")
        which = f"case {number}" + (f" ({shown(name)})" if isinstance(name, str) else "")
        raise ConfigError(f"{which}: {error.what}", why=error.why, fix=error.fix) from None


def find_place(case: Case, root: Path) -> CasePlace:
    """Where a case runs; `root` is the folder that its run_dir begins at. A ConfigError, if that leads out of it."""
    run_dir = _inside(root, case.desc.run_dir, "desc.run_dir", Path.is_dir, "folder")
    contribution = run_dir.parent if run_dir.name == SCRIPTS and run_dir != root else run_dir
    run_file = _inside(run_dir, case.desc.run_file, "desc.run_file", Path.is_file, "file")
    return CasePlace(case, contribution, run_dir.relative_to(contribution), run_file.relative_to(run_dir))


def _inside(folder: Path, name: str, field: str, is_kind: Any, kind: str) -> Path:
    """A path that a user wrote, below a folder and nowhere else."""
    parts = Path(name).parts
    if os.path.isabs(name) or name.startswith("~"):
        raise bad_value(field, name, "it is an absolute path", "write it as seen from the contribution")
    if ".." in parts:
        raise bad_value(field, name, "it leads out of its folder by ..", "keep it inside the contribution")
    path = folder.joinpath(*parts)
    try:
        is_there = is_kind(path)
    except OSError:  # the name is longer than any
        is_there = False
    if not is_there:
        raise bad_value(field, name, f"there is no such {kind}", "check the path")
    if not leads_inside(folder, Path(name)):
        raise bad_value(field, name, "it leads out of its folder by a symbolic link", "copy what it leads to")
    return path
