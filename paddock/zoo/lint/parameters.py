"""Whether a contribution has the run interface: every parameter defined, documented, and defined where it is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from paddock.errors import did_you_mean
from paddock.zoo.contribution import MODEL_FILE, SCRIPTS, Contribution
from paddock.zoo.findings import Finding, failed, passed_unless
from paddock.zoo.model_file import Case

CHECK = "parameters"
ARGUMENTS, PAGE = Path(SCRIPTS, "argument.py"), Path(SCRIPTS, "README.md")
REQUIRED = ("model_name", "batch_size", "epoch", "step", "dataset_path", "lr", "device", "autocast")


def check_parameters(contribution: Contribution, cases: list[Case]) -> list[Finding]:
    """What argument.py defines, against what the ModelZoo asks for, what model.yaml passes and what README.md tells."""
    tree = contribution.syntax(ARGUMENTS) if contribution.has(ARGUMENTS) else None
    if tree is None:
        return [failed(CHECK, "there is no argument.py that could be read", str(ARGUMENTS))]
    defined = set(parameters_of(tree))
    findings = [
        failed(CHECK, f"--{name} is not defined", str(ARGUMENTS), f'parser.add_argument("--{name}", …)')
        for name in missing(defined, cases)
    ]
    for case in cases:
        findings += [
            failed(
                CHECK,
                f"{case.case_name} passes --{name}, which argument.py does not define",
                MODEL_FILE,
                did_you_mean(name, sorted(defined)),
            )
            for name in case.params.given()
            if name not in defined and name not in missing(defined, cases)
        ]
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", contribution.text(PAGE)))
    findings += [
        failed(CHECK, f"--{name} is not explained", str(PAGE), "say what it means, and its default")
        for name in sorted(defined - words)
    ]
    return passed_unless(CHECK, findings, f"{len(defined)} parameters, all of them explained")


def missing(defined: set[str], cases: list[Case]) -> list[str]:
    """The parameters that there should be: more for several processes, and for several machines."""
    required = list(REQUIRED)
    if any((case.params.nproc_per_node or 1) > 1 for case in cases):
        required.append("nproc_per_node")
    lacking = [name for name in required if name not in defined]
    if any(max(case.params.nnode or 1, case.params.nnodes or 1) > 1 for case in cases):
        lacking += [name for name in ("node_rank",) if name not in defined]
        lacking += ["nnode"] if defined.isdisjoint({"nnode", "nnodes"}) else []
    return lacking


def parameters_of(tree: ast.Module) -> Iterator[str]:
    """The names that calls of `add_argument` define."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            for name in names:
                if isinstance(name, str) and name.startswith("--"):
                    yield name.removeprefix("--").replace("-", "_")
