"""Who belongs to a job: strangers and second comers are sent away, and the job does not notice but for a remark."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest
from torch.distributed import TCPStore

from paddock.errors import MachineError
from paddock.launch.facts import flat
from paddock.launch.options import LaunchOptions
from paddock.launch.preflight import inspection
from paddock.launch.rendezvous import membership
from paddock.launch.rendezvous.membership import Launcher, join_job, tell_of_refusals
from paddock.launch.rendezvous.nodes import agreed
from paddock.parallel import rendezvous
from paddock.parallel.reach import connection_error, reach_store
from paddock.parallel.rendezvous import connect_store, serve_store
from paddock.testing.processes import reserved_port, wait_for


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True)


def two(rank: int, **others: int) -> LaunchOptions:
    return LaunchOptions(nnodes=2, node_rank=rank, master_addr="127.0.0.1", **others)


def someone_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_me", lambda: Launcher(host="far", pid=7, id="another"))


def test_each_place_is_taken_once(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    join_job(store, two(0))
    join_job(store, two(1))
    join_job(store, two(1))  # the agent joins the launcher's job once more
    me = membership._me()
    someone_else(monkeypatch)
    with pytest.raises(MachineError, match="there is a machine 1 already in the job that meets at") as caught:
        join_job(store, two(1))
    assert caught.value.why == f"--node-rank 1 is process {me.pid} of {me.host}, and this is process 7 of far"
    assert "its own --node-rank" in caught.value.fix


def test_the_place_of_a_launcher_that_has_died_is_free(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    me = membership._me()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    monkeypatch.setattr(membership, "_me", lambda: Launcher(host=me.host, pid=dead.pid, id="dead"))
    join_job(store, two(0))
    join_job(store, two(1))
    monkeypatch.setattr(membership, "_me", lambda: me)
    join_job(store, two(1))
    someone_else(monkeypatch)
    with pytest.raises(MachineError, match="already in the job"):
        join_job(store, two(1))


def test_another_number_of_machines_is_refused(store: TCPStore, capsys: pytest.CaptureFixture[str]) -> None:
    join_job(store, two(0))
    why = "--nnodes is 2 there, and 3 here"
    with pytest.raises(MachineError, match="machine 1 does not fit the job that meets at") as caught:
        join_job(store, LaunchOptions(nnodes=3, node_rank=1, master_addr="127.0.0.1"))
    assert caught.value.why == why and caught.value.exit_code == 3
    join_job(store, two(1))  # its place is still free for the right one
    assert tell_of_refusals(store, 0) == 1 and tell_of_refusals(store, 1) == 1
    [remark] = capsys.readouterr().err.splitlines()
    assert remark.startswith("note: process ") and remark.endswith(f"meets here ({why})")


def test_another_job_at_the_same_port_is_refused(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/paddock", "train", "gpt2/345m", "--steps", "5"])
    join_job(store, two(0))
    monkeypatch.setattr(sys, "argv", ["/home/somebody/paddock", "train", "/data/my.yaml", "--steps", "5"])
    with pytest.raises(MachineError, match="does not fit the job") as caught:
        join_job(store, two(1))
    assert caught.value.why == "command is paddock train 345m there, and paddock train my.yaml here"
    assert "another --master-port" in caught.value.fix
    monkeypatch.setattr(sys, "argv", ["paddock", "train", "gpt2/345m", "--node-rank", "1"])
    join_job(store, two(1))


def test_jobs_of_slurm_know_their_number(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    join_job(store, two(0))
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    with pytest.raises(MachineError) as caught:
        join_job(store, two(1))
    assert caught.value.why == "SLURM_JOB_ID is 12 there, and 13 here"


def test_a_store_of_somebody_else(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "SECONDS_TO_SAY", 0)
    with pytest.raises(MachineError, match="is no job of Paddock"):
        join_job(store, two(1))


def test_a_job_goes_on_when_a_stranger_was_sent_away(capsys: pytest.CaptureFixture[str]) -> None:
    with reserved_port() as port, ThreadPoolExecutor(1) as other:
        first = LaunchOptions(nnodes=2, master_addr="127.0.0.1", master_port=port)

        def lead() -> str:
            with agreed(first, lambda: "runs/one", print) as decided:
                return decided

        leading = other.submit(lead)
        stranger = LaunchOptions(1, 3, 2, "127.0.0.1", port)
        with pytest.raises(MachineError, match="does not fit"), agreed(stranger, lambda: "", print):
            pass
        with agreed(LaunchOptions(1, 2, 1, "127.0.0.1", port), lambda: "", lambda _: None) as decided:
            assert decided == "runs/one"
        assert leading.result() == "runs/one"
    assert "was sent away" in capsys.readouterr().err


def test_where_another_machine_may_come_for_a_lost_one_the_council_knows_who_is_there(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_job(store, two(0, max_restarts=1))
    join_job(store, two(1, max_restarts=1))
    someone_else(monkeypatch)
    join_job(store, two(1, max_restarts=1))


def test_where_machines_are_replaced_what_was_asked_tells_strangers_from_ours(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = {"optimizer.lr": "0.001", "model.layers": "2", "--run-dir": "one"}
    join_job(store, two(0, max_restarts=1), ours)
    monkeypatch.setattr(sys, "argv", ["paddock", "resume", "runs/one"])  # which says the same in other words
    join_job(store, two(1, max_restarts=1), ours)
    join_job(store, two(1, max_restarts=1), {name: ours[name] for name in ours if name != "--run-dir"})
    for options, asked, why in (
        (two(1, max_restarts=1), ours | {"optimizer.lr": "0.1"}, "optimizer.lr is 0.001 there, and 0.1 here"),
        (two(1, max_restarts=1), ours | {"--run-dir": "two"}, "--run-dir is one there, and two here"),
        (two(1, max_restarts=1, nproc_per_node=4), ours, "--nproc-per-node is 1 there, and 4 here"),
        (two(1, max_restarts=3), ours, "--max-restarts is 1 there, and 3 here"),
        (two(1), {}, "--max-restarts is 1 there, and 0 here"),
    ):
        with pytest.raises(MachineError, match="machine 1 does not fit the job that meets at") as caught:
            join_job(store, options, asked)
        assert caught.value.why == why and "another --master-port" in caught.value.fix
    assert tell_of_refusals(store, 0) == 5
    assert "optimizer.lr is 0.001 there, and 0.1 here" in capsys.readouterr().err


def test_of_many_fields_that_differ_some_are_named() -> None:
    theirs, mine = ({str(number): value for number in range(11)} for value in ("a", "b"))
    assert membership.differences(theirs, mine).endswith("; 7 is a there, and b here; and 3 more")
    assert membership.differences(theirs, theirs) == membership.differences({}, mine) == ""


def test_whoever_made_the_store_says_what_an_elastic_job_is(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(name: str) -> LaunchOptions:
        return LaunchOptions(nnodes=2, min_nodes=1, rdzv_id=name, master_addr="127.0.0.1")

    monkeypatch.setattr(membership, "SECONDS_TO_SAY", 0)
    with pytest.raises(MachineError, match="is no job of Paddock"):  # a stranger that comes first has no say
        join_job(store, machine("theirs"), {"optimizer.lr": "0.1"})
    join_job(store, machine("ours"), {"optimizer.lr": "0.001"}, made_store=True)
    monkeypatch.setenv("SLURM_JOB_ID", "13")  # machines may come from another one
    join_job(store, machine("ours"), {"optimizer.lr": "0.001"})
    for name, rate, why in (
        ("theirs", "0.001", "--rdzv-id is ours there, and theirs here"),
        ("ours", "0.1", "optimizer.lr is 0.001 there, and 0.1 here"),
    ):
        with pytest.raises(MachineError, match="this machine does not fit the job that meets at") as caught:
            join_job(store, machine(name), {"optimizer.lr": rate})
        assert caught.value.why == why
    with pytest.raises(MachineError) as caught:
        join_job(store, two(1), {})
    assert "--nnodes is 1:2 there, and 2 here" in caught.value.why


@pytest.mark.parametrize("elastic", [False, True], ids=["--max-restarts", "elastic"])
def test_a_stranger_that_comes_first_leaves_the_place_to_the_right_machine(elastic: bool) -> None:
    """Before the preflight, which would stop both jobs, and before it has done anything of what the job decided."""
    with reserved_port() as port, ThreadPoolExecutor(1) as other:
        kind = {"min_nodes": 1, "rdzv_id": "job"} if elastic else {"max_restarts": 2}
        first = LaunchOptions(nnodes=2, master_addr="127.0.0.1", master_port=port, **kind)  # type: ignore[arg-type]
        second = replace(first, node_rank=0 if elastic else 1)
        followed: list[str] = []

        @contextmanager
        def meets(options: LaunchOptions, rate: float) -> Iterator[str]:
            recipe = {"optimizer": {"lr": rate}}
            inspect = inspection(options, "cpu", recipe)
            assert (inspect is None) == elastic
            with agreed(options, lambda: "runs/one", followed.append, inspect, flat(recipe)) as decided:
                yield decided

        left = Event()

        def lead() -> str:
            with meets(first, 0.001) as decided:
                assert left.wait(600)
                return decided

        leading = other.submit(lead)
        try:
            wait_for(lambda: leading.done() or not connection_error("127.0.0.1", port))
            with pytest.raises(MachineError, match="does not fit the job") as caught, meets(second, 0.1):
                pass
            assert caught.value.why == "optimizer.lr is 0.001 there, and 0.1 here" and not followed
            with meets(second, 0.001) as decided:
                assert decided == "runs/one" and followed == ["runs/one"]
        finally:
            left.set()
        assert leading.result() == "runs/one"


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first = LaunchOptions(nnodes=2, master_addr="127.0.0.1", master_port=port)
        with pytest.raises(MachineError) as caught, agreed(first, lambda: "", print):
            pass
    assert caught.value.what == f"the processes could not meet at 127.0.0.1, port {port}"
    assert "--master-port" in caught.value.fix and "in use" in caught.value.why


def test_an_address_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_FOR_A_NAME", 0)
    with pytest.raises(MachineError, match="no host is known as no-such-host.invalid") as caught:
        connect_store("no-such-host.invalid", 29500)
    assert "--master-addr" in caught.value.fix


def test_an_address_where_nobody_listens() -> None:
    with reserved_port() as port:
        with pytest.raises(MachineError, match=f"machine 0 cannot be reached at 127.0.0.1, port {port}"):
            reach_store("127.0.0.1", port, timedelta(0))
        with pytest.raises(MachineError, match=f"could not meet at 127.0.0.1, port {port}"):
            connect_store("127.0.0.1", port, timedelta(seconds=1))


def test_an_ipv6_address() -> None:
    try:
        store = serve_store("::1", 0)
    except MachineError:
        pytest.skip("this machine has no IPv6")
    store.set("word", "heard")
    assert reach_store("::1", store.port).get("word") == b"heard"
