"""The hang watchdog: what is a hang and what only slow, by a clock of the test; and one real job of each kind."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore, Store

from paddock.activity import BEGINNING, CALLBACK, DATA, EVALUATION, FORWARD, SAVING, UPDATE, Activities, Activity, here
from paddock.devices import adapter_named
from paddock.errors import HangError
from paddock.launch.watchdog import watch
from paddock.launch.watchdog.heartbeat import (
    FLOOR,
    GENEROUS,
    TIMES_THE_LONGEST,
    Heartbeat,
    Setting,
    allowance,
    longest_silence,
    never_arrived,
)
from paddock.launch.watchdog.watch import STOPPED_AFTER, Watchdog, watching
from paddock.parallel.world import World
from paddock.testing.commands import paddock
from paddock.testing.processes import is_gone
from paddock.testing.tiny import TINY


def activity(kind: str, longest: float | None = None) -> Activity:
    return Activity(1, "something", kind, 0.0, longest)


def test_a_limit_is_learnt_from_what_steps_took() -> None:
    for kind in (DATA, FORWARD, UPDATE):
        assert allowance(activity(kind), "auto") == allowance(activity(kind), 7.0) == GENEROUS  # it may compile
        assert allowance(activity(kind, 0.01), "auto") == FLOOR
        assert allowance(activity(kind, FLOOR), "auto") == TIMES_THE_LONGEST * FLOOR
        assert allowance(activity(kind, 0.01), 7.0) == 7.0
    for kind in (EVALUATION, SAVING, CALLBACK):
        assert allowance(activity(kind, 1.0), 7.0) == GENEROUS
        assert allowance(activity(kind, GENEROUS), "auto") == TIMES_THE_LONGEST * GENEROUS
    assert allowance(activity(BEGINNING, 1.0), 7.0) == math.inf
    assert longest_silence(7.0) == 7.0 and longest_silence("auto") == FLOOR


def test_what_recent_work_took_is_remembered_by_its_kind() -> None:
    now = 0.0
    work = Activities(lambda: now)
    for seconds in (5.0, 1.0, 3.0):
        work.begin("a step", FORWARD)
        now += seconds
        work.begin("saving", SAVING)
        now += 100.0
    work.begin("a step", FORWARD)
    assert work.current.longest == 5.0 and work.current.number == 7
    now += 2.0
    work.moved()
    assert work.current.since == now and work.current.number == 7
    for _ in range(100):
        now += 2.0
        work.moved()
    assert work.current.longest == 2.0, "what was slow long ago counts no more"
    work.forgive(50.0)
    assert work.current.since == now + 50.0
    work.begin_anew()
    assert (work.current.number, work.current.kind, work.current.since) == (0, BEGINNING, now)
    work.begin("a step", FORWARD)
    assert work.current.longest is None, "another run's steps say nothing of this one's"


def test_a_thread_that_moves_on_loses_nothing_that_another_began() -> None:
    work, over = Activities(), threading.Event()

    def write() -> None:
        while not over.is_set():
            work.moved()

    writer = threading.Thread(target=write)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer.start()
    try:
        for _ in range(2000):
            work.begin("a step", FORWARD)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        writer.join()
    assert work.current.number == 2000


class Ended(Exception):
    """In place of the end of a process."""


class Rank:
    """A rank of a job that has no processes: its watchdog, and what came of it."""

    def __init__(self, job: Job, rank: int) -> None:
        self.work = Activities(lambda: job.now)
        self.frozen = False
        self.error: HangError | None = None
        self.speaks = False
        self.following = False
        self._job = job
        self.dog = Watchdog(
            job.setting,
            rank,
            job.size,
            job.store,
            self._end,
            errors=Path("run/errors"),
            activities=self.work,
            clock=lambda: job.now,
            wait=lambda seconds: job.let_others_follow(seconds),
        )

    def _end(self, error: HangError, stacks: str, speaks: bool) -> None:
        assert "test_watchdog.py" in stacks and "collectives" in stacks
        self.error, self.speaks = error, speaks
        raise Ended

    def tick(self) -> None:
        """What both threads do, in any order, unless the process is frozen or has ended."""
        if self.frozen or self.error is not None or self.following:
            return
        self.following = True
        try:
            for part in [self.dog.tick, self.dog.look_at_self][:: self._job.order]:
                part()
        except Ended:
            pass
        finally:
            self.following = False


class Job:
    """Ranks that share a store and a clock."""

    def __init__(self, size: int = 3, setting: Setting = "auto", order: int = -1) -> None:
        self.now, self.size, self.setting, self.order = 0.0, size, setting, order
        self.store: Store | None = HashStore() if size > 1 else None
        self.ranks = [Rank(self, rank) for rank in range(size)]
        for one in self.ranks if size > 1 else ():
            one.dog._tell()

    def let_others_follow(self, seconds: float) -> None:
        self.now += seconds
        for one in self.ranks:
            one.tick()

    def run(self, seconds: float) -> None:
        """Let time pass, a heartbeat a second."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for one in self.ranks:
                one.tick()
            if self.hangs:
                return

    @property
    def hangs(self) -> bool:
        return any(one.error for one in self.ranks)

    def begin(self, kind: str, but: int | None = None) -> None:
        """All ranks but one begin with something."""
        for rank, one in enumerate(self.ranks):
            if rank != but:
                one.work.begin(f"{kind} of a step", kind)

    def step(self, seconds: float = 1.0) -> None:
        self.begin(DATA)
        self.begin(FORWARD)
        self.run(seconds)
        self.begin(UPDATE)


