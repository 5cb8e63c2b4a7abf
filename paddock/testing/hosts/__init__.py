"""Several machines on this one: network namespaces with addresses and host names of their own, on one switch.

    with hosts(2) as (first, second):
        processes = [host.start(command, cwd=folder) for host in (first, second)]
        first.cut()  # nothing that is sent to or from it arrives; nobody is told
        first.mend()

A process of a host sees that host's interface and loopback alone, so that what meets across hosts has gone over the
wire. Files are shared, but those that each host has as its `own`, and what is in such folders. The switch is in a
namespace too: nothing of this machine's own network is touched. At the end all processes in the namespaces are killed,
and all that was made is removed; what a killed test left behind goes when the next one begins.

It needs Linux, iproute2 and root: `why_no_hosts` says what is missing, for a test to skip itself.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.testing.hosts.wire import Wire
from paddock.testing.processes import is_gone

NAMESPACES = Path("/run/netns")
INTERFACE = "net0"
"""What a host calls its end of the cable."""
BURST = "32kbit"
ENTER = """
echo "$0" > /proc/sys/kernel/hostname
while [ "$1" != -- ]; do mount --bind "$1" "$2" && shift 2 || exit; done
shift
exec "$@"
"""
"""For a shell in a host: its name, its own folders and files where the shared ones are, then the command."""

_numbers = itertools.count()


@dataclass
class Host:
    """One machine: where it is, what runs on it, and its cable."""

    name: str
    """What its processes take for the host's name; no name server knows it."""
    address: str
    namespace: str
    switch: str
    port: str
    """The switch's end of the cable, in the switch's namespace."""
    own: Mapping[Path, Path] = field(default_factory=dict)
    """Folders and files that this host shares with nobody, and where what it has there can be seen from outside."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Run a command here. The process is the command itself, so its id and exit code are the command's; `options`
        are those of Popen, and its streams are text."""
        place = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", ENTER, self.name]
        binds = [str(path) for folder, content in self.own.items() for path in (content, folder)]
        words = [*place, *binds, "--", *command]
        process: subprocess.Popen[str] = subprocess.Popen(words, text=True, **options)
        self.processes.append(process)
        return process

    def pids(self) -> list[int]:
        """Whoever runs here."""
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def kill(self) -> None:
        """End all that runs here at once, as a power cut would; what is on its disks stays."""
        for process in self.processes:  # one that has just been started may still be on its way here
            process.kill()
        while alive := [pid for pid in self.pids() if not is_gone(pid)]:
            for pid in alive:
                _kill(pid)
            time.sleep(0.01)
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def cut(self) -> None:
        """Take the cable out of the switch: frames are lost, and the host still sees a carrier."""
        _ip("-n", self.switch, "link", "set", self.port, "nomaster")

    def mend(self) -> None:
        """Put it back."""
        _ip("-n", self.switch, "link", "set", self.port, "master", "switch")

    def limit(self, rate: str) -> None:
        """Send and receive no faster than this from now on, in tc's words: `20mbit`."""
        for namespace, end in ((self.namespace, INTERFACE), (self.switch, self.port)):
            shape = ["tbf", "rate", rate, "burst", BURST, "latency", "400ms"]
            _call("tc", "-n", namespace, "qdisc", "replace", "dev", end, "root", *shape)


@contextmanager
def hosts(
    count: int, *, ipv6: bool = False, delay: float = 0.0, rate: str | None = None, own: Sequence[Path] = ()
) -> Iterator[list[Host]]:
    """So many machines on one switch. Between any two a frame takes `delay` seconds one way, and no cable carries more
    than `rate`. What is `own` is another one on each of them: folders are empty at first, files as they are here."""
    _remove_leftovers()
    prefix = f"paddock-{os.getpid()}-{next(_numbers)}"
    switch = f"{prefix}-switch"
    with ExitStack() as stack:
        _make_namespace(stack, switch)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", switch, "link", "set", "switch", "up")
        disks = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        made = []
        for number in range(count):
            address = f"fd07::{number + 1}" if ipv6 else f"10.7.0.{number + 1}"
            host = Host(f"host{number}", address, f"{prefix}-host{number}", switch, f"port{number}")
            host.own = {path: disks / host.name / str(place) for place, path in enumerate(own)}
            for path, content in host.own.items():
                content.parent.mkdir(exist_ok=True)
                if path.is_dir():
                    content.mkdir()
                else:
                    shutil.copyfile(path, content)
            _make_namespace(stack, host.namespace)
            stack.callback(host.kill)
            _connect(stack, host, delay)
            if rate is not None:
                host.limit(rate)
            made.append(host)
        yield made


@functools.cache
def why_no_hosts() -> str | None:
    """Why there can be no such machines here; None if there can."""
    lacking = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if sys.platform != "linux" or lacking:
        return f"needs Linux with iproute2 and util-linux; {', '.join(lacking) or sys.platform} is what there is"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with hosts(1) as [host]:
            refused = host.start(["true"], stderr=subprocess.PIPE).communicate()[1]
            return f"a namespace cannot be entered: {refused.strip()}" if refused else None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"


def _make_namespace(stack: ExitStack, name: str) -> None:
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "delete", name)
    _ip("-n", name, "link", "set", "lo", "up")


def _connect(stack: ExitStack, host: Host, delay: float) -> None:
    """Lay a cable from the switch to a host; a slow one is a thread of ours that keeps what it is given for a while."""
    if delay:
        wire = stack.enter_context(Wire(delay / 2))  # a frame passes two of them
        for end, namespace, name in zip(wire.ends, (host.namespace, host.switch), (INTERFACE, host.port), strict=True):
            _ip("link", "set", end, "netns", namespace, "name", name)
    else:
        peer = ["peer", "name", host.port, "netns", host.switch]
        _ip("link", "add", INTERFACE, "netns", host.namespace, "type", "veth", *peer)
    host.mend()
    _ip("-n", host.switch, "link", "set", host.port, "up")
    bits, options = ("64", ["nodad"]) if ":" in host.address else ("24", [])
    _ip("-n", host.namespace, "address", "add", f"{host.address}/{bits}", "dev", INTERFACE, *options)
    _ip("-n", host.namespace, "link", "set", INTERFACE, "up")


def _remove_leftovers() -> None:
    """Of tests that were killed: their process has gone, and its namespaces have not."""
    for path in NAMESPACES.glob("paddock-*"):
        found = re.match(r"paddock-(\d+)-", path.name)
        if found and is_gone(found[1]):
            for pid in _ip("netns", "pids", path.name).split():
                _kill(int(pid))
            _ip("netns", "delete", path.name)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGKILL)


def _ip(*words: str) -> str:
    return _call("ip", *words)


def _call(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
