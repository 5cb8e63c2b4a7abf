"""Processes that are to meet: what the environment says of them is checked before anybody waits, and a wait can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from paddock.cli.main import run
from paddock.devices import select
from paddock.errors import MachineError
from paddock.parallel.reach import agent_store
from paddock.parallel.rendezvous import Place, place_in_job
from paddock.parallel.world import join_world
from paddock.testing.processes import reserved_port
from paddock.testing.tiny import TINY

GOOD = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*GOOD, "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_place_is_all_that_torchrun_says_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_in_job() == Place()
    set_all(monkeypatch, {"WORLD_SIZE": "1", "RANK": "0"})  # alone, whoever says so
    assert place_in_job() == Place()
    set_all(monkeypatch, GOOD)
    assert place_in_job() == Place(1, 2, local_rank=1, local_world_size=2, address="127.0.0.1", port=29500)
    set_all(monkeypatch, {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"})  # one process of torchrun's
    assert place_in_job() == Place(address="127.0.0.1", port=29500)


BAD = [
    ({"RANK": "5", "WORLD_SIZE": "2"}, "RANK is '5'"),
    ({"WORLD_SIZE": "2"}, "RANK and LOCAL_RANK and MASTER_ADDR and MASTER_PORT are not"),
    ({"RANK": "1"}, "RANK is '1'"),
    (GOOD | {"RANK": "two"}, "RANK is 'two'"),
    (GOOD | {"RANK": "-1"}, "RANK is '-1'"),
    (GOOD | {"RANK": ""}, "RANK is ''"),
    (GOOD | {"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
    (GOOD | {"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE is '999"),
    (GOOD | {"WORLD_SIZE": "2.0"}, "WORLD_SIZE is '2.0'"),
    (GOOD | {"LOCAL_RANK": "²"}, "LOCAL_RANK is '²'"),
    (GOOD | {"LOCAL_RANK": "2"}, "LOCAL_RANK is '2'"),
    (GOOD | {"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE is '3'"),
    (GOOD | {"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    (GOOD | {"MASTER_PORT": "65536"}, "MASTER_PORT is '65536'"),
    (GOOD | {"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
]


@pytest.mark.parametrize(("variables", "complaint"), BAD, ids=[complaint for _, complaint in BAD])
def test_nonsense_in_the_environment_is_refused(
    variables: dict[str, str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, variables)
    with pytest.raises(MachineError, match=complaint.replace("'", ".")) as caught:
        place_in_job()
    assert caught.value.why and caught.value.fix
    assert len(str(caught.value)) < 600


def test_an_agent_whose_store_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(MachineError, match="TORCHELASTIC_USE_AGENT_STORE"):
        agent_store()


@pytest.mark.parametrize("variables", [{"RANK": "5", "WORLD_SIZE": "2"}, {"WORLD_SIZE": "2"}, GOOD | {"RANK": "x"}])
def test_a_command_ends_before_it_waits(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_all(monkeypatch, variables)
    assert run(["train", *TINY]) == 3
    said = capsys.readouterr().err.removeprefix("starting\n")
    assert said.startswith("error: ") and "fix: unset" in said and "Traceback" not in said


def test_an_interface_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, GOOD | {"GLOO_SOCKET_IFNAME": "nope"})
    with pytest.raises(MachineError, match="no network interface nope") as caught, join_world(select("cpu")):
        pass
    assert "lo" in caught.value.fix
    set_all(monkeypatch, {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    with join_world(select("cpu")) as world:  # nobody to talk to
        assert world.size == 1


ALONE = """
from paddock import process
from paddock.devices import select
from paddock.launch.stop import StopRequest
from paddock.parallel.world import join_world
process.SECONDS_WITHOUT_A_WORD = 0.1
with StopRequest(), join_world(select("cpu")):
    print("met")
"""


@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_wait_for_processes_that_never_come_ends_at_a_signal(rank: int, number: signal.Signals) -> None:
    with reserved_port() as port:
        environment = os.environ | GOOD | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
        command = [sys.executable, "-c", ALONE]
        waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert waiting.stderr is not None
            said = ""
            while "wait" not in said:
                said = waiting.stderr.readline()
                assert said, "it ended"
            assert f"at 127.0.0.1, port {port}" in said
            waiting.send_signal(number)
            assert waiting.wait() == -number
        finally:
            waiting.kill()
            waiting.communicate()