def test_slow_is_not_hanging() -> None:
    job = Job()
    for _ in range(5):
        job.step()
    job.step(FLOOR - 1)  # far slower than any before
    assert not job.hangs
    job.step(TIMES_THE_LONGEST * (FLOOR - 2))  # and that was learnt
    assert not job.hangs


def test_waiting_for_a_rank_that_is_busy_is_not_hanging() -> None:
    job = Job()
    for _ in range(3):
        job.step()
    job.begin(CALLBACK)
    job.begin(FORWARD, but=1)
    job.run(GENEROUS - 10)
    assert not job.hangs
    job.run(20)
    assert job.hangs, "but not for ever"
    for one in job.ranks:
        assert one.error is not None and "the others wait for rank 1" in one.error.what
        assert "rank 1 is in callback of a step" in one.error.why


def test_a_job_in_which_nothing_moves_is_ended_on_all_ranks_with_one_summary() -> None:
    job = Job(setting=20.0)
    for _ in range(3):
        job.step()
    job.begin(DATA)
    job.begin(FORWARD, but=2)
    job.run(19)
    assert not job.hangs
    job.run(10)
    said = {str(one.error) for one in job.ranks}
    assert len(said) == 1
    error = job.ranks[0].error
    assert error is not None and error.exit_code == 6
    assert "the others wait for rank 2" in error.what
    assert "ranks 0, 1 are in forward and backward" in error.why  # the test's own main thread, in no collective
    assert [one.speaks for one in job.ranks] == [True, False, False]


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_frozen_rank_is_missed_by_the_one_before_it(frozen: int) -> None:
    job = Job(setting=20.0)
    for _ in range(3):
        job.step()
    job.ranks[frozen].frozen = True
    for one in job.ranks:
        one.work.begin("evaluating", EVALUATION)  # which may take half an hour
    job.run(19)
    assert not job.hangs
    job.run(10)
    for rank, one in enumerate(job.ranks):
        if rank != frozen:
            assert one.error is not None and f"the others wait for rank {frozen} (" in one.error.what
            assert f"rank {frozen} has sent no heartbeat for" in one.error.why
            assert one.speaks == (rank == min({0, 1, 2} - {frozen}))
    assert job.ranks[frozen].error is None
    assert len({str(one.error) for one in job.ranks if one.error}) == 1


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("size", [1, 3])
def test_a_job_that_was_stopped_as_a_whole_goes_on(size: int, order: int) -> None:
    job = Job(size, setting=20.0, order=order)
    for _ in range(3):
        job.step()
    job.now += 10_000.0  # a paused container
    job.run(15)
    assert not job.hangs
    job.run(10)
    assert job.hangs
    assert STOPPED_AFTER < 20.0


