"""The guide to clusters: its commands run as they are written, on machines that are network namespaces where that is
permitted, and else as launchers on this one. What several machines compute is what one process does.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from paddock.testing.hosts import hosts, why_no_hosts
from paddock.testing.processes import reserved_port
from paddock.testing.tiny import TINY, losses, paddock

GUIDES = [Path(__file__).parents[2] / "docs" / "guides" / name for name in ("cluster.md", "cluster.zh.md")]
SMALLER = TINY[1:]
Start = Callable[[int, list[str]], "subprocess.Popen[str]"]
Said = tuple[str, str]


def jobs(guide: Path) -> list[list[list[str]]]:
    """The commands of every block that says on which machine each of them runs, in the machines' order."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found = []
    for block in blocks:
        lines = re.findall(r"^host(\d)\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE)
        if lines:
            assert [int(number) for number, _ in lines] == list(range(len(lines)))
            found.append([shlex.split(command) for _, command in lines])
    return found


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Start, Path]]:
    """Begins a command on one of the guide's two machines, in a folder that they share."""
    folder = tmp_path_factory.mktemp("cluster")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": folder}
    if why_no_hosts() is None:
        with hosts(2) as machines:
            yield lambda number, command: machines[number].start(command, **pipes), folder
        return
    with reserved_port() as port:
        here = ["--master-port", str(port)]

        def start_here(number: int, command: list[str]) -> subprocess.Popen[str]:
            words = [word.replace("10.7.0.1", "127.0.0.1") for word in command]
            return subprocess.Popen([*words, *here], text=True, **pipes)  # type: ignore[call-overload, no-any-return]

        yield start_here, folder


def carry_out(start: Start, job: Sequence[list[str]]) -> list[Said]:
    """All of a job's commands at once; training is made smaller."""
    processes = []
    for number, (program, verb, *words) in enumerate(job):
        assert program == "paddock"
        name = [words.pop(0), *SMALLER] if verb == "train" else []
        processes.append(start(number, [sys.executable, "-m", "paddock", verb, *name, *words]))
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(job), (job, said)
    return said


def test_the_guide_runs(start: tuple[Start, Path], trained_run: Path) -> None:
    begin, folder = start
    done = {job[0][1]: carry_out(begin, job) for job in jobs(GUIDES[0])}
    assert list(done) == ["doctor", "train", "evaluate", "generate"]

    report = done["doctor"][0][0]
    assert "4 processes on 2 machines are ready" in report
    assert all(word in report for word in ("machines", "products", "gloo", "0 – 1"))
    assert "machine 1 is ready" in done["doctor"][1][1]

    for name in ("train.loss", "train.grad_norm", "val.loss"):
        assert losses(folder / "runs" / "two", name) == pytest.approx(losses(trained_run, name), rel=1e-5)
    assert "preflight: 4 processes on 2 machines compute as they should; gloo takes" in done["train"][0][1]

    alone = paddock("evaluate", str(folder / "runs" / "two"), "--json")
    loss = json.loads(alone.stdout)["val.loss"]
    assert f"{loss:.4f}"[:5] in done["evaluate"][0][0], done["evaluate"]
    text = paddock("generate", str(folder / "runs" / "two"), *shlex.split("--prompt 'The function' --max-new-tokens 8"))
    assert done["generate"] == [(text.stdout, done["generate"][0][1]), ("", done["generate"][1][1])]


def test_the_guides_are_in_step() -> None:
    english, chinese = (guide.read_text(encoding="utf-8") for guide in GUIDES)
    assert jobs(GUIDES[0]) == jobs(GUIDES[1])
    for pattern in (r"^## ", r"^\| ", r"^```", r"^- "):
        assert len(re.findall(pattern, english, re.MULTILINE)) == len(re.findall(pattern, chinese, re.MULTILINE))


def test_flags_of_the_guide_exist() -> None:
    page = paddock("train", "gpt2/tiny", "--help", COLUMNS="200").stdout + paddock("doctor", "--help").stdout
    for guide in GUIDES:
        named = set(re.findall(r"`(--[a-z][a-z.-]+)", guide.read_text(encoding="utf-8")))
        assert named and all(flag in page for flag in named), [flag for flag in named if flag not in page]
