"""The guide to starting jobs: its commands run as they are written; training smaller."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddock.cli.main import run
from paddock.testing.commands import paddock
from paddock.testing.hosts import hosts, why_no_hosts
from paddock.testing.tiny import TINY, losses

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "launching.md"


def blocks(guide: Path, kind: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for one, text in fenced if one == kind]


def test_the_guide_runs(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (hosts_file,) = (text for text in blocks(GUIDE, "") if text.startswith("node1"))
    (tmp_path / "hosts.txt").write_text(hosts_file)
    commands = [shlex.split(line) for text in blocks(GUIDE, "sh") for line in text.splitlines()]
    printed = {}
    for program, *words in commands:
        assert program == "paddock"
        if "--simulate-nodes" in words:
            done = paddock("train", *TINY, *words[2:])
            assert done.returncode == 0, done.stderr
        else:
            capsys.readouterr()
            assert run(words) == 0, (words, capsys.readouterr().err)
            printed[words[1]] = capsys.readouterr().out
    assert losses(tmp_path / "runs" / "two-nodes") == pytest.approx(losses(trained_run), rel=1e-5)
    assert printed["check"].startswith("ok   table.json: 16 ranks on 2 servers")
    assert len(printed["hostfile"].splitlines()) == 2 and "--node-rank 1 --master-addr node1" in printed["hostfile"]
    assert "--device /dev/davinci7" in printed["container"]
    assert subprocess.run(["sh", "-n", "job.sh"]).returncode == 0
    kinds = [yaml.safe_load((tmp_path / name).read_text())["kind"] for name in ("job.yaml", "trainjob.yaml")]
    assert kinds == ["PyTorchJob", "TrainJob"]


@pytest.mark.slow
@pytest.mark.skipif(why_no_hosts() is not None, reason=why_no_hosts() or "")
def test_machines_find_their_places_in_a_list(trained_run: Path, tmp_path: Path) -> None:
    (text,) = (text for text in blocks(GUIDE, "") if text.startswith("host0$"))
    commands = [shlex.split(line.partition("$ ")[2]) for line in text.splitlines()]
    with hosts(2) as machines:
        nodes = [
            machine.start(
                [sys.executable, "-m", "paddock", "train", *TINY, *words[3:]],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=tmp_path,
            )
            for machine, words in zip(machines, commands, strict=True)
        ]
        said = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert losses(tmp_path / "runs" / "listed") == pytest.approx(losses(trained_run), rel=1e-5)
