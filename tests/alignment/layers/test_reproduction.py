"""Scripts that show an operator's error: which are written, and how large they are together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paddock.alignment.layers import reproduction
from paddock.alignment.layers.closeness import SAME, Distance
from paddock.alignment.layers.operators import OperatorFinding
from paddock.alignment.layers.reproduction import write_reproductions
from paddock.devices import adapter_named


def wrong(operator: str, call: int, numbers: int | None) -> OperatorFinding:
    given = None if numbers is None else ([torch.zeros(numbers)], {})
    return OperatorFinding(operator, "layers.0", "forward", call, Distance(1e-2, 1e-2), SAME, given)


def test_scripts_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "MOST_TOGETHER", 500_000)
    found = [wrong("aten.exp.default", 1, 60_000), wrong("aten.exp.default", 2, 60_000)]
    found += [
        wrong("aten.mm.default", 3, 70_000),
        wrong("aten.mm.default", 4, None),
        wrong("aten.mm.default", 5, 50_000),
    ]
    found += [wrong("aten.gelu.default", 6, 30_000)]
    scripts = write_reproductions(found, tmp_path, adapter_named("npu"), adapter_named("cpu"))
    assert [path.name for path in scripts] == ["aten-exp-default-1.py", "aten-mm-default-5.py"]
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 400_000 < written <= 500_000 and len(list(tmp_path.iterdir())) == 4
