"""The guide to Python: its code runs from the top to the bottom, and does what the text says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.testing.guides import sections

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"


def test_a_module_of_your_own_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((block,),) = [section for section in sections(GUIDE) if any("nn.Module" in block.text for block in section)]
    names: dict[str, Any] = {"__name__": "guide"}
    exec(block.text, names)  # noqa: S102  the guide is ours
    first, *_, last = names["own"].history["train.loss"].values()
    assert last < 0.7 * first and names["right"] > 45
    assert list(names["own"].history["val.loss"]) == [14, 28, 42, 56]


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    for section in sections(GUIDE):
        for block in section:
            assert block.kind == "python"
            exec(block.text, names)  # noqa: S102  the guide is ours
    assert list(names["history"]["val.loss"]) == [20, 40]
    assert Path("losses.svg").read_text(encoding="utf-8").startswith("<svg")
    assert names["stopped"]["stopped"] == "a loss below 7" and names["stopped"]["step"] < 10_000
    assert list(names["measured"].history["val.bits"]) == [2, 4]
    assert (names["folder"] / "config.json").is_file() and names["speed"]["tokens_per_second"] > 0
    assert list(names["own"].history["val.loss"]) == [14, 28, 42, 56]
    assert names["longer"].history.rows[-1]["step"] == 45
