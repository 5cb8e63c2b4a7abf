"""`paddock runs` and `paddock report`: what they print, write, ask and refuse."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.samples.run_directories import MadeRun, falling
from paddock.training.run_directory.lock import locked


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with runs of several kinds."""
    monkeypatch.chdir(tmp_path)
    MadeRun(Path("runs/a")).attempt(range(1, 101)).checkpoint(50).checkpoint(75, "best").checkpoint(100, "latest")
    made = MadeRun(Path("runs/b"), optimizer={"lr": 1e-2}).attempt(range(1, 61), ends=False, loss=lambda step: 7.0)
    made.attempt(range(41, 101), loss=lambda step: falling(step) + 1).checkpoint(100, "latest", "best")
    MadeRun(Path("runs/killed"), "bert/tiny").attempt(range(1, 31), ends=False)
    MadeRun(Path("runs/saved")).attempt(range(1, 31), ends=False).checkpoint(20, "latest")
    MadeRun(Path("runs/begun")).attempt(range(1, 1), ends=False)
    Path("runs/odd").mkdir()
    Path("runs/odd/metrics.jsonl").write_text("{}\n")
    return tmp_path / "runs"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(list(arguments)) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_the_list(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = printed(capsys, "runs", "list", "--sort", "name").splitlines()
    assert head.split() == ["run", "state", "recipe", "steps", "loss", "best", "speed", "size", "age"]
    assert [row.split()[0] for row in rows[:-1]] == [
        f"runs/{name}" for name in ("a", "b", "begun", "killed", "odd", "saved")
    ]
    assert rows[-1] == "damaged: runs/odd: it has no config.yaml"
    assert re.match(r"runs/a +done +gpt2/tiny +100/100 +2\.4925 +loss 2\.5000 +2\.0k tokens/s", rows[0])
    assert printed(capsys, "runs").splitlines()[0] == head


def test_the_list_is_filtered_and_sorted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def names(*arguments: str) -> list[str]:
        return [one["name"] for one in json.loads(printed(capsys, "runs", "list", "--json", *arguments))]

    assert names("--state", "failed", "--sort", "name") == ["runs/killed", "runs/saved"]
    assert names("--state", "failed", "never-began", "--sort", "steps")[-1] == "runs/begun"
    assert names("--recipe", "bert") == names("--recipe", "bert/tiny") == ["runs/killed"]
    assert names("--recipe", "gpt2/tiny", "--sort", "loss")[0] == "runs/a"
    assert set(names("runs/a", "runs/b")) == {"runs/a", "runs/b"}
    assert '"failed"' in printed(capsys, "runs", "list", "--state", "faild", code=2)


def test_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no folder runs" in printed(capsys, "runs", "list", code=2)
    (tmp_path / "runs").mkdir()
    assert printed(capsys, "runs", "list") == "" and printed(capsys, "runs", "list", "--json") == "[]\n"
    assert "compare" in printed(capsys, "runs", "lst", code=2) or "list" in printed(capsys, "runs", "lst", code=2)
    assert "rm RUN…" in printed(capsys, "runs", "--help")


def test_one_run_is_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "runs", "show", "runs/b")
    assert "paddock resume runs/b" in page and "step-00000100" in page and "latest and best" in page
    assert "next: paddock evaluate runs/b" in page and re.search(r"optimizer.lr +0.01", page)
    assert re.search(r"train.memory +\d\S* [kMG]?B\n", page) and re.search(r"train.step_time +[\d.]+m?s\n", page)
    assert "damaged: it has no config.yaml" in printed(capsys, "runs", "show", "runs/odd")
    assert json.loads(printed(capsys, "runs", "show", "runs/a", "--json"))["state"] == "done"
    assert '"runs/begun"' in printed(capsys, "runs", "show", "runs/begn", code=2)


def test_runs_are_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "runs", "compare", "runs/a", "runs/b", "runs/saved")
    assert re.search(r"^optimizer.lr +0.002 +0.01 +0.002$", page, re.MULTILINE)
    assert re.search(r"^train.loss +2\.4925 \* +3\.4925 +", page, re.MULTILINE)
    assert "train.seed" in printed(capsys, "runs", "compare", "runs/a", "runs/b", "--all") or "seed" in page
    assert list(json.loads(printed(capsys, "runs", "compare", "runs/a", "runs/b", "--json"))["differences"]) == [
        "optimizer.lr"
    ]
    assert "two runs or more" in printed(capsys, "runs", "compare", "runs/a", code=2)


