"""What must not be handed in: paths of one machine, calls of a debugger, secrets, and failures that go unnoticed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from paddock.versions import secrets_in
from paddock.zoo.contribution import Contribution
from paddock.zoo.findings import Finding, failed, passed_unless

CHECK = "hygiene"
DEBUGGERS = ("pdb", "ipdb", "pudb", "debugpy", "pydevd", "pydevd_pycharm")
ROOTS = "home|root|Users|data|datasets?|mnt|media|workspace|workdir|opt|srv|var|tmp|usr|etc|nfs|share|softwares"
ABSOLUTE = re.compile(rf"(?<![\w.:/~$}}-])(?:/(?:{ROOTS})/[\w.-]+|~/[\w.-]+|[A-Za-z]:\\[\w.\\-]+)")
"""Below one of the usual roots: what else begins with a slash may be part of an address, or a fraction."""
WHOLE = re.compile(r"/(?!dev/(?:null|std|shm|fd)|proc/)[\w.-]+(?:/[\w.-]+)+/?")
"""A string that is a path from its first letter to its last."""
LONGEST_SHOWN = 60


def check_hygiene(contribution: Contribution) -> list[Finding]:
    """All of that, with the line."""
    findings: list[Finding] = []
    for path in contribution.texts():
        name, text = str(path), contribution.text(path)
        tree = contribution.syntax(path) if path.suffix == ".py" else None
        if tree is not None:
            found = [*_paths_of(tree), *_debugger_calls(tree), *_ignored_failures(tree)]
        elif path.suffix in (".sh", ".yaml", ".yml", ".txt", ".cfg", ".ini", ".toml", ".json"):
            found = [*_paths_in(text)]
        else:  # of what people read, a path in an example does no harm
            found = []
        found += [(line, f"a secret: {kind}", "take it out, and make it invalid") for line, kind in secrets_in(text)]
        findings += [failed(CHECK, what, f"{name}:{line}", fix) for line, what, fix in found]
    return passed_unless(CHECK, findings, "no paths of one machine, debuggers, secrets or ignored failures")


Found = Iterator[tuple[int, str, str]]


def _paths_of(tree: ast.Module) -> Found:
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            match = WHOLE.fullmatch(node.value) or ABSOLUTE.search(node.value)
            if match:
                yield node.lineno, f"an absolute path: {match.group()[:LONGEST_SHOWN]}", "make it a parameter"


def _paths_in(text: str) -> Found:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#!"):  # how a script is run
            continue
        match = ABSOLUTE.search(line)
        if match:
            yield number, f"an absolute path: {match.group()[:LONGEST_SHOWN]}", "make it a parameter, or relative"


def _debugger_calls(tree: ast.Module) -> Found:
    fix = "remove it: nobody is there to answer it"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            inside = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for name in (inside + alias.name for alias in node.names):
                if name.partition(".")[0] in DEBUGGERS or name == "IPython.embed":
                    yield node.lineno, f"a debugger is imported: {name}", fix
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("breakpoint", "IPython.embed") or name.endswith(".set_trace"):
                yield node.lineno, f"a debugger is called: {name}()", fix


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
