"""Job scripts: what SLURM reads in them, and what they do with a `srun` that runs on this machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import VERBS
from paddock.errors import ConfigError
from paddock.launch.starters.command import parse_command
from paddock.launch.starters.sbatch import SbatchOptions, job_script


def script(*words: str, **options: object) -> str:
    return job_script(SbatchOptions(**options), parse_command(words, VERBS, "sbatch"))  # type: ignore[arg-type]


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_what_slurm_reads() -> None:
    text = script("train", "gpt2/345m", nodes=4, gpus_per_node="8", time="24:00:00", directive=("--exclusive",))
    assert text.startswith("#!/bin/sh\n#SBATCH ")
    assert directives(text) == [
        *("--job-name=gpt2-345m", "--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=8", "--time=24:00:00"),
        *("--output=%x-%j.out", "--signal=TERM@120", "--exclusive"),
    ]
    assert "scontrol" not in text and "--requeue" not in text


FAKE_SRUN = """#!/bin/sh
# The second node's task of a step, as far as it can be had on one machine.
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NODELIST='node[1-2]' SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2
exec "$@"
"""


def run(text: str, folder: Path, srun: str) -> subprocess.CompletedProcess[str]:
    for name, code in {"srun": srun, "scontrol": f'#!/bin/sh\necho "$@" >> {folder}/scontrol.txt\n'}.items():
        (folder / name).write_text(code)
        (folder / name).chmod(0o755)
    (folder / "job.sh").write_text(text)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    return subprocess.run(["sh", "job.sh"], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_node_that_the_script_starts_finds_its_place(tmp_path: Path) -> None:
    """srun's variables reach `paddock`, which says where the nodes meet; a dry run works anywhere."""
    words = ["train", "gpt2/tiny", "--nproc-per-node", "1", "--dry-run", "--json"]
    done = run(script(*words, nodes=2, setup=("echo prepared >&2",)), tmp_path, FAKE_SRUN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("prepared\n")
    assert "node 1 of 2, which meet at node1, port 20539" in done.stderr
    assert "data 2 × accumulation 1" in str(json.loads(done.stdout))


@pytest.mark.parametrize(("code", "queued"), [(8, True), (0, False), (3, False)])
def test_a_job_that_has_saved_is_queued_again(code: int, queued: bool, tmp_path: Path) -> None:
    words = ["train", "gpt2/tiny", "--run-dir", "runs/a b", "--checkpoint.load", "auto"]
    text = script(*words, requeue=True)
    seen = tmp_path / "seen.txt"
    done = run(text, tmp_path, f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\nexit {code}\n')
    assert done.returncode == code
    assert seen.read_text().splitlines() == ["--wait=120", sys.executable, "-m", "paddock", *words]
    assert (tmp_path / "scontrol.txt").exists() == queued
    assert "--requeue" in directives(text)


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (["train", "gpt2/tiny"], {"requeue": True}, "would begin anew"),
        (["train", "gpt2/tiny"], {"nodes": 0}, "--nodes = 0"),
        (["train", "gpt2/tiny"], {"partition": "a\nrm -rf /"}, "not one line"),
        (["train", "gpt2/tiny", "--nnodes", "2"], {}, "--nnodes cannot stand in the command"),
        (["train", "gpt2/tiny", "--node_ips=a,b"], {}, "--node-ips cannot stand in the command"),
        (["train", "--nproc-per-node", "x"], {}, "--nproc-per-node = x"),
        (["zoo", "list"], {}, "does not run on several machines"),
        (["trian"], {}, "no verb"),
        ([], {}, "needs a command"),
    ],
)
def test_refused(words: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        script(*words, **options)


def test_words_arrive_as_they_were_given() -> None:
    words = ["train", "my recipe.yaml", "--data.path", "it's $HOME; `rm`", "paddock"]
    line = next(line for line in script("paddock", *words).splitlines() if line.startswith("srun"))
    assert shlex.split(line.removesuffix(" || code=$?"))[-5:] == words
