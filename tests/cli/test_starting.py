"""What is said before torch is imported, which takes seconds: each verb says that it has begun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import TINY

MARK = 77
SITECUSTOMIZE = f"""
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.stderr.flush()
            os._exit({MARK})

sys.meta_path.insert(0, Finder())
"""
"""Ends a process where it first imports torch: what it has said by then is all that there is."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, trained_run: Path) -> Path:
    """A folder with all that the commands below read."""
    folder = tmp_path_factory.mktemp("starting")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    shutil.copytree(trained_run, folder / "run", symlinks=True)
    (folder / "my.txt").write_text("The class is a statement.\n" * 20)
    assert run(["convert", str(trained_run), str(folder / "exported")]) == 0
    return folder


def program(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    here = [word.replace("PLACE", str(place)) for word in arguments]
    command = [sys.executable, "-m", "paddock", *here]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})


def said_before_torch(place: Path, *arguments: str) -> str:
    done = program(place, *arguments)
    assert (done.returncode, done.stdout) == (MARK, ""), done.stderr
    return "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("note: "))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", *TINY], "starting"),
        (["train", *TINY, "--nproc-per-node", "2"], "starting"),
        (["train", *TINY, "--dry-run", "--world", "4"], "starting"),
        (["train", *TINY, "--evaluate-only", "--checkpoint.load", "PLACE/run"], "starting"),
        (["train", *TINY, "--benchmark-only"], "starting"),
        (["resume", "PLACE/run", "--steps", "8"], "starting"),
        (["evaluate", "PLACE/run"], "starting"),
        (["evaluate", "PLACE/exported", "--text", "PLACE/my.txt"], "starting"),
        (["generate", "PLACE/run", "--prompt", "The"], "starting"),
        (["predict", "PLACE/run", "The"], "loading the model"),
        (["benchmark", *TINY], "starting"),
        (["benchmark", *TINY, "--compare", "hf"], "starting"),
        (["convert", "PLACE/run", "PLACE/new"], "converting"),
        (["check", "parity", *TINY, "--layouts", "dp2"], "starting"),
        (["check", "resume", *TINY], "starting"),
        (["check", "formats", "PLACE/run", "--text", "PLACE/my.txt"], "starting"),
        (["check", "device", "cpu"], "starting"),
        (["align", "--model", *TINY, "--device", "cpu", "--compiled"], "starting"),
        (["align", "record", *TINY], "starting"),
        (["align", "PLACE/a.layers", "PLACE/b.layers"], "starting"),
        (["doctor"], "looking at this machine"),
        (["doctor", "--nproc-per-node", "2"], "starting\nstarting 2 processes"),
    ],
    ids=lambda value: " ".join([*value[:2], *value[len(TINY) + 1 :]]) if isinstance(value, list) else "",
)
def test_each_verb_says_that_it_has_begun(place: Path, arguments: list[str], said: str) -> None:
    assert said_before_torch(place, *arguments) == f"{said}\n"


@pytest.mark.parametrize("arguments", [["resume", "PLACE/run"], ["evaluate", "PLACE/run"], ["generate", "PLACE/run"]])
def test_machines_other_than_the_first_do_not(place: Path, arguments: list[str]) -> None:
    machines = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", "29500"]
    assert said_before_torch(place, *arguments, *machines) == ""


@pytest.mark.parametrize(
    "words",
    [
        "train gpt2/tiny --batch.micro 3",
        "train gpt2/tiny --batch.micro 3 --run-dir PLACE/new --nproc-per-node 2",
        "evaluate gpt2/tiny",
        "evaluate PLACE/none",
        "benchmark gpt2/tiny --batch.micro 3",
        "check parity gpt2/tiny --layouts tp5",
    ],
)
def test_what_is_wrong_at_a_glance_is_all_that_is_said(place: Path, words: str) -> None:
    done = program(place, *words.split())
    assert (done.returncode, done.stderr.split()[0]) == (2, "error:"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["train", "gpt2/tiny", "--help"],
            ["check", "config", "gpt2/tiny"],
            ["zoo", "list"],
            ["runs", "list", "PLACE"],
        ),
        *(["runs", "show", "PLACE/run"], ["runs", "plot", "PLACE/run"], ["report", "PLACE/run", "--json"]),
        *(["resume", "PLACE/my.txt"], ["train", "gpt2/tiny", "--stpes", "2"], ["recipe", "show", "gpt2/tiny"]),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_what_only_reads_does_without_torch(place: Path, arguments: list[str]) -> None:
    assert program(place, *arguments).returncode in (0, 2)
