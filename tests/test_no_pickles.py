"""What others send is data, never code: nothing in the package unpickles what came from a file or another process.

What torch's DataLoader and Python's process pools hand to their own children goes over pipes of this user's, and is not
looked for here; docs/security.md says more.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paddock

ROOT = Path(paddock.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
OBJECTS = {
    "broadcast_object_list",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
    "allow_pickle",
}
MAY_PICKLE = {"testing/pool.py": "what a test hands to processes of its own"}


def unpickles(source: str) -> list[str]:
    """What in a module's text unpickles, or asks others to, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]} & MODULES | {alias.name for alias in node.names} & OBJECTS
        elif isinstance(node, ast.Attribute):
            names = {node.attr} & OBJECTS
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names = set() if isinstance(node.value, ast.Constant) and node.value.value is False else {"allow_pickle"}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            names = set() if given.get("weights_only") == "True" else {"torch.load"}
        found += [f"line {getattr(node, 'lineno', 0)}: {name}" for name in sorted(names)]
    return found


def test_nothing_is_unpickled() -> None:
    found = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name not in MAY_PICKLE and (lines := unpickles(path.read_text(encoding="utf-8"))):
            found[name] = lines
    assert found == {}, "send JSON (`World.all_gather`), read safetensors, or torch.load(…, weights_only=True)"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "dist.all_gather_object(a, b)",
        "from torch.distributed import broadcast_object_list",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_unpickling_is_found(source: str) -> None:
    assert unpickles(source)
    assert not unpickles("torch.load(file, weights_only=True)\nnp.load(path, allow_pickle=False)\njson.loads(text)")
