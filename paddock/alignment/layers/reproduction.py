"""A script that shows one operator's error by itself: for whoever has to mend the operator.

It needs torch, safetensors and the device's own package, and nothing of Paddock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from paddock.alignment.layers.operators import OperatorFinding
from paddock.devices import DeviceAdapter
from paddock.files import atomic_write

MOST_BYTES = 20_000_000
"""Of numbers that are kept beside a script."""
MOST_SCRIPTS = 3
MOST_TOGETHER = 50_000_000
"""Bytes of all scripts, with the numbers beside them."""
BESIDE = 10_000
"""Bytes of a script itself, and of the head of its numbers' file, at most."""
SCRIPT = '''"""{operator} on {device}, beside {reference}: one call of a training step's {direction} pass, in {module}.

There the norm of the difference was {found:.2g} of the result's, and {allowed:.2g} would be rounding.
Run: python {script}
"""

import torch
{imports}

def tensor(shape, stride, dtype, values):
    made = torch.empty_strided(shape, stride, dtype=dtype)
    return made.copy_(values)


def arguments():
{kept}    return {arguments}


def compute(device):
    def moved(value):
        if isinstance(value, torch.Tensor):
            return value.to(device)
        return [moved(one) for one in value] if isinstance(value, (list, tuple)) else value

    args, kwargs = arguments()
    given = [moved(one) for one in args]
    result = torch.ops.{operator}(*given, **{{name: moved(one) for name, one in kwargs.items()}})
    results = result if isinstance(result, (list, tuple)) else [result]
    return [one.cpu() for one in results if isinstance(one, torch.Tensor) and one.is_floating_point()]


for found, expected in zip(compute("{device}"), compute("{reference}")):
    error = torch.linalg.vector_norm((found - expected).double()) / torch.linalg.vector_norm(expected.double())
    print(f"{operator}: relative error {{error:.3g}}, allowed {allowed:.2g}")
'''


def write_reproductions(
    operators: Sequence[OperatorFinding], folder: Path, device: DeviceAdapter, reference: DeviceAdapter
) -> list[Path]:
    """A script for each of the first few operators: where it is worst, and its numbers are not too many, nor are those
    of all of them."""
    found: dict[str, Path] = {}
    room = MOST_TOGETHER
    for one in operators:
        if one.operator not in found and len(found) < MOST_SCRIPTS:
            script = _write(one, folder, device, reference, room)
            if script is not None:
                found[one.operator] = script
                room -= sum(file.stat().st_size for file in _files(script))
    return list(found.values())


def _write(
    finding: OperatorFinding, folder: Path, device: DeviceAdapter, reference: DeviceAdapter, room: int
) -> Path | None:
    """The script, and its numbers beside it; None where the operator's inputs were not kept, or are too many for a
    script or for the `room` in bytes that there is."""
    if finding.arguments is None:
        return None
    tensors: dict[str, Tensor] = {}
    text = _literal(finding.arguments, tensors)
    if sum(one.numel() * one.element_size() for one in tensors.values()) + BESIDE > min(MOST_BYTES, room):
        return None
    name = f"{finding.operator.replace('.', '-')}-{finding.call}"
    script, data = _files(folder / f"{name}.py")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(data, "wb") as stream:
        stream.write(save(tensors))
    with atomic_write(script) as stream:
        stream.write(
            SCRIPT.format(
                operator=finding.operator,
                module=finding.module or "no module",
                direction=finding.direction,
                device=device.torch_type,
                reference=reference.torch_type,
                found=finding.distance.whole,
                allowed=finding.allowed.whole,
                script=script.name,
                imports="from pathlib import Path\n\nfrom safetensors.torch import load_file\n"
                + (f"\nimport {device.package}\n" if device.package else ""),
                kept=f'    kept = load_file(Path(__file__).with_name("{data.name}"))\n',
                arguments=text,
            )
        )
    return script


def _files(script: Path) -> tuple[Path, Path]:
    """A script, and the numbers beside it."""
    return script, script.with_suffix(".safetensors")


def _literal(value: Any, tensors: dict[str, Tensor]) -> str:
    """A value as Python text; tensors are kept beside, by number."""
    match value:
        case Tensor():
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous().clone()
            layout = f"{tuple(value.shape)}, {value.stride()}, {value.dtype}"
            return f'tensor({layout}, kept["{name}"])'
        case list() | tuple():
            inside = ", ".join(_literal(one, tensors) for one in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
        case dict():
            return "{" + ", ".join(f"{name!r}: {_literal(one, tensors)}" for name, one in value.items()) + "}"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        case bool() | int() | float() | str() | None:
            return repr(value)
        case torch.dtype() | torch.memory_format() | torch.layout():
            return str(value)
        case torch.device():
            return "None"
    raise TypeError(f"an operator was given a {type(value).__name__}, which no script can say")
