"""Machine 0 is told from whatever else may listen at a wrong port; one that has yet to come is waited for."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from paddock.errors import MachineError
from paddock.jobs.doctor import diagnose_job
from paddock.launch.options import LaunchOptions
from paddock.launch.preflight import inspection
from paddock.launch.rendezvous import nodes
from paddock.launch.rendezvous.nodes import agreed
from paddock.parallel import reach
from paddock.parallel.reach import await_store, greet, store_of_job
from paddock.parallel.rendezvous import place_in_job, serve_store
from paddock.testing.processes import reserved_port

Behaviour = Callable[[socket.socket], None]


@contextmanager
def listener(behave: Behaviour) -> Iterator[int]:
    """Something that listens at a port, and does so with every connection; nothing is closed before the end but by
    it."""
    kept: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            kept.append(connection)
            behave(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
    for connection in kept:
        connection.close()


def be_silent(connection: socket.socket) -> None:
    pass


def close(connection: socket.socket) -> None:
    connection.close()


def greet_first(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")


def say_after_a_line(connection: socket.socket) -> None:
    with connection.makefile("rb") as words:
        words.readline()
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def echo(connection: socket.socket) -> None:
    connection.sendall(connection.recv(64))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never answers."""
    monkeypatch.setattr(reach, "SECONDS_TO_ANSWER", 0.3)


@pytest.mark.parametrize(
    ("behave", "kind", "why"),
    [
        (close, "closed", "closes it without a word"),
        (greet_first, "strange", "it says 'SSH-2.0-"),
        (say_after_a_line, "strange", "it says 'HTTP/1.1 400"),
        (echo, "strange", "it says '\\x00"),
    ],
)
def test_what_is_no_store_answers_otherwise(behave: Behaviour, kind: str, why: str) -> None:
    with listener(behave) as port:
        answer = greet("127.0.0.1", port, 600)
    assert answer.kind == kind and why in answer.why


def test_training_does_not_wait_for_what_answers_otherwise() -> None:
    with listener(say_after_a_line) as port:
        options = LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=port)
        with pytest.raises(MachineError, match=f"listens at 127.0.0.1, port {port} is no job of Paddock") as caught:
            inspection(options, "cpu", {})
    assert "400 Bad Request" in caught.value.why and "--master-port" in caught.value.fix
    assert caught.value.exit_code == 3


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("behave", [be_silent, close])
def test_training_does_not_wait_long_for_what_does_not_answer(behave: Behaviour) -> None:
    with listener(behave) as port:
        options = LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=port)
        with pytest.raises(MachineError, match="is no job of Paddock") as caught:
            inspection(options, "cpu", {})
    assert caught.value.why.startswith("it takes a connection, and")


def test_nor_does_a_diagnosis_that_is_given_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SECONDS_TO_REACH", 0.3)
    with listener(be_silent) as port:
        options = LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=port)
        with pytest.raises(MachineError, match="is no job of Paddock"):
            diagnose_job(options, "cpu", None, None, 0.1)


@pytest.mark.usefixtures("impatient")
def test_it_is_told_without_the_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "SECONDS_TO_MEET", 1)
    with listener(close) as port:
        options = LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=port)
        with pytest.raises(MachineError, match="is no job of Paddock"), agreed(options, str, print):
            pass


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("behave", [be_silent, say_after_a_line])
def test_a_process_of_a_job_does_not_wait_for_a_stranger_either(
    behave: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is that the agent keeps its store: torch's client would wait for ever."""
    with listener(behave) as port:
        place = {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{port}",
        }
        for name, value in place.items():
            monkeypatch.setenv(name, value)
        for told in ("True", "False"):
            monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", told)
            with pytest.raises(MachineError, match=f"listens at 127.0.0.1, port {port} is no job of Paddock"):
                store_of_job(place_in_job())


def test_nobody_else_connects_without_a_greeting() -> None:
    """Only a launcher that has just started the process which listens does."""
    package = Path(reach.__file__).parents[1]
    files = {str(path.relative_to(package)) for path in package.rglob("*.py") if "connect_store(" in path.read_text()}
    assert files == {"parallel/rendezvous.py", "parallel/reach.py", "launch/rendezvous/nodes.py"}


def test_a_store_answers() -> None:
    store = serve_store("127.0.0.1", 0)
    assert greet("127.0.0.1", store.port, 60).kind == "store"
    await_store("127.0.0.1", store.port, 60)


def test_machine_0_may_come_after_all_others() -> None:
    """First there is nobody, and then one who was there before goes."""
    with reserved_port() as port:
        came = threading.Event()
        stores: list[TCPStore] = []

        def come() -> None:
            came.wait()
            with socket.create_server(("127.0.0.1", port)) as listening:
                listening.accept()[0].close()
            stores.append(serve_store("127.0.0.1", port))

        machine_0 = threading.Thread(target=come)
        machine_0.start()
        assert reach.connection_error("127.0.0.1", port)
        came.set()
        await_store("127.0.0.1", port, 60)
        machine_0.join()
        assert greet("127.0.0.1", port, 60).kind == "store"


@pytest.mark.usefixtures("impatient")
def test_a_torch_whose_stores_answer_otherwise_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "NONCE", b"what no store says")
    monkeypatch.setattr(reach, "SECONDS_TO_REACH", 0.3)
    with listener(be_silent) as port:
        await_store("127.0.0.1", port, 60)


def test_a_launcher_does_not_print_what_the_cpp_of_torch_says() -> None:
    """A store that goes: torch would print stack traces. What the launcher starts is to print what it likes."""
    code = """
import os
from datetime import timedelta
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.process import claim
claim()
located(LaunchOptions(nnodes=2, node_rank=1, master_addr="127.0.0.1"))
assert "TORCH_CPP_LOG_LEVEL" not in os.environ
from torch.distributed import DistError, TCPStore
try:
    TCPStore("127.0.0.1", PORT, is_master=False, timeout=timedelta(seconds=1))
except DistError:
    print("as it should")
"""
    with listener(close) as port:
        command = [sys.executable, "-c", code.replace("PORT", str(port))]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("as it should\n", "")