def test_a_rank_that_cannot_reach_the_store_ends_by_itself() -> None:
    job = Job(size=2, setting=20.0)
    for _ in range(3):
        job.step()
    dog = job.ranks[0].dog
    for _ in range(19):
        job.now += 1.0
        dog.look_at_self()
    with pytest.raises(Ended):
        for _ in range(3):
            job.now += 1.0
            dog.look_at_self()
    error = job.ranks[0].error
    assert error is not None and "the job's store does not answer" in error.why


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    job = Job(size=2, setting=20.0)
    for _ in range(3):
        job.step()
    job.ranks[1].dog.say_goodbye()
    job.ranks[1].frozen = True
    for _ in range(100):
        job.run(1)
        job.ranks[0].work.moved()
    assert not job.hangs


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_who_trains_in_a_program_of_his_own_is_not_ended_unasked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = World(0, 1, adapter_named("cpu"), torch.device("cpu"))
    monkeypatch.setattr(watch, "is_ours", lambda: False)
    here.begin("the end of an earlier run", CALLBACK)
    with watching("auto", alone, tmp_path):
        assert "watchdog" not in threads()
    with watching(20.0, alone, tmp_path):  # he asked for it
        assert "watchdog" in threads()
    monkeypatch.setattr(watch, "is_ours", lambda: True)
    here.begin("the end of an earlier run", CALLBACK)
    with watching("auto", alone, tmp_path):
        assert "watchdog" in threads()
        assert here.current.kind == BEGINNING, "however long ago that run was"
    assert "watchdog" not in threads()


def beat(rank: int, number: int, *stack: str) -> Heartbeat:
    return Heartbeat(rank, "host", 1, 1, number, "something", 1.0, True, list(stack))


def test_who_never_arrived() -> None:
    waits, computes = "torch/distributed/distributed_c10d.py:1 all_reduce", "model.py:3 forward"
    assert never_arrived([beat(0, 5, waits), beat(1, 5, waits)], [1]) == [1]
    assert never_arrived([beat(0, 5, waits), beat(1, 4, waits)], []) == [1]
    assert never_arrived([beat(0, 5, waits), beat(1, 5, computes)], []) == [1]
    assert never_arrived([beat(0, 5, waits), beat(1, 5, waits)], []) == []
    assert never_arrived([replace(beat(0, 9), has_ended=True), beat(1, 5, waits), beat(2, 4, waits)], []) == [2]


MODULE = """
import os, signal, threading
from paddock.training.callbacks import Callback

def wait_for_ever(module, inputs):
    threading.Event().wait()

class Hangs(Callback):
    def on_step(self, run, metrics):
        if run.progress.step == 4 and run.world.rank == run.world.size - 1:
            next(run.engine.models[0].children()).register_forward_pre_hook(wait_for_ever)

class Freezes(Callback):
    def on_step(self, run, metrics):
        if run.progress.step == 4 and run.world.rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
"""
ENTRIES = "[paddock.callbacks]\nHangs = stuck:Hangs\nFreezes = stuck:Freezes\n"


def train_with(callback: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    metadata = folder / "stuck-1.dist-info"
    metadata.mkdir()
    (folder / "stuck.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stuck\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(ENTRIES)
    words = ["train", *TINY, "--run-dir", str(folder / "run"), *flags]
    return paddock(*words, "--train.callbacks", callback, "--evaluate.every", "None", PYTHONPATH=str(folder))


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    done = train_with("Hangs", tmp_path, "--nproc-per-node", "2", "--train.hang-timeout", "15")
    assert done.returncode == 6, done.stderr
    assert "error: the job hangs" in done.stderr
    assert "the others wait for rank 1 (" in done.stderr
    assert "stuck.py:" in done.stderr and "wait_for_ever" in done.stderr  # where it is
    assert "Traceback" not in done.stderr
    for rank in (0, 1):
        kept = (tmp_path / "run" / "errors" / f"rank{rank}.txt").read_text()
        assert "thread MainThread" in kept and "gloo:all_reduce" in kept
    assert "wait_for_ever" in (tmp_path / "run" / "errors" / "rank1.txt").read_text()
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(record["step"][1] for record in records if record.get("step")) == 4


@pytest.mark.slow
def test_a_frozen_rank_is_named_and_ended(tmp_path: Path) -> None:
    done = train_with("Freezes", tmp_path, "--nproc-per-node", "2", "--train.hang-timeout", "15")
    assert done.returncode == 6, done.stderr
    assert "the others wait for rank 0 (" in done.stderr
    assert "rank 0 has sent no heartbeat" in done.stderr
    [(host, pid)] = re.findall(r"the others wait for rank 0 \((.*), process (\d+)\)", done.stderr)
    assert host and is_gone(pid)


@pytest.mark.slow
def test_one_process_that_hangs_ends_with_its_stacks(tmp_path: Path) -> None:
    done = train_with("Hangs", tmp_path, "--train.hang-timeout", "15")
    assert done.returncode == 6, done.stderr
    assert "error: the job hangs" in done.stderr and "wait_for_ever" in done.stderr
    assert "wait_for_ever" in (tmp_path / "run" / "errors" / "rank0.txt").read_text()
