"""All checks of a contribution: first what its files say, then what its cases do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from paddock.errors import ConfigError
from paddock.zoo.cases import RunOptions, run_case
from paddock.zoo.contribution import MODEL_FILE, SCRIPTS, Contribution
from paddock.zoo.findings import CaseResult, Finding, Report, failed, passed_unless
from paddock.zoo.lint.conflicts import ask_pip
from paddock.zoo.lint.hygiene import check_hygiene
from paddock.zoo.lint.package_index import PackageIndex
from paddock.zoo.lint.parameters import check_parameters
from paddock.zoo.lint.readme import check_readme
from paddock.zoo.lint.requirements import check_requirements
from paddock.zoo.lint.structure import check_structure, is_safe_to_copy
from paddock.zoo.model_file import Case, CasePlace, find_place, read_cases

Progress = Callable[[str], None]


@dataclass(frozen=True)
class CheckPlan:
    """What to check, and how."""

    path: Path
    """The folder of a contribution, or a model.yaml."""
    root: Path | None = None
    """Where the run_dir of cases begins; None is the folder of the model.yaml."""
    run: RunOptions | None = field(default_factory=RunOptions)
    """How to run the cases; None looks at the files alone."""
    index: str | None = None
    """The address of the package index."""


def check_contribution(plan: CheckPlan, progress: Progress = lambda _: None) -> Report:
    """Every check of a contribution; of a model.yaml that has the cases of several, of each of them."""
    model_file = plan.path / MODEL_FILE if plan.path.is_dir() else plan.path
    if not plan.path.exists():
        raise ConfigError(f"there is no {plan.path}", fix="give the folder of a contribution, or its model.yaml")
    root = plan.root or model_file.parent
    cases, findings = _cases_of(model_file)
    places, unplaced = _places_of(cases, root)
    folders = list(dict.fromkeys(place.contribution for place in places)) or [_folder_of(plan.path, root)]
    safe: dict[Path, bool] = {}
    results: dict[str, CaseResult] = {}
    index = PackageIndex(plan.index)
    for folder in folders:
        contribution = Contribution.open(folder)
        own = [place.case for place in places if place.contribution == folder]
        findings += check_structure(contribution)
        findings += check_readme(contribution)
        findings += check_parameters(contribution, own)
        findings += check_requirements(contribution, index.releases, partial(ask_pip, index))
        findings += check_hygiene(contribution)
        safe[folder] = is_safe_to_copy(contribution)
    findings += unplaced
    for place in places:
        findings += _run(place, plan.run, safe[place.contribution], results, progress)
    return Report(folders[0].resolve().name if len(folders) == 1 else str(model_file), tuple(findings), results)


def _cases_of(model_file: Path) -> tuple[list[Case], list[Finding]]:
    check = MODEL_FILE
    if not model_file.exists():
        return [], [failed(check, "there are no cases to run", fix="paddock zoo new makes a model.yaml")]
    try:
        cases = read_cases(model_file)
    except ConfigError as error:
        return [], [failed(check, error.what + (f": {error.why}" if error.why else ""), model_file.name, error.fix)]
    return cases, passed_unless(check, [], f"{len(cases)} case{'s' if len(cases) > 1 else ''}")


def _places_of(cases: list[Case], root: Path) -> tuple[list[CasePlace], list[Finding]]:
    places, findings = [], []
    for case in cases:
        try:
            places.append(find_place(case, root))
        except ConfigError as error:
            findings.append(failed(f"case {case.case_name}", f"{error.what}: {error.why}", MODEL_FILE, error.fix))
    return places, findings


def _folder_of(path: Path, root: Path) -> Path:
    folder = path if path.is_dir() else root
    return folder.parent if folder.name == SCRIPTS else folder


def _run(
    place: CasePlace, options: RunOptions | None, is_safe: bool, results: dict[str, CaseResult], progress: Progress
) -> list[Finding]:
    name = place.case.case_name
    if options is None or not is_safe:
        why = "nothing was run" if options is None else "the contribution cannot be copied: see structure"
        return [Finding(f"case {name}", "NOT CHECKED", why)]
    progress(f"case {name} on {options.device or place.case.params.device}")
    findings, result = run_case(place, options)
    if result is not None:
        results[name] = result
    return findings
