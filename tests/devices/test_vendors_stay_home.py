"""Law 5: vendors live in paddock/devices. No other room names one in code; prose may."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paddock

ROOT = Path(paddock.__file__).parent
VENDORS = {"cuda", "npu", "mlu", "sdaa", "xpu"}
MODULES = {f"torch_{name}" for name in VENDORS}


def vendor_names(source: str) -> list[str]:
    """`line: text` of every import, attribute, name or device string that belongs to a vendor."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                words = [part for alias in names for part in alias.name.split(".")]
            case ast.ImportFrom(module=module, names=names):
                words = [*(module or "").split("."), *(alias.name for alias in names)]
            case ast.Attribute(attr=name) | ast.Name(id=name):
                words = [name]
            case ast.Constant(value=str(text)):
                words = [text.partition(":")[0]]  # "cuda", "cuda:0"; a docstring is never just that
            case _:
                continue
        found += [f"{node.lineno}: {word}" for word in words if word in VENDORS | MODULES]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "torch.cuda.synchronize()",
        "torch.backends.cuda.matmul",
        "import torch_npu",
        "import torch.npu",
        "from torch import cuda",
        "x.to('mlu:0')",
        "if device.type == 'sdaa': pass",
        "tensor.cuda()",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert vendor_names(source)


@pytest.mark.parametrize("source", ['"""Runs on cuda and npu."""', "x = 1  # torch.cuda", "import torch.nn"])
def test_the_check_lets_pass(source: str) -> None:
    assert not vendor_names(source)


def test_no_other_room_names_a_vendor() -> None:
    files = [path for path in ROOT.rglob("*.py") if ROOT / "devices" not in path.parents]
    assert len(files) > 5
    found = [f"{path.relative_to(ROOT)}:{hit}" for path in files for hit in vendor_names(path.read_text())]
    assert not found, "vendors live in paddock/devices:\n" + "\n".join(found)
