"""The audit tells apart what is well, what is not, and what nobody knows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("audit", Path(__file__).with_name("audit.py"))
assert _spec is not None and _spec.loader is not None
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

KNOWN = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-1"}]}
CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        ([KNOWN, CLEAN], 0, "1 of 1 checked, 0 advisories"),
        ([KNOWN, {**CLEAN, "vulns": [{"id": "PYSEC-2"}]}], 1, "numpy 2.4.6: PYSEC-2"),
        ([KNOWN, {"name": "numpy", "skip_reason": "not found"}], 3, "NOT CHECKED: numpy: not found"),
        ([KNOWN], 3, "1 of 1 are not in the report"),
        ([{"name": "jinja2", "skip_reason": "not found"}, CLEAN], 3, "no database of advisories could be reached"),
        ([{**KNOWN, "vulns": []}, CLEAN], 3, "nothing against jinja2==2.4.1"),
    ],
)
def test_what_a_report_means(report: list[Any], code: int, said: str) -> None:
    found, lines = audit.judge({"dependencies": report}, 1)
    assert found == code
    assert said in "\n".join(lines)


def test_no_report_is_no_success(tmp_path: Path) -> None:
    found, lines = audit.judge(audit.ask(str(tmp_path / "nowhere"), []), 1)
    assert (found, "NOT CHECKED" in lines[0]) == (3, True)
