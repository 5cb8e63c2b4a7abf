"""Launchers that meet in a keeper's council: threads of this process, and a keeper of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from torch.distributed import TCPStore

from paddock.errors import ConfigError, MachineError, UserError
from paddock.launch.options import LaunchOptions
from paddock.launch.rendezvous import seat as module
from paddock.launch.rendezvous.council import Ending, Policy, Word
from paddock.launch.rendezvous.keeper import Keeper
from paddock.launch.rendezvous.membership import join_job
from paddock.launch.rendezvous.seat import RemoteSeat, machine_lost
from paddock.parallel.rendezvous import connect_store, listen
from paddock.testing.processes import wait_for

POLICY = Policy((2,), timeout=600, asked={"optimizer.lr": "0.001"})


@pytest.fixture
def kept() -> Iterator[tuple[Keeper, int]]:
    """A keeper, and its port."""
    with listen("127.0.0.1", 0) as listening:
        keeper, port = Keeper(listening, []), listening.getsockname()[1]
    yield keeper, port
    keeper.leave(waits=True)


def seat(port: int, machine: int, policy: Policy = POLICY, *, keeps: bool = False) -> RemoteSeat:
    return RemoteSeat(
        Word(f"machine {machine}", machine, 1, keeps=keeps),
        policy,
        lambda patience: connect_store("127.0.0.1", port, timedelta(seconds=patience or 600)),
        machine_lost("here", "do something"),
    )


def test_two_machines_work_and_one_that_wants_something_else_is_told(kept: tuple[Keeper, int]) -> None:
    _, port = kept
    first, second = seat(port, 0), seat(port, 1)
    for one in (first, second):
        orders = one.wait_for_turn()
        assert orders is not None and orders.members == {first.key: 0, second.key: 1}
    for changed, flag in (({"name": "other"}, "--rdzv-id"), ({"max_restarts": 3}, "--max-restarts")):
        with pytest.raises(ConfigError, match=flag):
            seat(port, 1, replace(POLICY, **changed)).wait_for_turn()
    with pytest.raises(MachineError, match="does not fit the job") as caught:
        seat(port, 1, replace(POLICY, asked={"optimizer.lr": "0.1"})).wait_for_turn()
    assert caught.value.why == "optimizer.lr is 0.001 there, and 0.1 here"
    second.say(phase="ended", ending=Ending("done"))
    assert first.report(Ending("done")).phase == "over"
    assert first.wait_for_turn() is None
    for one in (first, second):
        one.close()


def test_a_stranger_that_comes_while_a_machine_is_waited_for_is_spoken_of_once(
    kept: tuple[Keeper, int], capsys: pytest.CaptureFixture[str]
) -> None:
    _, port = kept
    store, said = connect_store("127.0.0.1", port), [""]

    def come(name: str, rank: int) -> None:
        options = LaunchOptions(nnodes=2, node_rank=rank, master_addr="127.0.0.1", master_port=port, max_restarts=1)
        join_job(store, options, {"model": name})

    def has_said(words: str) -> bool:
        said[0] += capsys.readouterr().err
        return words in said[0]

    come("ours", 0)
    with pytest.raises(MachineError, match="does not fit"):
        come("of an earlier time", 1)
    waiting = seat(port, 0, keeps=True)
    wait_for(lambda: bool(waiting.key))
    for name in ("theirs", "another"):
        with pytest.raises(MachineError, match="does not fit"):
            come(name, 1)
        wait_for(lambda name=name: has_said(f"model is ours there, and {name} here"))  # type: ignore[misc]
    assert said[0].count("was sent away") == 2 and "earlier" not in said[0]
    waiting.close()


def test_a_keeper_that_has_gone_is_an_error_with_the_way_on(kept: tuple[Keeper, int]) -> None:
    keeper, port = kept
    one = seat(port, 0)
    wait_for(lambda: bool(one.key))
    keeper._process.kill()
    wait_for(lambda: one.is_cut_off)
    with pytest.raises(UserError, match="has gone: machine 0") as caught:
        one.wait_for_turn()
    assert caught.value.fix == "do something" and caught.value.exit_code == 3


def test_who_was_out_of_touch_tries_again_until_machine_0_answers(kept: tuple[Keeper, int]) -> None:
    _, port = kept
    refusals = [MachineError("no answer"), MachineError("no answer")]

    def connect(patience: float | None) -> TCPStore:
        if patience is not None and refusals:  # not the first time
            raise refusals.pop()
        return connect_store("127.0.0.1", port, timedelta(seconds=patience or 600))

    one = RemoteSeat(Word("machine 0", 0, 1), POLICY, connect, machine_lost("here", "do something"))
    wait_for(lambda: bool(one.key))
    before = one.key
    one.close()  # so that the keeper does not wait for the seat that it had
    one._come_again()
    assert one.key != before and not refusals
    one.close()


def test_who_finds_a_stranger_in_the_place_of_machine_0_says_so(
    kept: tuple[Keeper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = kept
    late, tries = [0.0], [0]

    def connect(patience: float | None) -> TCPStore:
        if patience is None:
            return connect_store("127.0.0.1", port)
        tries[0] += 1
        late[0] = 10_000.0 * (tries[0] > 1)  # the second time it is too late
        raise MachineError("what listens there is no job of Paddock", why="it says 'HTTP/1.1 400'")

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late[0], sleep=time.sleep)
    monkeypatch.setattr(module, "time", clock)
    one = RemoteSeat(Word("machine 0", 0, 1), POLICY, connect, machine_lost("here", "do something"))
    wait_for(lambda: bool(one.key))
    one.close()
    with pytest.raises(MachineError, match="has gone: machine 0") as caught:
        one._come_again()
    assert caught.value.why == (
        "nothing was heard of it for 1200 s (what listens there is no job of Paddock: it says 'HTTP/1.1 400')"
    )
