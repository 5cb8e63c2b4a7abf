"""What the processes of a job listen on: this machine's own loopback interface, and nothing that others can reach."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import pytest

from paddock.errors import MachineError
from paddock.launch.environment import worker_environment
from paddock.launch.options import LaunchOptions
from paddock.parallel.rendezvous import interface_towards, serve_store
from paddock.testing.processes import reserved_port, wait_for
from paddock.testing.tiny import TINY

COMMAND = str(Path(__file__).with_name("command.py"))
LISTENS = "0A"  # <net/tcp_states.h>

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc does not tell")


def descendants(process: int) -> set[int]:
    """A process and all that came of it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def addresses_listened_on(process: int) -> list[str]:
    """Of a process and all that came of it."""
    inodes = set()
    for one in descendants(process):
        for link in Path(f"/proc/{one}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except FileNotFoundError:
                continue
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).exists():
            continue
        for row in (line.split() for line in Path(table).read_text().splitlines()[1:]):
            if row[3] == LISTENS and f"socket:[{row[9]}]" in inodes:
                words = bytes.fromhex(row[1].partition(":")[0])
                found.append(b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4)))
    return [str(ip_address(one)) for one in found]


def is_loopback(address: str) -> bool:
    one = ip_address(address)
    return (one.ipv4_mapped or one).is_loopback if isinstance(one, IPv6Address) else one.is_loopback


def listened_on(commands: list[list[str]], at_work: Callable[[], bool]) -> list[str]:
    """All addresses on which the processes of a job listen until it is at work; then it is ended."""
    plain = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    jobs = [subprocess.Popen(command, env=plain, stderr=subprocess.DEVNULL) for command in commands]
    seen: list[str] = []

    def is_at_work() -> bool:
        for job in jobs:
            seen.extend(addresses_listened_on(job.pid))
        assert [job.poll() for job in jobs] == [None] * len(jobs)
        return at_work()

    try:
        wait_for(is_at_work)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    return seen


def test_a_local_job_listens_on_loopback_only(tmp_path: Path) -> None:
    flags = ["--train.steps", "100000", "--checkpoint.every", "2", "--data.workers", "1", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "paddock", "train", *TINY, *flags, "--run-dir", str(tmp_path / "run")]
    seen = listened_on([command], (tmp_path / "run" / "checkpoints" / "latest").exists)
    assert len(seen) > 2  # the store, and gloo's of each process
    assert [address for address in seen if not is_loopback(address)] == []


def test_machines_that_meet_on_loopback_listen_there_only(tmp_path: Path) -> None:
    payload = json.dumps({"directory": str(tmp_path), "plain": True})
    command = [sys.executable, COMMAND, "paddock.testing.jobs:waiting_job", payload, str(tmp_path), "nnodes=2"]
    with reserved_port() as port:
        command += ["master_addr=127.0.0.1", f"master_port={port}"]
        seen = listened_on(
            [[*command, f"node_rank={rank}"] for rank in (0, 1)], lambda: len(list(tmp_path.glob("rank*.pid"))) == 2
        )
    assert len(seen) > 2
    assert [address for address in seen if not is_loopback(address)] == []


def own_address() -> str:
    """An address of this machine that is not its loopback's, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no way to others")
        return str(probe.getsockname()[0])


def test_several_machines_meet_at_the_address_that_is_named() -> None:
    address = own_address()
    before = Counter(addresses_listened_on(os.getpid()))
    store = serve_store(address, 0)
    assert Counter(addresses_listened_on(os.getpid())) - before == Counter([address])
    assert serve_store(address, store.port) is store  # the agent joins the launcher's
    interface = interface_towards(address)
    assert interface in [name for _, name in socket.if_nameindex()] and not interface.startswith("lo")
    several = LaunchOptions(nnodes=2, master_addr=address)
    assert worker_environment(several).get("GLOO_SOCKET_IFNAME", interface) == interface


@pytest.mark.parametrize(
    ("address", "resolved", "complaint"),
    [
        ("192.0.2.77", "192.0.2.77", "not an address of this machine"),  # of a documentation network
        ("my-own-name", "127.0.1.1", "no other machine can reach"),  # as Debian does
    ],
)
def test_addresses_at_which_nobody_could_meet(
    address: str, resolved: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Callable[..., object] = lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (resolved, 0))]  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(MachineError, match=complaint):
        serve_store(address, 0)
