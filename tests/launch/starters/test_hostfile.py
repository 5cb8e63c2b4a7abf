"""Lists of hosts, and commands that start over a `ssh` which runs on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import VERBS
from paddock.errors import ConfigError, DataError
from paddock.launch.starters.command import parse_command
from paddock.launch.starters.hostfile import HostfileOptions, read_hosts, ssh_programs
from paddock.testing.processes import reserved_port, wait_for
from paddock.testing.tiny import TINY, losses


def hosts(folder: Path, text: str) -> Path:
    path = folder / "hosts"
    path.write_text(text)
    return path


def test_the_spellings_of_deepspeed_and_mpi(tmp_path: Path) -> None:
    text = "# two racks\nnode1 slots=8\n\nuser@node2 slots = 8 max_slots=16  # big\nnode3:8\n10.0.0.4:8\n[fd00::5]:8\n"
    found = read_hosts(hosts(tmp_path, text))
    assert [(host.login, host.address, host.slots) for host in found] == [
        ("node1", "node1", 8),
        ("user@node2", "node2", 8),
        ("node3", "node3", 8),
        ("10.0.0.4", "10.0.0.4", 8),
        ("fd00::5", "fd00::5", 8),
    ]
    assert [host.slots for host in read_hosts(hosts(tmp_path, "a\nb\n"))] == [None, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no hosts"),
        ("# only words\n", "lists no hosts"),
        ("a\nb slots=x\n", "line 2: 'b slots=x' is no host"),
        ("a b\n", "is no host"),
        ("-oProxyCommand=evil\n", "is no host"),
        ("$(evil)\n", "is no host"),
        ("a slots=2\nroot@a slots=2\n", "lists a twice"),
    ],
)
def test_files_that_list_no_hosts(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_hosts(hosts(tmp_path, text))
    with pytest.raises(DataError):
        read_hosts(tmp_path / "nowhere")


def test_counts_that_differ(tmp_path: Path) -> None:
    command = parse_command(["train", "gpt2/tiny", "--nproc-per-node", "2"], VERBS, "hostfile")
    for text in ("a slots=2\nb slots=4\n", "a slots=2\nb\n"):
        with pytest.raises(DataError, match="different numbers of slots"):
            ssh_programs(HostfileOptions(hosts(tmp_path, text)), command)
    with pytest.raises(ConfigError, match="slots=4"):
        ssh_programs(HostfileOptions(hosts(tmp_path, "a slots=4\nb slots=4\n")), command)


FAKE_SSH = """#!/bin/sh
# What sshd does: the words, with blanks between, for the user's shell.
echo "$1" >> "$HOSTS_SEEN"
shift
exec sh -c "$*"
"""


def fake_ssh(folder: Path) -> tuple[str, dict[str, str]]:
    path = folder / "ssh"
    path.write_text(FAKE_SSH)
    path.chmod(0o755)
    return str(path), os.environ | {"HOSTS_SEEN": str(folder / "seen"), "OMP_NUM_THREADS": "1"}


def test_two_hosts_train_together(tmp_path: Path) -> None:
    ssh, environment = fake_ssh(tmp_path)
    work = tmp_path / "a folder; with $signs"
    work.mkdir()
    with reserved_port() as port:
        place = ["--directory", str(work), "--master-addr", "127.0.0.1", "--master-port", str(port), "--ssh", ssh]
        command = [sys.executable, "-m", "paddock", "launch", "hostfile", str(hosts(tmp_path, "one slots=1\ntwo:1\n"))]
        done = subprocess.run(
            [*command, *place, "--", "train", *TINY, "--run-dir", "runs/it's one"],
            env=environment,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "seen").read_text().split()) == ["one", "two"]
    assert len(losses(work / "runs" / "it's one")) == 6
    assert done.stderr.count("step     6/6  loss") == 1, "only the first host speaks"


def test_what_a_host_lacks_is_told_with_its_name(tmp_path: Path) -> None:
    ssh, environment = fake_ssh(tmp_path)
    command = [sys.executable, "-m", "paddock", "launch", "hostfile", str(hosts(tmp_path, "one\n"))]
    place = ["--directory", str(tmp_path / "nowhere"), "--ssh", ssh]
    done = subprocess.run([*command, *place, "--", "train", *TINY], env=environment, capture_output=True, text=True)
    assert done.returncode == 3 and "nowhere" in done.stderr


def test_a_stop_reaches_the_other_end(tmp_path: Path) -> None:
    """Ctrl-C here, where ssh passes nothing on: the command there saves and ends, with the exit code that says so."""
    ssh, environment = fake_ssh(tmp_path)
    command = [sys.executable, "-m", "paddock", "launch", "hostfile", str(hosts(tmp_path, "one\n"))]
    words = ["--", "train", *TINY, "--steps", "1000000", "--run-dir", str(tmp_path / "run")]
    started = subprocess.Popen([*command, "--ssh", ssh, *words], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_for((tmp_path / "run" / "checkpoints" / "latest").exists)
        started.send_signal(signal.SIGINT)
        assert started.wait() == 8
    finally:
        started.kill()
