"""What keeps the house in order: who may print, and how many files a folder has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paddock
from paddock.cli.main import VERBS

ROOT = Path(paddock.__file__).parent
MAY_PRINT = ("cli", "telemetry", "testing")
MOST_FILES = 17
"""About 15 is the aim; a folder beyond this wants to be two."""


def prints_results(source: str) -> list[int]:
    """The lines that write to standard output, where results go and nothing else does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            if not any(keyword.arg == "file" for keyword in node.keywords):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.stdout.write":
            found.append(node.lineno)
    return found


def test_results_are_printed_by_the_command_line_alone() -> None:
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in MAY_PRINT]
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := prints_results(path.read_text(encoding="utf-8")))
    }
    assert found == {}, "a job returns its result; the verb's file in cli/ prints it"


@pytest.mark.parametrize("line", ['print("x")', "sys.stdout.write('x')", "if 1:\n    print(1, end='')"])
def test_printing_is_found(line: str) -> None:
    assert prints_results(line) and not prints_results("print('note', file=sys.stderr)")


def test_no_folder_has_too_many_doors() -> None:
    verbs = {ROOT / "cli" / f"{verb.replace('-', '_')}.py" for verb in VERBS}  # a file each: as many as there are
    sizes = {
        folder: len({*folder.glob("*.py")} - verbs - {folder / "__init__.py"})
        for folder in ROOT.rglob("*")
        if folder.is_dir()
    }
    crowded = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_FILES}
    assert crowded == {}


FAMILIES = {"gpt2", "bert", "t5", "resnet"}


FAMILY_CLASSES = {
    node.name
    for family in FAMILIES
    for path in (ROOT / "models" / family).glob("*.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef)
}
"""GPT2, ResNetConfig, …"""


def choices_by_family(source: str) -> list[int]:
    """The lines that compare a family with the name of one, or ask whether something is of a class of one."""

    def words(node: ast.Compare) -> set[object]:
        parts = list(ast.walk(node))
        constants = {part.value for part in parts if isinstance(part, ast.Constant)}
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        return constants | names | {part.attr for part in parts if isinstance(part, ast.Attribute)}

    nodes = list(ast.walk(ast.parse(source)))
    compared = [node for node in nodes if isinstance(node, ast.Compare)]
    found = [node.lineno for node in compared if "family" in words(node) and words(node) & FAMILIES]
    return sorted([*found, *(node.lineno for node in nodes if isinstance(node, ast.Call) and asks_for_class(node))])


def asks_for_class(call: ast.Call) -> bool:
    """`isinstance(config, ResNetConfig)`, among others, too; and `issubclass`."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("isinstance", "issubclass"):
        return False
    names = [part for argument in call.args[1:] for part in ast.walk(argument)]
    classes = {part.id for part in names if isinstance(part, ast.Name)}
    classes |= {part.attr for part in names if isinstance(part, ast.Attribute)}
    return bool(classes & FAMILY_CLASSES)


def test_only_a_family_knows_what_is_special_about_it() -> None:
    """What differs between families is asked of the family, its config or its model: one from outside answers, too.
    Only configs of other systems, which have a section for each family, are read by its name."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in ROOT.rglob("*.py")
        if not {ROOT / "models", ROOT / "config" / "foreign"} & {*path.parents}
        if (lines := choices_by_family(path.read_text(encoding="utf-8")))
    }
    assert found == {}
    assert choices_by_family('if config.family == "resnet" or family in ("t5", "gpt2"): pass') == [1, 1]
    assert choices_by_family("isinstance(x, ResNetConfig)\nisinstance(x, (int, gpt2.GPT2))\nisinstance(x, int)") == [
        1,
        2,
    ]


PARALLEL = ("paddock.parallel", "torch.distributed")


def imports_of_parallelism(source: str) -> list[int]:
    """The lines that import it, in any spelling, or reach it through torch."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        if any(f"{name}.".startswith(f"{room}.") for name in names for room in PARALLEL):
            found.append(node.lineno)
    return sorted(set(found))


def test_a_model_is_written_for_one_device() -> None:
    """Parallelism stands beside a model, in `parallel.py`, and changes it from outside."""
    files = sorted((ROOT / "models").glob("*/model.py"))
    assert len(files) >= len(FAMILIES)
    found = {
        path.parent.name: lines for path in files if (lines := imports_of_parallelism(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "import torch.distributed as dist",
        "import torch.distributed.tensor",
        "from torch import distributed",
        "from torch.distributed import nn",
        "from paddock import parallel",
        "from paddock.parallel.mesh import Mesh",
        "def f():\n    torch.distributed.get_rank()",
    ],
)
def test_parallelism_is_found(line: str) -> None:
    assert imports_of_parallelism(line)
    assert not imports_of_parallelism("import torch\nfrom torch import nn\nfrom paddock.models.gpt2 import parallel")
