"""Running a command in a container of docker or podman, with the devices that it needs."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from paddock.errors import ConfigError, DataError, MachineError, bad_value
from paddock.launch.starters.command import Command

ENGINES = ("docker", "podman")
SIZE = re.compile(r"\d+[bkmg]?", re.IGNORECASE)
DEVICE = re.compile(r"--(?:train\.)?device(?:=(\S+))?")


@dataclass(frozen=True)
class ContainerOptions:
    """Run a command in a container: the devices of its kind, shared memory for the loaders of data, the host's
    network, and your own user, so that files are yours.

        paddock launch container --image IMAGE --device cuda --mount /data -- train gpt2/345m --nproc-per-node 8"""

    image: str
    """An image in which `paddock` is installed; docker/ has files for some."""
    mount: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A folder of this machine to have in the container: DIR, at the same place, DIR:PLACE, or DIR:PLACE:ro; may be
    repeated."""
    device: str | None = None
    """The kind of device; default: what the command says, else cpu."""
    shared_memory: str = "16g"
    """What /dev/shm may grow to; 64 MB otherwise, too little for loaders of data."""
    engine: Literal["docker", "podman"] | None = None
    """Default: the one that is installed."""
    workdir: str | None = None
    """The folder to work in, in the container; default: this one if it is mounted."""
    option: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further option for the engine, such as --option=--cap-add=SYS_PTRACE; may be repeated."""
    print: bool = False
    """Print the command, and run nothing."""


def container_command(options: ContainerOptions, command: Command, terminal: bool = False) -> list[str]:
    """The words of `docker run …` or `podman run …`."""
    from paddock.devices import adapter_named

    engine = options.engine or _installed(options.print)
    if not SIZE.fullmatch(options.shared_memory):
        raise bad_value("--shared-memory", options.shared_memory, "it is a size", "--shared-memory 16g")
    mounts = [_mount(text, must_exist=not options.print) for text in options.mount]
    adapter = adapter_named(options.device or _device_in(command) or "cpu")
    access = adapter.container
    count = command.processes or 1
    nodes = [path.format(n=number) for path in access.every for number in range(count)]
    words = [engine, "run", "--rm", "--init", *(["--interactive", "--tty"] if terminal else [])]
    words += ["--network", "host", "--shm-size", options.shared_memory]
    words += ["--ulimit", "memlock=-1"] if not adapter.computes_on_host else []  # pages that devices read are locked
    words += _user(engine)
    words += access.docker if engine == "docker" else access.podman
    for path in [*nodes, *access.devices]:
        words += ["--device", path]
    for path in access.mounts:
        words += ["--volume", f"{path}:{path}:ro"]
    for mount in mounts:
        words += ["--volume", ":".join(mount)]
    place = options.workdir or _working_directory(mounts)
    words += ["--workdir", place] if place else []
    return [*words, *options.option, options.image, "paddock", *command.words]


def _installed(only_prints: bool) -> str:
    found = next((engine for engine in ENGINES if shutil.which(engine)), None)
    if found is None and not only_prints:
        fix = "install one of them; or see the command that would run: --print"
        raise MachineError("there is neither docker nor podman on this machine", fix=fix)
    return found or ENGINES[0]


def _user(engine: str) -> list[str]:
    """Files in mounted folders are then the user's own, not root's. His home is not in the container."""
    if engine == "podman":  # without root it maps users: this one to itself
        return ["--userns", "keep-id", "--env", "HOME=/tmp"]
    return ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]


def _mount(text: str, must_exist: bool) -> tuple[str, ...]:
    source, *rest = text.split(":")
    folder = str(Path(source).expanduser().absolute())
    place = rest[0] if rest else folder
    if not source or len(rest) > 2 or rest[1:] not in ([], ["ro"], ["rw"]) or not place.startswith("/"):
        raise bad_value(
            "--mount", text, "it is a folder, and where it is in the container", "DIR, DIR:PLACE, DIR:PLACE:ro"
        )
    if must_exist and not Path(folder).exists():
        raise DataError(
            f"there is no {folder} to mount", why="the engine would make an empty one, root's", fix="--mount DIR"
        )
    return (folder, place, *rest[1:])


def _device_in(command: Command) -> str | None:
    for word, following in zip(command.words, [*command.words[1:], ""], strict=True):
        if found := DEVICE.fullmatch(word):
            named = found[1] or following
            if named == "auto":
                raise ConfigError(
                    "--device auto is found out in the container", fix="paddock launch container --device NAME"
                )
            return named
    return None


def _working_directory(mounts: list[tuple[str, ...]]) -> str | None:
    here = Path.cwd()
    for folder, place, *_ in mounts:
        if here.is_relative_to(folder):
            return str(Path(place) / here.relative_to(folder))
    return None
