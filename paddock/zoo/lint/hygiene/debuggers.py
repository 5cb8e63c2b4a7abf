"""Debuggers that are imported, called or started: in a program, or by a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from paddock.zoo.lint.hygiene.sources import Source

DEBUGGERS = (
    *("pdb", "ipdb", "pudb", "rpdb", "wdb", "web_pdb", "remote_pdb", "bdb"),
    *("debugpy", "ptvsd", "pydevd", "pydevd_pycharm"),
)
NAMED = ("IPython.embed", "IPython.start_ipython", "code.interact", "code.InteractiveConsole")
"""Of modules that have other uses, too."""
CALLS = (*NAMED, "breakpoint", "sys.breakpointhook", "torch.distributed.breakpoint", "dist.breakpoint")
STARTED = re.compile(
    rf"(?<!\S)-m\s*(?:{'|'.join(DEBUGGERS)})(?![\w.])|(?:^|[;&|]\s*|\bexec\s+)(?:[ip]?pdb3?|pudb3?|(?:[a-z]+-)?gdb|lldb)\s"
)
"""A debugger that a command starts."""
Found = Iterator[tuple[int, str]]
"""Lines, and what is there."""


def debuggers_in(source: Source, tree: ast.Module | None) -> Found:
    """The debuggers of a source; `tree` is what Python makes of it, if it is a program."""
    if tree is not None:
        yield from _in_program(tree)
    elif source.kind in ("commands", "dockerfile", "settings"):
        for number, line in enumerate(source.text.splitlines(), start=1):
            if not line.lstrip().startswith("#") and (match := STARTED.search(line)):
                yield number, f"a debugger is started: {match.group().strip()}"


def _in_program(tree: ast.Module) -> Found:
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            inside = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for name in (inside + alias.name for alias in node.names):
                if name.partition(".")[0] in DEBUGGERS or name in NAMED:
                    yield node.lineno, f"a debugger is imported: {name}"
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or name.endswith(".set_trace"):
                yield node.lineno, f"a debugger is called: {name}()"
            elif name in ("__import__", "importlib.import_module", "import_module"):
                names = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
                if names and names[0] in DEBUGGERS:
                    yield node.lineno, f"a debugger is imported: {names[0]}"
        elif (
            isinstance(node, ast.expr)
            and id(node) not in documentation
            and (match := STARTED.search(_command_of(node)))
        ):
            yield node.lineno, f"a debugger is started: {match.group().strip()}"


def _command_of(node: ast.expr) -> str:
    """The command that the words of a list spell, or a string that is run; nothing, if it is neither."""
    match node:
        case ast.List(elts=words) | ast.Tuple(elts=words):
            return " ".join(str(word.value) if isinstance(word, ast.Constant) else "?" for word in words)
        case ast.Constant(value=str(text)) if "python" in text:
            return text
    return ""