def test_a_drawing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "runs", "plot", "runs/a", "runs/b", "--width", "60", "--height", "8").splitlines()
    assert lines[0] == "train.loss" and max(map(len, lines)) <= 60 and "\x1b" not in "".join(lines)
    assert lines[-2].strip() == "● a" and lines[-1].strip() == "○ b"
    assert any("┊" in line for line in lines), "where b went on"
    assert "val.loss" in printed(capsys, "runs", "plot", "runs/a", "--metric", "val.loss", "--x", "tokens", "--log")
    assert '"train.loss"' in printed(capsys, "runs", "plot", "runs/a", "--metric", "train.los", code=2)
    assert "above 0" in printed(capsys, "runs", "plot", "runs/a", "--smooth", "0", code=2)


@pytest.mark.parametrize("no_color", [False, True])
def test_a_drawing_on_a_terminal(no_color: bool, runs: Path) -> None:
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environment |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | ({"NO_COLOR": "1"} if no_color else {})
    command = [sys.executable, "-m", "paddock", "runs", "plot", "runs/a", "runs/b", "--width", "60"]
    process = subprocess.Popen(command, stdout=slave, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert process.wait() == 0
    assert (b"\x1b[" in shown) == (not no_color)
    assert bool(re.search("[\u2801-\u28ff]", shown.decode())) == (not no_color)


def test_forms_of_a_plot(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("svg", "png", "csv", "json"):
        printed(capsys, "runs", "plot", "runs/a", "runs/b", "--output", f"out/loss.{form}")
    assert Path("out/loss.svg").read_text().startswith("<svg") and Path("out/loss.png").read_bytes()[1:4] == b"PNG"
    rows = list(csv.DictReader(Path("out/loss.csv").read_text().splitlines()))
    assert len(rows) == 200 and [row["run"] for row in rows[::100]] == ["a", "b"]
    assert float(rows[99]["train.loss"]) == falling(100) and rows[99]["tokens"] == "102400"
    assert float(rows[100 + 40]["train.loss"]) == falling(41) + 1, "as it was done again"
    found = json.loads(Path("out/loss.json").read_text())
    assert list(found["runs"][0]["metrics"]) == ["train.loss"]
    assert "svg" in printed(capsys, "runs", "plot", "runs/a", "--output", "loss.pdf", code=2)
    assert "ignored" in printed(capsys, "runs", "plot", "runs/a", "--json", "--smooth", "5", code=2)
    assert "ignored" in printed(capsys, "runs", "plot", "runs/a", "--output", "a.svg", "--width", "50", code=2)


class Outside(HTMLParser):
    """What a page would fetch, and what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [name for name, _ in attributes if name in ("src", "href") or name.startswith("on")]


def test_the_page(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "report", "runs/a", "runs/b", "runs/killed")
    page = Path("report.html").read_text(encoding="utf-8")
    reader = Outside()
    reader.feed(page)
    page = page.replace("<wbr>", "")
    assert reader.fetched == [] and not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    assert reader.tags.count("script") == 1 and "link" not in reader.tags
    assert "prefers-color-scheme: dark" in page and "@media print" in page and "width=device-width" in page
    for text in (
        "train.loss",
        "val.loss",
        "train.memory",
        "optimizer.lr",
        "Restarts",
        "b: attempt 2 goes on after step 40",
    ):
        assert text in page, text
    assert page.count('data-axis="tokens"') == page.count('data-axis="step"') == page.count('data-axis="time"') > 5
    assert re.search(r'class="curve usual run-1 smooth"', page) and 'class="curve usual run-1 raw"' in page


def test_the_page_runs_its_own_script_and_no_other(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from base64 import b64encode
    from hashlib import sha256

    evil = Path("runs") / '"><script>alert(1)<'
    MadeRun(evil).attempt(range(1, 20))
    printed(capsys, "report", "runs/a", str(evil))
    page = Path("report.html").read_text(encoding="utf-8")
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert "alert(1)" not in script
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy and "'none'" in policy


def test_a_page_of_one_run_and_of_a_log(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "report", "runs/a", "--output", "one.html")
    assert "What it is" in Path("one.html").read_text(encoding="utf-8")
    Path("theirs.csv").write_text("step,loss\n1,3.5\n2,3.25\n")
    printed(capsys, "report", "theirs.csv", "runs/a", "--output", "two.html")
    page = Path("two.html").read_text(encoding="utf-8")
    assert "theirs.csv" in page and 'data-axis="tokens"' not in page


def test_forms_of_a_report(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "report", "runs/a", "--format", "csv").startswith("run,step,tokens,seconds,train.loss")
    found = json.loads(printed(capsys, "report", "runs/a", "runs/b", "--json"))
    assert found["differences"] == {"optimizer.lr": [0.002, 0.01]}
    assert [one["restarts"] for one in found["runs"]] == [[], [{"attempt": 2, "after_step": 40}]]
    assert printed(capsys, "report", "runs/a", "--format", "svg").startswith("<svg")
    named = printed(capsys, "report", "runs/a", "--metric", "train.step_time", "train.loss", "--format", "svg")
    assert "train.step_time</text>" in named and "train.loss</text>" in named
    assert "goes to a file" in printed(capsys, "report", "runs/a", "--format", "png", code=2)
    assert "needs a run" in printed(capsys, "report", code=2)
    printed(capsys, "report", "runs/a", "--output", "picture.bin", "--format", "png")
    assert Path("picture.bin").read_bytes()[1:4] == b"PNG"
    assert "no config" not in printed(capsys, "report", "runs/odd", code=4)


def test_rm_removes_what_is_named_and_nothing_else(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--yes" in printed(capsys, "runs", "rm", "runs/a", code=2) and (runs / "a").exists()
    assert "removed runs/a" in printed(capsys, "runs", "rm", "runs/a", "runs/odd", "--yes")
    assert sorted(path.name for path in runs.iterdir()) == ["b", "begun", "killed", "saved"]
    assert "no run" in printed(capsys, "runs", "rm", "runs/a", "--yes", code=2)


def test_rm_refuses(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(runs / "a", "train"):
        assert "running" in printed(capsys, "runs", "rm", "runs/b", "runs/a", "--yes", code=3)
    (runs / "link").symlink_to("a")
    assert "symbolic link" in printed(capsys, "runs", "rm", "runs/link", "--yes", code=2)
    MadeRun(runs / "b" / "inner").attempt(range(1, 3))
    assert "holds other runs" in printed(capsys, "runs", "rm", "runs/b", "--yes", code=2)
    assert "not a run" in printed(capsys, "runs", "rm", "runs", "--yes", code=2)
    monkeypatch.chdir(runs / "a")
    assert "folder you are in" in printed(capsys, "runs", "rm", ".", "--yes", code=2)
    assert (runs / "a" / "config.yaml").exists() and (runs / "b" / "config.yaml").exists()


def test_clean_removes_what_came_to_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = printed(capsys, "runs", "clean", "--dry-run")
    assert (
        "runs/begun" in planned and "runs/killed" in planned and "would go" in planned and "runs/saved" not in planned
    )
    assert len(list(runs.iterdir())) == 6
    assert "--yes" in printed(capsys, "runs", "clean", code=2)
    printed(capsys, "runs", "clean", "--yes")
    assert sorted(path.name for path in runs.iterdir()) == ["a", "b", "odd", "saved"]
    assert printed(capsys, "runs", "clean", "--yes") == "nothing to remove\n"
    printed(capsys, "runs", "clean", "--failed", "--yes")
    assert sorted(path.name for path in runs.iterdir()) == ["a", "b", "odd"]


def test_clean_keeps_the_best_and_the_latest_checkpoint(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(printed(capsys, "runs", "clean", "--checkpoints", "--dry-run", "--json"))
    surplus = {one["path"]: one["bytes"] for one in plan["removals"] if "checkpoints" in one["path"]}
    assert list(surplus) == ["runs/a/checkpoints/step-00000050"] and 1000 < surplus.popitem()[1] < 1200
    with locked(runs / "a", "train"):
        capsys.readouterr()
        assert run(["runs", "clean", "--checkpoints", "--yes"]) == 0
        assert "left alone: runs/a is running" in capsys.readouterr().err
    assert (runs / "a" / "checkpoints" / "step-00000050").exists()
    printed(capsys, "runs", "clean", "--checkpoints", "--yes")
    left = sorted(path.name for path in (runs / "a" / "checkpoints").iterdir())
    assert left == ["best", "latest", "step-00000075", "step-00000100"]


@pytest.mark.parametrize("answer, removed", [(b"y\n", True), (b"\n", False), (b"no\n", False)])
def test_it_asks_on_a_terminal(answer: bytes, removed: bool, runs: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "paddock", "runs", "rm", "runs/a"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(master, 4096)
    assert b"runs/a" in shown and (runs / "a").exists()
    os.write(master, answer)
    assert process.wait() == 0
    os.close(master)
    assert (runs / "a").exists() != removed


def test_a_list_needs_no_torch(runs: Path) -> None:
    code = (
        "import sys; from paddock.cli.main import run\n"
        "run(['runs', 'list']); run(['report', 'runs/a']); print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.splitlines()[-1] == "False", told.stderr
