"""A job script for SLURM: `sbatch FILE`."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass

import tyro

from paddock.errors import STOPPED, ConfigError, bad_value
from paddock.launch.starters.command import Command


@dataclass(frozen=True)
class SbatchOptions:
    """Write a job script for SLURM; submit it with `sbatch`. Each node finds its place from SLURM's own variables, so
    that the script is the same for 2 nodes and for 200.

        paddock launch sbatch --nodes 4 --gpus-per-node 8 --time 24:00:00 --output job.sh -- train gpt2/345m \\
            --nproc-per-node 8 --run-dir runs/big"""

    nodes: int = 1
    """Nodes of the job."""
    job_name: str | None = None
    """Default: that of the recipe."""
    gpus_per_node: str | None = None
    """What SLURM calls --gpus-per-node: 8, or a100:8. Sites with other accelerators have a --gres: see --directive."""
    cpus_per_task: int | None = None
    """Cores for all processes of a node; without it, many sites give one."""
    partition: str | None = None
    """Where to queue."""
    account: str | None = None
    """Who pays."""
    time: str | None = None
    """The time limit, as 24:00:00."""
    directive: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further line for sbatch, such as --directive=--gres=npu:8 or --directive=--exclusive; may be repeated."""
    setup: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A shell line to run first, such as "module load cann"; may be repeated."""
    grace: int = 120
    """Seconds before the time limit at which the job is told to save a checkpoint and end."""
    requeue: bool = False
    """When it was stopped and has saved (exit code 8), queue it again; it then goes on from its checkpoint."""
    output: str | None = None
    """Write to this file; default: standard output."""


def job_script(options: SbatchOptions, command: Command) -> str:
    """The script, which any POSIX shell reads."""
    if options.nodes < 1:
        raise bad_value("--nodes", options.nodes, "a job has at least one", "--nodes 1 or more")
    if options.requeue and command.words[0] == "train":
        _check_goes_on(command)
    settings = {
        "--job-name": options.job_name or command.name,
        "--nodes": str(options.nodes),
        "--ntasks-per-node": "1",  # which starts the node's processes
        "--gpus-per-node": options.gpus_per_node,
        "--cpus-per-task": None if options.cpus_per_task is None else str(options.cpus_per_task),
        "--partition": options.partition,
        "--account": options.account,
        "--time": options.time,
        "--output": "%x-%j.out",
        "--signal": f"TERM@{options.grace}",
    }
    directives = [f"{name}={value}" for name, value in settings.items() if value is not None]
    directives += ["--requeue"] if options.requeue else []
    for line in [*directives, *options.directive, *options.setup]:
        if not line.isprintable():
            raise ConfigError(f"{line!r} is not one line of text", fix="give one setting at a time")
    words = shlex.join([sys.executable, "-m", "paddock", *command.words])
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {line}" for line in [*directives, *options.directive]),
        "",
        "# Written by `paddock launch sbatch`. Every node finds its place from the variables that srun sets.",
        *options.setup,
        # Cores are not inherited from sbatch since SLURM 22.05.
        *(['export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'] if options.cpus_per_task is not None else []),
        "code=0  # when the first node has ended, the others have a while to do so",
        f"srun --wait={options.grace} {words} || code=$?",
    ]
    if options.requeue:
        lines += [f'if [ "$code" -eq {STOPPED} ]; then', '    scontrol requeue "$SLURM_JOB_ID"', "fi"]
    return "\n".join([*lines, 'exit "$code"', ""])


def _check_goes_on(command: Command) -> None:
    text = " ".join(command.words)
    if not re.search(r"--run[-_]dir[ =]", text) or not re.search(r"--checkpoint\.load[ =]auto\b", text):
        raise ConfigError(
            "a job that is queued again would begin anew",
            why="it goes on from what is in its own run directory, if it is told to",
            fix="add to the command: --run-dir DIR --checkpoint.load auto",
        )
