"""Machines made of network namespaces: they meet on their switch alone, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddock.testing import hosts as module
from paddock.testing.hosts import NAMESPACES, Host, hosts
from paddock.testing.processes import is_gone

pytestmark = pytest.mark.usefixtures("network")

LISTEN = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 5000), family=family)
print(socket.gethostname(), flush=True)
while True:
    guest, _ = server.accept()
    while word := guest.recv(1):
        guest.sendall(word)
"""
CALL = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5000)) as server:
    begun = time.monotonic()
    server.sendall(b"x")
    assert server.recv(1) == b"x"
    print(time.monotonic() - begun)
"""


def start(host: Host, code: str, *arguments: str) -> subprocess.Popen[str]:
    return host.start([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def listen(host: Host, address: str | None = None) -> None:
    """Answer whoever calls, from now on."""
    server = start(host, LISTEN, address or host.address)
    assert server.stdout is not None and server.stdout.readline().strip() == host.name


def call(host: Host, address: str) -> float:
    """Seconds until the answer was there."""
    said, trouble = start(host, CALL, address).communicate()
    assert said, trouble
    return float(said)


@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
def test_hosts_reach_each_other_and_nothing_else(ipv6: bool) -> None:
    with hosts(2, ipv6=ipv6) as (first, second):
        listen(first)
        listen(first, "127.0.0.1")
        call(second, first.address)
        call(first, "127.0.0.1")
        assert "refused" in start(second, CALL, "127.0.0.1").communicate()[1]
        outside = "2001:db8::1" if ipv6 else "192.0.2.1"
        assert "unreachable" in start(second, CALL, outside).communicate()[1]


def test_a_wire_takes_its_time_both_ways() -> None:
    with hosts(2, delay=0.03) as (first, second):
        listen(first)
        assert call(second, first.address) >= 0.06


def test_what_is_sent_over_a_cut_cable_arrives_when_it_is_mended() -> None:
    with hosts(2) as (first, second):
        listen(first)
        call(second, first.address)
        second.cut()
        waiting = start(second, CALL, first.address)
        for _ in range(20):
            assert waiting.poll() is None
            time.sleep(0.05)
        second.mend()
        assert waiting.communicate()[0]


def test_a_host_has_folders_of_its_own(tmp_path: Path) -> None:
    with hosts(2, own=[tmp_path]) as (first, second):
        first.start(["touch", str(tmp_path / "mine")]).wait()
        assert second.start(["ls", str(tmp_path)], stdout=subprocess.PIPE).communicate()[0] == ""
        assert first.start(["ls", str(tmp_path)], stdout=subprocess.PIPE).communicate()[0] == "mine\n"
        assert [path.name for path in first.own[tmp_path].iterdir()] == ["mine"]
    assert list(tmp_path.iterdir()) == []


def test_a_host_has_files_of_its_own(tmp_path: Path) -> None:
    """Whatever is written into them, from inside or outside."""
    names = tmp_path / "names"
    names.write_text("10.7.0.9 elsewhere\n")

    def read(host: Host) -> str:
        return host.start(["cat", str(names)], stdout=subprocess.PIPE).communicate()[0]

    with hosts(2, own=[names]) as (first, second):
        assert read(first) == names.read_text()
        first.own[names].write_text("10.7.0.2 host1\n")
        assert first.start(["sh", "-c", 'echo "10.7.0.3 host2" >> "$0"', str(names)]).wait() == 0
        assert read(first) == "10.7.0.2 host1\n10.7.0.3 host2\n"
        assert read(second) == "10.7.0.9 elsewhere\n"
    assert names.read_text() == "10.7.0.9 elsewhere\n"


def test_nothing_is_left_neither_of_a_test_that_was_killed() -> None:
    code = """
from paddock.testing.hosts import hosts
import time
with hosts(2, delay=0.01) as (first, second):
    print(first.start(["sleep", "1000"]).pid, flush=True)
    time.sleep(1000)
"""
    killed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    sleeper = int(killed.stdout.readline())
    assert len(list(NAMESPACES.glob(f"paddock-{killed.pid}-*"))) == 3
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    killed.stdout.close()  # the sleeper has it, too
    with hosts(1) as [host]:
        process = host.start(["sleep", "1000"])
    assert process.returncode == -signal.SIGKILL
    assert is_gone(sleeper)
    assert not list(NAMESPACES.glob(f"paddock-{killed.pid}-*"))
    assert not list(NAMESPACES.glob(f"paddock-{os.getpid()}-*"))


def test_where_there_is_no_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert module.why_no_hosts.__wrapped__() == "network namespaces need root"
