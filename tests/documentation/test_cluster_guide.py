"""The guide to clusters: its commands run as they are written, on machines that are network namespaces where that is
permitted, and else as launchers on this one. What several machines compute is what one process does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.testing.commands import paddock
from paddock.testing.hosts import hosts, why_no_hosts
from paddock.testing.processes import reserved_port
from paddock.testing.tiny import TINY, losses

GUIDES = [Path(__file__).parents[2] / "docs" / "guides" / name for name in ("cluster.md", "cluster.zh.md")]
SMALLER = {"gpt2/tiny": TINY[1:]}
Said = tuple[str, str]


Job = list[list[str]]
"""What is to run at the same time, on the guide's machines in their order."""


def sections(guide: Path) -> list[list[Job]]:
    """The jobs of every section; a command may have variables of the environment before it."""
    found = []
    for part in guide.read_text(encoding="utf-8").split("\n## ")[1:]:
        jobs = []
        for block in re.findall(r"^```\w*\n(.*?)^```$", part, re.DOTALL | re.MULTILINE):
            lines = re.findall(r"^host(\d)\$ (.*)$", block, re.MULTILINE)
            assert [int(number) for number, _ in lines] == list(range(len(lines)))
            jobs += [[shlex.split(command) for _, command in lines]] if lines else []
        found.append(jobs)
    return found


class Cluster:
    """The guide's two machines, which share a folder."""

    def __init__(self, folder: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
        self.folder, self._start = folder, start

    def carry_out(self, job: Job) -> list[Said]:
        """All commands of a job at once; training is made smaller."""
        processes = []
        for number, words in enumerate(job):
            at = words.index("paddock")
            variables = dict(word.split("=", 1) for word in words[:at])
            verb, *rest = words[at + 1 :]
            size = [rest.pop(0)] if verb == "train" else []
            size += SMALLER[size[0]] if size else []
            # An elastic job begins at once when all are there, and else after a third of this.
            rest += ["--node-timeout", "1800"] if "--rdzv-id" in rest else []
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | variables}
            command = [sys.executable, "-m", "paddock", verb, *size, *rest]
            processes.append(self._start(number, command, cwd=self.folder, **pipes))
        said = [process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), (job, said)
        return said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    if why_no_hosts() is None:
        with hosts(2) as machines:
            yield Cluster(folder, lambda number, command, **options: machines[number].start(command, **options))
        return
    with reserved_port() as port:

        def start(number: int, command: list[str], **options: object) -> subprocess.Popen[str]:
            words = [word.replace("10.7.0.1", "127.0.0.1") for word in command]
            if any("10.7.0.2" in word for word in words):
                pytest.skip("a list of machines needs machines with addresses of their own")
            here = ["--master-port", str(port)]
            return subprocess.Popen([*words, *here], text=True, **options)  # type: ignore[call-overload, no-any-return]

        yield Cluster(folder, start)


def same(run_dir: Path, right: Path) -> None:
    for name in ("train.loss", "train.grad_norm"):
        assert losses(run_dir, name) == pytest.approx(losses(right, name), rel=1e-5), name
    assert losses(run_dir, "val.loss")[-1] == pytest.approx(losses(right, "val.loss")[-1], rel=1e-5)


@pytest.mark.slow
def test_what_it_says_of_machines_that_are_ready(cluster: Cluster) -> None:
    [job] = sections(GUIDES[0])[0]
    (report, _), (_, word) = cluster.carry_out(job)
    assert "4 processes on 2 machines are ready" in report
    assert all(word in report for word in ("machines", "products", "gloo", "0 – 1"))
    assert "machine 1 is ready" in word


def test_several_machines_do_what_one_process_does(cluster: Cluster, trained_run: Path) -> None:
    train, evaluate, generate = sections(GUIDES[0])[1]
    said = cluster.carry_out(train)
    run_dir = cluster.folder / "runs" / "two"
    same(run_dir, trained_run)
    assert "preflight: 4 processes on 2 machines compute as they should; gloo takes" in said[0][1]
    (told, _), (silent, _) = cluster.carry_out(evaluate)
    loss = json.loads(paddock("evaluate", str(run_dir), "--json").stdout)["val.loss"]
    assert f"{loss:.4f}"[:5] in told and silent == ""
    (told, _), (silent, _) = cluster.carry_out(generate)
    alone = paddock("generate", str(run_dir), "--prompt", "The function", "--max-new-tokens", "8")
    assert told == alone.stdout and silent == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "runs"), [(3, ["sturdy", "elastic"]), (4, ["oneflow", "libai", "table"])], ids=["faults", "systems"]
)
def test_the_other_commands(section: int, runs: list[str], cluster: Cluster, trained_run: Path) -> None:
    for job in sections(GUIDES[0])[section]:
        cluster.carry_out(job)
    for name in runs:
        same(cluster.folder / "runs" / name, trained_run)


def test_the_guides_are_in_step() -> None:
    english, chinese = (guide.read_text(encoding="utf-8") for guide in GUIDES)
    assert sections(GUIDES[0]) == sections(GUIDES[1])
    for pattern in (r"^## ", r"^\| ", r"^```", r"^- ", r"\]\("):
        assert len(re.findall(pattern, english, re.MULTILINE)) == len(re.findall(pattern, chinese, re.MULTILINE))


def test_flags_of_the_guide_exist() -> None:
    text = "".join(paddock(*words, "--help", COLUMNS="200").stdout for words in (["train", "gpt2/tiny"], ["doctor"]))
    for guide in GUIDES:
        named = set(re.findall(r"`(--[a-z][a-z.-]+)", guide.read_text(encoding="utf-8")))
        assert named and all(flag in text for flag in named), [flag for flag in named if flag not in text]
