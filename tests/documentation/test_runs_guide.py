"""The guide to runs: its commands run as they are written, and what it shows is what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from paddock import errors
from paddock.cli.main import run
from paddock.telemetry.jsonl import read_metrics
from paddock.telemetry.trackers import TRACKERS
from paddock.testing.tiny import losses

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "runs.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    block, *looking = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for command in block.splitlines():
        capsys.readouterr()
        assert run(shlex.split(command)[1:]) == 0, command
    said = capsys.readouterr().err
    shown = [line for line in text.splitlines() if line.startswith("changed: ")]
    assert shown and shown == [line for line in said.splitlines() if line.startswith("changed: ")]
    run_dir = tmp_path / "runs" / "guide"
    assert sorted(path.name for path in (run_dir / "attempts").iterdir()) == ["1", "2", "3"]
    begins = [record for record in read_metrics(run_dir / "metrics.jsonl") if record.get("metric") == "attempt"]
    assert [begin["metadata"] for begin in begins][1] == {"number": 2, "after_step": 8}
    assert losses(run_dir)
    check_looking(looking, capsys)


def check_looking(blocks: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What comes behind it: lists, curves, reports, tidying and TensorBoard."""
    printed = {}
    for command in "".join(blocks).splitlines():
        capsys.readouterr()
        assert run(shlex.split(command)[1:]) == 0, f"{command}\n{capsys.readouterr().err}"
        printed[command] = capsys.readouterr().out
    assert re.search(r"^runs/guide +done +gpt2/tiny +16/16", printed["paddock runs list"], re.MULTILINE)
    assert "optimizer.lr" in printed["paddock runs compare runs/guide runs/faster"]
    assert "┊" in printed["paddock runs plot runs/guide"], "it went on twice"
    assert "3  1 process" in printed["paddock runs show runs/guide"]
    assert Path("report.html").stat().st_size > 20_000 and Path("loss.svg").exists() and Path("loss.png").exists()
    assert printed["paddock report runs/guide --format csv"].count("\nguide,") >= 4
    assert "removed" in printed["paddock runs clean --checkpoints --yes"]
    assert not Path("runs/faster").exists() and list(Path("runs/board/tensorboard").iterdir())


def test_its_pictures_are_small() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text):
        assert (GUIDE.parent / link).stat().st_size < 200_000


def test_every_tracker_is_in_the_table() -> None:
    listed = re.findall(r"^\| `(\w+)` \| `pip install", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(listed) == TRACKERS


def test_the_exit_codes_are_those_of_the_errors() -> None:
    """Each error class's code is in the table, with 0 and the one of a run that was stopped."""
    listed = {int(code) for code in re.findall(r"^\| (\d) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.UserError)]
    assert listed == {0, errors.STOPPED, *(kind.exit_code for kind in kinds)}
