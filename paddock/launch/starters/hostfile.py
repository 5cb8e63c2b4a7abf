"""Starting a command over ssh on every host of a list."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from paddock.documents import read_text
from paddock.errors import ConfigError, DataError
from paddock.launch.options import DEFAULT_PORT
from paddock.launch.starters.command import Command
from paddock.launch.starters.programs import Program

LARGEST = 2**22
HOST = re.compile(
    r"(?P<host>(?:[\w.-]+@)?(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+|[0-9A-Fa-f:.]+?))(?::(?P<count>[0-9]{1,6}))?"
)
SLOTS = re.compile(r"slots\s*=\s*([0-9]{1,6})")
HOSTS_OWN = re.compile(r"(slots|max[-_]slots)\s*=\s*[0-9]{1,6}")


@dataclass(frozen=True)
class HostfileOptions:
    """Start a command over ssh on each host of a file; Ctrl-C stops all of them, and they save first.

    The file has a host a line, as DeepSpeed and MPI write it: `node1 slots=8`, `user@node2 slots=8`, `node3:8`. The
    first is the master. ssh must get there without a password (BatchMode), and find the same folder and Python.

        paddock launch hostfile hosts.txt -- train gpt2/345m --run-dir runs/big"""

    hostfile: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """A host a line."""
    directory: str | None = None
    """The folder to work in on every host; default: this one."""
    python: str | None = None
    """The Python to use on every host; default: this one."""
    master_addr: str | None = None
    """By which address the hosts reach the first one; default: the name it has in the file."""
    master_port: int = DEFAULT_PORT
    """Port on the first host."""
    ssh: str = "ssh -o BatchMode=yes"
    """The command that reaches a host, before its name."""
    print: bool = False
    """Print the commands, and start none."""


@dataclass(frozen=True)
class Host:
    """A line of the file."""

    name: str
    slots: int | None

    @property
    def login(self) -> str:
        """As ssh wants it, without the brackets of an IPv6 address."""
        return self.name.replace("[", "").replace("]", "")

    @property
    def address(self) -> str:
        return self.login.rpartition("@")[2]


def read_hosts(path: Path) -> list[Host]:
    """The hosts of a file, in their order."""
    try:
        text = read_text(path, max_bytes=LARGEST).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text", why=str(error), fix="it has a host a line") from None
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        name, _, rest = words.partition(" ")
        found = HOST.fullmatch(name)
        slots = SLOTS.search(rest)
        if found is None or HOSTS_OWN.sub("", rest).strip():
            fix = "a line is a host, and how many processes it takes: node1 slots=8"
            raise DataError(f"{path}, line {number}: {words[:100]!r} is no host", fix=fix)
        count = slots[1] if slots else found["count"]
        hosts.append(Host(found["host"], None if count is None else int(count)))
    if not hosts:
        raise DataError(
            f"{path} lists no hosts", fix="a line is a host, and how many processes it takes: node1 slots=8"
        )
    for host in hosts:
        if len([other for other in hosts if other.address == host.address]) > 1:
            raise DataError(f"{path} lists {host.address} twice", fix="a host has one line; slots=8 starts 8 processes")
    return hosts


def ssh_programs(options: HostfileOptions, command: Command) -> list[Program]:
    """What to run here, one for each host."""
    hosts = read_hosts(options.hostfile)
    counts = {host.slots for host in hosts} - {None}
    if len(counts) > 1 or (counts and None in {host.slots for host in hosts}):
        listed = ", ".join(f"{host.name} {host.slots or 'none'}" for host in hosts)
        why = f"every host starts as many processes: {listed}"
        raise DataError(
            f"the hosts of {options.hostfile} have different numbers of slots", why=why, fix="make them equal"
        )
    slots = counts.pop() if counts else None
    if slots is not None and command.processes not in (None, slots):
        what = f"--nproc-per-node {command.processes} in the command, slots={slots} in {options.hostfile}"
        raise ConfigError(what, fix="leave one of them out")
    flags = [] if slots is None or command.processes is not None else ["--nproc-per-node", str(slots)]
    master = options.master_addr or hosts[0].address
    programs = []
    for rank, host in enumerate(hosts):
        place = {
            "--nnodes": len(hosts),
            "--node-rank": rank,
            "--master-addr": master,
            "--master-port": options.master_port,
        }
        own = [str(word) for pair in place.items() for word in pair] if len(hosts) > 1 else []
        words = [options.python or sys.executable, "-m", "paddock", *command.words, *flags, *own]
        remote = _remote(options.directory or str(Path.cwd()), words)
        programs.append(Program(host.login, [*shlex.split(options.ssh), host.login, remote], ends_with_stdin=True))
    return programs


def _remote(directory: str, words: list[str]) -> str:
    """A line for the shell of the host. Signals do not travel over ssh: there the command is told to stop when its
    standard input ends, which it does when we close it, and when we or the connection are gone."""
    return (
        f"cd {shlex.quote(directory)} || exit 3; exec 3<&0; "
        f"{shlex.join(words)} </dev/null 3<&- & paddock=$!; "
        "(cat <&3; kill -TERM $paddock) >/dev/null 2>&1 & listener=$!; "
        "exec 3<&-; wait $paddock; code=$?; kill $listener 2>/dev/null; exit $code"
    )
