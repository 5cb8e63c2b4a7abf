"""`paddock launch sbatch|kubernetes|hostfile|container … -- VERB …`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.cli.pages import show_page
from paddock.errors import ConfigError, MachineError, did_you_mean
from paddock.files import atomic_write
from paddock.launch.starters.command import Command, parse_command
from paddock.launch.starters.container import ContainerOptions, container_command
from paddock.launch.starters.hostfile import HostfileOptions, ssh_programs
from paddock.launch.starters.kubernetes import KubernetesOptions, manifest
from paddock.launch.starters.sbatch import SbatchOptions, job_script

USAGES = {
    "sbatch --nodes N -- VERB …": "write a job script for SLURM",
    "kubernetes --image I --nodes N -- VERB …": "write a PyTorchJob, or a TrainJob",
    "hostfile FILE -- VERB …": "start it over ssh on every host of a list",
    "container --image I --mount DIR -- VERB …": "run it in a container of docker or podman",
}


def main(arguments: list[str]) -> int:
    forms: dict[str, Callable[[list[str], Command], int]] = {
        "sbatch": sbatch,
        "kubernetes": kubernetes,
        "hostfile": hostfile,
        "container": container,
    }
    form, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if form in HELP_FLAGS:
        show_page(overview())
        return 0
    if form not in forms:
        what = f'paddock launch has no form "{form}"' if form else "paddock launch needs to know what to start it with"
        raise ConfigError(what, fix=did_you_mean(form, list(forms)))
    own, words = (rest[: rest.index("--")], rest[rest.index("--") + 1 :]) if "--" in rest else (rest, [])
    if any(flag in own for flag in HELP_FLAGS):
        words = words or ["train"]
    from paddock.cli.main import VERBS

    return forms[form](own, parse_command(words, VERBS, form))


def overview() -> str:
    """The page behind `paddock launch --help`."""
    lines = ["usage: paddock launch FORM … -- VERB …", "  --help after one of the forms explains it", ""]
    lines += [f"  {usage:<42} {meaning}" for usage, meaning in USAGES.items()]
    return "\n".join([*lines, "", "Behind -- stands what stands behind `paddock` on one machine: train gpt2/tiny …"])


def sbatch(arguments: list[str], command: Command) -> int:
    options = parse(SbatchOptions, "launch sbatch", arguments)
    return _write(job_script(options, command), options.output, "sbatch")


def kubernetes(arguments: list[str], command: Command) -> int:
    options = parse(KubernetesOptions, "launch kubernetes", arguments)
    return _write(manifest(options, command), options.output, "kubectl apply -f")


def hostfile(arguments: list[str], command: Command) -> int:
    options = parse(HostfileOptions, "launch hostfile", arguments)
    programs = ssh_programs(options, command)
    if options.print:
        print("\n".join(shlex.join(program.command) for program in programs))
        return 0
    from paddock.launch.starters.programs import run_together

    return run_together(programs)


def container(arguments: list[str], command: Command) -> int:
    options = parse(ContainerOptions, "launch container", arguments)
    terminal = not options.print and sys.stdin.isatty() and sys.stdout.isatty()
    words = container_command(options, command, terminal)
    if options.print:
        print(shlex.join(words))
        return 0
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise MachineError(f"cannot run {words[0]}", why=error.strerror or "", fix="install it, or --engine") from error


def _write(text: str, output: str | None, starter: str) -> int:
    if output is None:
        print(text, end="")
        return 0
    with atomic_write(Path(output)) as stream:
        stream.write(text)
    print(f"written; start it with: {starter} {shlex.quote(output)}", file=sys.stderr)
    return 0
