"""Paths of one machine, in programs, commands and settings: `DATA = "/imagenet"` trains on the author's machine alone.

Much that begins with a slash is no path: routes, the ends of addresses, fractions, units, patterns. So a string of a
program counts as one by what is done with it; in other texts, by the usual roots, or because a name is given to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from paddock.zoo.lint.hygiene.sources import Source

ROOTS = "home|root|Users|data|datasets?|mnt|media|workspace|workdir|opt|srv|var|tmp|usr|etc|nfs|share|softwares"
EVERYWHERE = r"(?!(?:dev|proc|sys|bin)/?$|dev/(?:null|std|shm|fd|tty|zero|u?random)|proc/|sys/|bin/|usr/bin/env)"
"""What every machine has."""
ABSOLUTE = re.compile(rf"(?<![\w.:/~$}}-])(?:/{EVERYWHERE}(?:{ROOTS})/[\w.-]+|~/[\w.-]+|[A-Za-z]:\\[\w.\\-]+)")
"""Below one of the usual roots: what else begins with a slash may be part of an address, or a fraction."""
_WHOLE = rf"/{EVERYWHERE}(?:[^\W\d][\w.-]+|[\w.-]+(?=/[\w.-]))(?:/[\w.-]+)*/?"
WHOLE = re.compile(_WHOLE)
"""A string that is a path from its first letter to its last; of a single letter nobody knows."""
NAMED = re.compile(
    rf"(?:^|[\s,{{])(?:--?)?([A-Za-z_][\w.-]{{0,60}})[\"']?(?:=|:\s{{1,8}}|\s{{1,8}}=\s{{1,8}})[\"']?"
    rf"({_WHOLE})(?=[\"'\s,;}}\]]|$)"
)
PASSED = re.compile(rf"(?:^|\s)--?([A-Za-z_][\w.-]{{1,60}})\s{{1,8}}[\"']?({_WHOLE})(?=[\"'\s;]|$)")
"""A flag that is a word, and what follows it."""
NO_PATH = re.compile(
    r"(^|_)(url|uri|href|route|endpoint|api|health|prefix|suffix|ext|extension|sep|separator|delimiter|unit|units|"
    r"pattern|regex|fmt|format|flag|flags|arg|args|options|help|desc|description|tag|tags|title|label|token|key|name)"
    r"s?(_|$)",
    re.IGNORECASE,
)
"""Names of what may begin with a slash without being a path."""
ROUTES = frozenset(
    "route get post put delete patch head options websocket mount add_url_rule add_api_route add_route add_get "
    "add_post api_route include_router APIRouter Route Mount Blueprint register_blueprint urljoin url_for redirect "
    "request Request urlopen".split()
)
"""Calls that take the paths of a server."""
WORDS = frozenset(
    "startswith endswith replace split rsplit strip lstrip rstrip removeprefix removesuffix partition rpartition find "
    "rfind index rindex count compile match search sub subn fullmatch findall finditer print write debug info warning "
    "error exception critical log exit add_scalar add_scalars add_image add_histogram add_argument".split()
)
"""Calls that take words, and parts of paths."""
LONGEST_SHOWN = 60
Found = Iterator[tuple[int, str]]
"""Lines, and the paths there."""


def paths_in(source: Source, tree: ast.Module | None) -> Found:
    """The paths of one machine in a source; `tree` is what Python makes of it, if it is a program."""
    if tree is not None:
        yield from _in_program(tree)
    elif source.kind == "dockerfile":
        yield from _in_dockerfile(source.text)
    elif source.kind in ("commands", "settings", "list"):
        yield from _in_text(source.text)


def _in_text(text: str) -> Found:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#!"):  # how a script is run
            continue
        if match := ABSOLUTE.search(line):
            yield number, match.group()[:LONGEST_SHOWN]
            continue
        named = [(name, path) for form in (NAMED, PASSED) for name, path in form.findall(line)]
        path = next((path for name, path in named if not NO_PATH.search(name)), None)
        if path is not None:
            yield number, path[:LONGEST_SHOWN]


def _in_dockerfile(text: str) -> Found:
    """What is copied from the machine that builds; other paths are the image's own."""
    joined = re.sub(r"\\[ \t]*\n", lambda end: " " * len(end.group()), text)
    for match in re.finditer(r"^[ \t]*(?:COPY|ADD)[ \t]+(.*)$", joined, re.IGNORECASE | re.MULTILINE):
        words = [word for word in re.split(r"[\s\[\],\"']+", match[1]) if word]
        if any(word.startswith("--from=") for word in words):
            continue
        sources = [word for word in words if not word.startswith("--")][:-1]
        path = next((word for word in sources if word.startswith(("/", "~")) and len(word) > 1), None)
        if path is not None:
            yield text.count("\n", 0, match.start()) + 1, path[:LONGEST_SHOWN]


def _in_program(tree: ast.Module) -> Found:
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = _path_of(node, node.value, parents)
            if path is not None:
                yield node.lineno, path[:LONGEST_SHOWN]


def _path_of(node: ast.Constant, text: str, parents: dict[int, ast.AST]) -> str | None:
    """The path that a string is, or that stands in it."""
    whole: ast.AST = node
    while (outer := _continued_by(whole, parents[id(whole)])) is not None:
        whole = outer
    parent = parents[id(whole)]
    if isinstance(parent, ast.Expr):  # documentation
        return None
    if _goes_on_from(whole, parent):
        match = ABSOLUTE.search("}" + text)
        return match.group() if match else None
    if WHOLE.fullmatch(text):
        names = _names_of(whole, parent, parents)
        if names & ROUTES:
            return None
        if names and not names & WORDS and not any(map(NO_PATH.search, names)):
            return text
    match = ABSOLUTE.search(text)
    return match.group() if match else None


def _continued_by(node: ast.AST, parent: ast.AST) -> ast.AST | None:
    """The expression that a node begins, or is one of."""
    match parent:
        case (
            ast.BinOp(op=ast.Div()) | ast.List() | ast.Tuple() | ast.Set() | ast.IfExp() | ast.BoolOp() | ast.Starred()
        ):
            return parent
        case ast.BinOp(left=first) | ast.JoinedStr(values=[first, *_]) if first is node:
            return parent
    return None


def _goes_on_from(node: ast.AST, parent: ast.AST) -> bool:
    """Whether something stands before it: `root + "/train"`."""
    return isinstance(parent, ast.BinOp | ast.JoinedStr)


def _names_of(node: ast.AST, parent: ast.AST, parents: dict[int, ast.AST]) -> set[str]:
    """What a value is given to: names of variables, parameters, keys, functions; none where that says nothing."""
    match parent:
        case ast.Assign(targets=targets):
            return {_last_name(target) for target in targets}
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return {_last_name(target)}
        case ast.Call(func=function):
            return {_last_name(function)}
        case ast.keyword(arg=name):
            outer = parents[id(parent)]
            return {name or "", _last_name(outer.func) if isinstance(outer, ast.Call) else ""} - WORDS
        case ast.Dict(keys=keys, values=values):
            return {
                _last_name(key) for key, value in zip(keys, values, strict=True) if value is node and key is not None
            }
        case ast.arguments():
            return {name for name, default in _defaults(parent) if default is node}
        case ast.Return():
            return {"return"}
    return set()


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    last = positional[len(positional) - len(arguments.defaults) :]
    for argument, default in [*zip(last, arguments.defaults, strict=True)]:
        yield argument.arg, default
    for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg, keyword_default


def _last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; the text of a key; something that says nothing, of anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(text)):
            return text
        case ast.Subscript(slice=index):
            return _last_name(index)
    return "?"
