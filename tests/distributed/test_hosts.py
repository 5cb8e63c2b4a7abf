"""Jobs on several machines, which are network namespaces: what is trained across them has the numbers of one process,
and a slow network costs time and nothing else.

What the guide to clusters does on two machines (training, evaluating, generating), its own test compares likewise.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddock.testing.hosts import Host, hosts
from paddock.testing.tiny import TINY, losses

pytestmark = pytest.mark.usefixtures("network")

TENSOR_AND_PIPELINE = ["--parallel.tensor", "2", "--parallel.pipeline", "2"]


def on_hosts(machines: Sequence[Host], folder: Path, verb: str, *arguments: str, each: int) -> list[tuple[str, str]]:
    """Run a verb as one job over the machines; what each of them said. All must have done it."""
    processes = []
    for rank, host in enumerate(machines):
        place = ["--nnodes", str(len(machines)), "--node-rank", str(rank), "--master-addr", machines[0].address]
        command = [sys.executable, "-m", "paddock", verb, *arguments, *place, "--nproc-per-node", str(each)]
        processes.append(host.start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(machines), said
    return said


def same(run_dir: Path, right: Path) -> None:
    for name in ("train.loss", "train.grad_norm", "val.loss"):
        assert losses(run_dir, name) == pytest.approx(losses(right, name), rel=1e-5), name


def test_a_slow_network_changes_nothing(trained_run: Path, tmp_path: Path) -> None:
    with hosts(2, ipv6=True, delay=0.02, rate="50mbit") as machines:
        on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", *TENSOR_AND_PIPELINE, each=2)
    same(tmp_path / "run", trained_run)


@pytest.mark.slow
@pytest.mark.parametrize("each", [1, 2])
def test_four_machines_in_three_dimensions(each: int, trained_run: Path, tmp_path: Path) -> None:
    with hosts(4, delay=0.002) as machines:
        on_hosts(machines, tmp_path, "train", *TINY, "--run-dir", "run", *TENSOR_AND_PIPELINE, each=each)
    same(tmp_path / "run", trained_run)
