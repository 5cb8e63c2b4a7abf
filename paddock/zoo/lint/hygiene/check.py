"""All of hygiene: every file looked through, by what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from paddock.versions import Form, secret_in_bytes, secrets_in
from paddock.zoo.contribution import Contribution, parse_python
from paddock.zoo.findings import Finding, failed, passed_unless
from paddock.zoo.lint.hygiene.debuggers import debuggers_in
from paddock.zoo.lint.hygiene.paths import paths_in
from paddock.zoo.lint.hygiene.sources import Kind, Source, kind_of, sources_of, text_of

CHECK = "hygiene"
FORMS: dict[Kind, Form] = {"commands": "command", "dockerfile": "command", "settings": "setting"}
"""How values are assigned in them, beside the way of programs."""
Found = Iterator[tuple[int, str, str]]
"""Lines, what is there, and what to do."""


def check_hygiene(contribution: Contribution) -> list[Finding]:
    """What must not be handed in, with the line. Secrets are looked for in every file, but not inside archives."""
    findings: list[Finding] = []
    for path in contribution.files:
        findings += _findings_in(path, contribution.data(path))
    return passed_unless(CHECK, findings, "no paths of one machine, debuggers, secrets or ignored failures")


def _findings_in(path: Path, data: bytes) -> Iterator[Finding]:
    kind = kind_of(path, data)
    if kind == "binary":
        if (secret := secret_in_bytes(data)) is not None:
            yield failed(CHECK, f"a secret: {secret}", str(path), "take it out, and make it invalid")
        return
    text = text_of(data)
    for source in sources_of(path, kind, text):
        tree = parse_python(source.text) if source.kind == "python" else None
        faults = [*_faults_of(source, tree), *(_ignored_failures(tree) if tree and kind == "python" else ())]
        for line, what, fix in faults:
            yield failed(CHECK, what, f"{source.place}:{line}", fix)
    unescaped = text.replace('\\"', '"') if path.suffix in (".ipynb", ".json") else text
    for line, secret in secrets_in(unescaped, FORMS.get(kind, "program")):
        yield failed(CHECK, f"a secret: {secret}", f"{path}:{line}", "take it out, and make it invalid")


def _faults_of(source: Source, tree: ast.Module | None) -> Found:
    for line, path in paths_in(source, tree):
        yield line, f"an absolute path: {path}", "make it a parameter, or relative"
    for line, what in debuggers_in(source, tree):
        yield line, what, "remove it: nobody is there to answer it"


def _ignored_failures(tree: ast.Module) -> Found:
    """A command whose exit status nobody looks at: a run that fails would pass."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            name = ast.unparse(call.func)
            checks = any(keyword.arg == "check" for keyword in call.keywords)
            if name == "os.system" or (name in ("subprocess.call", "subprocess.run") and not checks):
                fix = "sys.exit(subprocess.run(command).returncode)"
                yield node.lineno, f"the exit status of {name} is thrown away", fix
