"""Law 5: vendors live in paddock/devices. No other room names one in code, or asks whether a device is the CPU: what
differs between devices is a field of their adapters. Prose may say anything."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paddock

ROOT = Path(paddock.__file__).parent
VENDORS = {"cuda", "npu", "mlu", "sdaa", "xpu"}
MODULES = {f"torch_{name}" for name in VENDORS}
FLAGS = {f"is_{name}" for name in VENDORS}


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
        found += [f"{node.lineno}: {word}" for word in words if word in VENDORS | MODULES | FLAGS]
    return found


def questions_about_the_cpu(source: str) -> list[str]:
    """`line: code` of every comparison, pattern, flag or prefix that asks whether something is the CPU."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare() | ast.MatchValue():
                asks = any(_is_cpu(part) for part in ast.walk(node))
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=arguments):
                asks = any(_is_cpu(argument) for argument in arguments)
            case ast.Attribute(attr="is_cpu"):
                asks = True
            case _:
                continue
        found += [f"{node.lineno}: {ast.unparse(node)}"] if asks else []
    return found


def _is_cpu(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.partition(":")[0] == "cpu"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "CPU"
    return False


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
        "tensor.is_cuda",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert vendor_names(source)


@pytest.mark.parametrize("source", ['"""Runs on cuda and npu."""', "x = 1  # torch.cuda", "import torch.nn"])
def test_the_check_lets_pass(source: str) -> None:
    assert not vendor_names(source)


@pytest.mark.parametrize(
    "source",
    [
        "if x.device.type == 'cpu': pass",
        "kernel = 'a' if 'cpu' != adapter.torch_type else 'b'",
        "adapter.name in ('cpu', 'other')",
        "device == torch.device('cpu:0')",
        "str(device).startswith('cpu')",
        "tensor.is_cpu",
        "adapter is CPU",
        "adapter is not cpu.CPU",
        "match device.type:\n    case 'cpu': pass",
    ],
)
def test_a_question_about_the_cpu_is_seen(source: str) -> None:
    assert questions_about_the_cpu(source)


@pytest.mark.parametrize("source", ["x.to('cpu')", "torch.device('cpu')", "tensor.cpu()", "a.type == b.type"])
def test_the_host_as_a_place_is_no_question(source: str) -> None:
    assert not questions_about_the_cpu(source)


def test_no_other_room_asks_for_the_cpu() -> None:
    homes = (ROOT / "devices", ROOT / "testing")
    files = [path for path in ROOT.rglob("*.py") if not any(home in path.parents for home in homes)]
    found = [f"{path.relative_to(ROOT)}:{hit}" for path in files for hit in questions_about_the_cpu(path.read_text())]
    assert not found, "what differs between devices is a field of the adapter:\n" + "\n".join(found)


def test_no_other_room_names_a_vendor() -> None:
    files = [path for path in ROOT.rglob("*.py") if ROOT / "devices" not in path.parents]
    assert len(files) > 5
    found = [f"{path.relative_to(ROOT)}:{hit}" for path in files for hit in vendor_names(path.read_text())]
    assert not found, "vendors live in paddock/devices:\n" + "\n".join(found)
