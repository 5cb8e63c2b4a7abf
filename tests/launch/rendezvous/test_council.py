"""What the council of a job decides, without a network, a process or a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddock.errors import ConfigError, DataError, MachineError, NumericsError, UserError
from paddock.launch.rendezvous.council import BEATS_OF_LIFE, SECONDS_TO_MEET, Council, Ending, Orders, Policy, Word
from paddock.messages import error_from_json, error_to_json

T = 10.0


class Job:
    """Machines that speak once a second, and a council that hears them."""

    def __init__(self, *machines: int | None, **policy: Any) -> None:
        self.elastic = None in machines
        counts = policy.pop("counts", (len(machines),))
        self.council = Council(Policy(counts, timeout=T, elastic=self.elastic, **policy))
        self.now = 100.0
        self.silent: set[str] = set()
        self.words: dict[str, Word] = {}
        for machine in machines:
            self.comes(machine)

    def comes(self, machine: int | None = None, processes: int = 2) -> str:
        key = str(len(self.words) + 1)
        name = f"host-{key}" if machine is None else f"machine {machine}"
        self.words[key] = Word(name, machine, processes)
        return key

    def say(self, *keys: str, **changes: Any) -> None:
        for key in keys:
            self.words[key] = replace(self.words[key], **changes)

    def passes(self, seconds: float = 1) -> Orders:
        for _ in range(max(1, int(seconds))):
            self.now += min(1, seconds)
            for key, word in self.words.items():
                if key not in self.silent:
                    self.words[key] = replace(word, beat=word.beat + 1)
            orders = self.council.look(self.now, self.words)
            assert Orders.from_json(orders.to_json()) == orders
        return orders

    def works(self) -> Orders:
        """All who are ready take part in the round."""
        for key in self.words:
            if key not in self.silent and self.words[key].phase != "left":
                self.say(key, phase="ready", round=self.council.orders.round, ending=None)
        orders = self.passes(T)
        assert orders.phase == "working"
        self.say(*orders.members, phase="working")
        return orders

    def ends(self, *keys: str, kind: Any = "done", **ending: Any) -> None:
        self.say(*keys, phase="ended", round=self.council.orders.round, ending=Ending(kind, **ending))

    def fails(self, key: str, error: UserError, **ending: Any) -> None:
        self.ends(key, kind="failed", error=error_to_json(error), signature=error.what, **ending)


LOST = {"error": MachineError("it lost a peer"), "remoteness": 2}


def test_all_machines_work_and_are_done() -> None:
    job = Job(1, 0)
    assert job.works().members == {"2": 0, "1": 1}
    job.ends("1")
    assert job.passes(5 * T).phase == "working"  # the others may take their time
    job.ends("2")
    orders = job.passes()
    assert (orders.phase, orders.error) == ("over", None)


def test_a_machine_that_does_not_come_is_named_and_not_waited_for_for_ever() -> None:
    job = Job(0, counts=(2,))
    assert job.passes(T).waits_for == "machine 1: start the same command there, with --node-rank 1"
    orders = job.passes(SECONDS_TO_MEET)
    assert orders.phase == "over" and "machine 1 did not come" in (orders.error or {})["what"]


def test_a_failure_without_restarts_ends_the_job_with_its_cause() -> None:
    job = Job(0, 1)
    job.works()
    job.fails("1", **LOST)  # heard first, but it only lost the other one
    assert job.passes().phase == "ending"
    job.fails("2", NumericsError("the loss is nan"))
    orders = job.passes()
    assert (orders.phase, orders.by) == ("over", "machine 1")
    assert str(error_from_json(orders.error or {})) == "the loss is nan"


def test_restarts_are_counted_and_run_out() -> None:
    job = Job(0, 1, max_restarts=2)
    for attempt in range(3):
        assert job.works().restarts == attempt
        job.fails("1", MachineError("rank 0 was killed by SIGKILL"), step=attempt)
        job.ends("2", kind="ended")
        orders = job.passes()
    assert orders.phase == "over"
    assert "it was restarted 2 times (--max-restarts)" in str(error_from_json(orders.error or {}))


def test_a_machine_that_leaves_and_comes_again_and_again_uses_up_the_restarts() -> None:
    """It is heard before it counts as lost, and all have ended because of the others."""
    job = Job(0, 1, max_restarts=2)
    for attempt in range(3):
        assert job.works().restarts == attempt
        job.ends("1", "2", kind="ended")
        orders = job.passes()
    assert (orders.phase, orders.restarts) == ("over", 2)
    error = error_from_json(orders.error or {})
    assert isinstance(error, MachineError) and "a machine lost touch with the others" in error.what
    assert "it was restarted 2 times (--max-restarts)" in error.why


def test_the_same_error_at_the_same_step_is_not_tried_a_third_time() -> None:
    job = Job(0, max_restarts=10)
    for step in (3, 4, 4):
        job.works()
        job.fails("1", NumericsError("the loss is nan"), step=step)
        orders = job.passes()
    assert (orders.phase, orders.restarts) == ("over", 2)
    assert "the step after step 4 failed twice with this same error" in str(error_from_json(orders.error or {}))


def test_another_error_at_the_same_step_is() -> None:
    job = Job(0, max_restarts=10)
    for what in ("a", "b", "a"):
        job.works()
        job.fails("1", MachineError(what), step=4)
        assert job.passes().phase == "gathering"


@pytest.mark.parametrize("kind", [ConfigError, DataError])
def test_what_another_attempt_would_meet_again_is_not_tried(kind: type[UserError]) -> None:
    job = Job(0, 1, max_restarts=10)
    job.works()
    job.fails("1", kind("no"))
    job.fails("2", **LOST)
    orders = job.passes()
    assert (orders.phase, orders.restarts) == ("over", 0)


def test_a_silent_machine_is_lost_within_the_timeout_and_may_come_again() -> None:
    job = Job(0, 1, max_restarts=1)
    job.works()
    job.silent = {"2"}
    assert job.passes(T - 1).phase == "working"
    assert job.passes(2).phase == "ending"
    job.fails("1", **LOST)
    orders = job.passes()
    assert (orders.phase, orders.round, orders.restarts) == ("gathering", 1, 1)
    assert orders.cause == "machine 1 has gone: nothing was heard of it for 10 s"
    job.say("1", phase="ready", round=1, ending=None)
    assert job.passes(20 * T).waits_for.startswith("machine 1")
    job.comes(1)  # its launcher has been started again
    assert job.works().members == {"1": 0, "3": 1}


def test_a_machine_that_was_frozen_counts_as_a_restart_too() -> None:
    job = Job(0, 1, max_restarts=1)
    job.works()
    job.silent = {"2"}
    job.passes(T + 1)
    job.silent = set()  # it is back before the others have ended
    job.fails("1", **LOST)
    assert job.passes().phase == "ending"  # it has processes still
    job.fails("2", **LOST)
    assert job.passes().cause.startswith("machine 1 has gone")
    assert job.works().members == {"1": 0, "2": 1}


def test_nobody_is_lost_while_the_council_itself_was_frozen() -> None:
    job = Job(0, 1)
    job.works()
    job.now += 20 * T
    assert job.council.look(job.now, job.words).phase == "working"
    assert job.passes().phase == "working"


def test_no_two_machines_have_one_number_nor_another_number_of_processes() -> None:
    job = Job(0, 1)
    job.passes()
    job.comes(1)
    job.comes(2, processes=3)
    orders = job.passes(BEATS_OF_LIFE + 2)
    assert str(error_from_json(orders.refused["3"])).startswith("--node-rank = 1\n  why: machine 1 has it too")
    assert "--nproc-per-node = 3" in str(error_from_json(orders.refused["4"]))
    assert set(orders.refused) == {"3", "4"} and orders.phase == "working"


def test_a_launcher_that_was_started_again_at_once_takes_the_place_of_the_one_before() -> None:
    job = Job(0, 1, max_restarts=1)
    job.works()
    job.silent = {"2"}
    job.comes(1)
    job.say("2", beat=job.words["2"].beat + 1)  # its last word was still on the way
    assert not job.passes(T + 1).refused
    job.fails("1", **LOST)
    job.passes()
    assert job.works().members == {"1": 0, "3": 1}
    assert job.council.orders.restarts == 1  # also of one that was back quickly


def test_a_stop_that_saved_ends_the_job_everywhere() -> None:
    job = Job(0, 1, max_restarts=3)
    job.works()
    job.ends("1", "2", kind="stopped")
    orders = job.passes()
    assert (orders.phase, orders.error) == ("over", None)


def test_a_stop_that_saved_nothing_is_no_failure_to_recover_from() -> None:
    job = Job(0, 1, max_restarts=3)
    job.works()
    job.say("2", phase="left")  # Ctrl-C twice
    job.passes()
    job.fails("1", **LOST)
    assert (job.passes().error or {})["what"] == "machine 1 was stopped"


def test_a_machine_that_is_stopped_while_others_are_awaited_ends_the_wait() -> None:
    job = Job(0, 1, counts=(3,))
    job.passes()
    job.say("1", phase="left")
    orders = job.passes()
    assert (orders.error or {})["what"] == "machine 0 was stopped"


class TestElastic:
    def test_it_begins_with_those_who_came_when_nobody_more_does(self) -> None:
        job = Job(None, None, counts=(1, 2, 4))
        assert job.passes(2).phase == "gathering"
        assert job.passes(T).members == {"1": 0, "2": 1}

    def test_it_begins_at_once_with_all(self) -> None:
        assert Job(None, None, counts=(1, 2)).passes().phase == "working"

    def test_it_goes_on_with_fewer_and_grows_again_after_saving(self) -> None:
        job = Job(None, None, None, counts=(1, 2, 4))
        assert job.works().members == {"1": 0, "2": 1}  # three are no legal number: one waits
        job.silent = {"1"}
        job.passes(T + 1)
        job.fails("2", **LOST)
        orders = job.passes()
        assert (orders.phase, orders.restarts) == ("gathering", 0)  # a machine that leaves costs no restart
        assert job.works().members == {"2": 0, "3": 1}
        for _ in range(2):
            job.say(job.comes(), round=1)
        orders = job.passes()
        assert (orders.phase, orders.saves) == ("working", True)
        job.ends("2", "3", kind="stopped")
        orders = job.passes()
        assert (orders.phase, orders.saves, orders.cause) == ("gathering", False, "host-4 has come")
        assert job.works().members == {"2": 0, "3": 1, "4": 2, "5": 3}

    @pytest.mark.parametrize("max_restarts", [0, 2])
    def test_one_that_comes_and_goes_for_ever_uses_up_the_restarts(self, max_restarts: int) -> None:
        job = Job(None, None, counts=(1, 2), max_restarts=max_restarts)

        def comes_and_goes(step: int) -> Orders:
            job.works()
            job.silent = {"2"}
            job.passes(T + 1)
            job.ends("1", kind="ended", step=step)
            orders = job.passes()
            job.silent = set()
            return orders

        for step in (0, 0, 7, 0, 0):  # as often as there are machines, between steps
            orders = comes_and_goes(step)
            assert (orders.phase, orders.restarts) == ("gathering", 0)
        for restart in range(max_restarts):
            orders = comes_and_goes(0)
            assert (orders.phase, orders.restarts) == ("gathering", restart + 1)
        orders = comes_and_goes(0)
        assert orders.phase == "over" and orders.error is not None
        told = error_from_json(orders.error)
        assert "host-2 has gone" in told.what and f"no new step was done in {3 + max_restarts} attempts" in told.why

    def test_steps_that_were_done_before_are_no_progress(self) -> None:
        """Whoever always leaves before the next checkpoint lets the others do the same steps for ever."""
        job = Job(None, None, counts=(1, 2))
        for _ in range(4):  # the first came further than nothing
            job.works()
            job.silent = {"2"}
            job.passes(T + 1)
            job.ends("1", kind="ended", step=7)
            orders = job.passes()
            job.silent = set()
        assert orders.phase == "over"

    def test_machines_that_come_and_go_while_steps_are_done_cost_nothing(self) -> None:
        job = Job(None, counts=(1, 2))
        for step in range(1, 10):
            job.works()
            guest = job.comes()
            assert job.passes().saves
            job.ends("1", kind="stopped", step=step)
            assert job.passes().phase == "gathering"
            assert set(job.works().members) == {"1", guest}
            job.ends("1", guest, kind="stopped", step=step + 1)
            job.say(guest, leaves=True)
            assert job.passes().restarts == 0
            job.say(guest, phase="left")

    def test_without_a_legal_number_it_waits_and_says_so(self) -> None:
        job = Job(None, counts=(2, 4))
        assert job.passes(100 * T).waits_for == "more machines: 1 here, and the job can work on 2 or 4"

    def test_one_that_is_stopped_leaves_the_others_at_work(self) -> None:
        job = Job(None, None, counts=(1, 2))
        job.works()
        job.ends("1", kind="stopped")
        job.ends("2", kind="stopped")
        job.say("2", leaves=True)
        assert job.passes().cause == "host-2 has been stopped"
        job.say("2", phase="left")
        assert job.works().members == {"1": 0}

    def test_ctrl_c_stops_all(self) -> None:
        job = Job(None, None, counts=(1, 2, 3))
        job.works()
        job.comes()
        assert job.passes().saves
        job.ends("1", kind="stopped")
        job.ends("2", kind="stopped", stops_all=True)
        assert job.passes().phase == "over"
