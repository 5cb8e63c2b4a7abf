"""The loader: the same batches from a thread and from any number of processes, which end as they should.

All workers of this file come from one fork server, so only the first waits for torch to be imported.
"""

from __future__ import annotations

import errno
import gc
import multiprocessing.queues
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.passages import TrainingPassages
from paddock.data.language.spans import SpanCorruption, SpanOptions, SpanTokens
from paddock.data.loading.loader import StepLoader, WaitGivenUp
from paddock.data.loading.sampler import Sampler
from paddock.data.loading.workers import BatchReader, PackedBatch, WorkerBatches, WorkerTraceback
from paddock.errors import ConfigError, DataError, MachineError
from paddock.testing.processes import is_gone, wait_for
from paddock.testing.samples.corpora import NumberedSamples, stack

ENDLESS = 1 << 40


def indices(loader: StepLoader, steps: int) -> list[list[list[int]]]:
    return [[batch["index"].tolist() for batch in loader.next_step()] for _ in range(steps)]


def processes(loader: StepLoader) -> set[int]:
    return {pid for _ in range(3) for batch in loader.next_step() for pid in batch["process"].tolist()}


@pytest.fixture
def loader() -> Iterator[StepLoader]:
    """Two workers that read without end."""
    with StepLoader(NumberedSamples(), Sampler(2, 4, 1, 0), stack, 0, ENDLESS, workers=2) as loader:
        yield loader


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_batches_come_in_order_whoever_reads_them(workers: int) -> None:
    sampler, position, steps = Sampler(micro=2, accumulation=3, data_size=4, data_rank=1), 5, 7
    with StepLoader(NumberedSamples(), sampler, stack, position, position + steps * 24, workers) as loader:
        expected = [[list(part) for part in sampler.step(position + 24 * step)] for step in range(steps)]
        assert indices(loader, steps) == expected


def test_workers_are_processes_of_one_thread(loader: StepLoader) -> None:
    pids = processes(loader)
    assert len(pids) == 2 and os.getpid() not in pids
    assert {int(batch["threads"][0]) for batch in loader.next_step()} == {1}


def test_reading_in_workers_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with StepLoader(NumberedSamples(), Sampler(1, 1, 1, 0), stack, 0, ENDLESS, workers=1) as loader:
        loader.next_step()
    assert torch.equal(torch.get_rng_state(), before)


def test_any_tensor_can_be_sent() -> None:
    tensors = [torch.arange(7, dtype=torch.int8), torch.rand(3, 5), torch.rand(2, 3, dtype=torch.bfloat16).T]
    tensors += [torch.tensor(3), torch.tensor([True, False]), torch.zeros(0, 4), torch.rand(4, dtype=torch.float64)]
    batch = {f"tensor {index}": tensor for index, tensor in enumerate(tensors)}
    received = PackedBatch.pack(batch).unpack()
    assert list(received) == list(batch)
    for name, tensor in batch.items():
        assert received[name].dtype == tensor.dtype and torch.equal(received[name], tensor)


def test_batches_do_not_stay_in_shared_memory(loader: StepLoader) -> None:
    assert not any(tensor.is_shared() for batch in loader.next_step() for tensor in batch.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_survive_what_stops_a_run(loader: StepLoader, number: signal.Signals) -> None:
    for pid in processes(loader):
        os.kill(pid, number)
    assert indices(loader, 20) == [[[8 * s + 2 * a, 8 * s + 2 * a + 1] for a in range(4)] for s in range(3, 23)]


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_is_left_behind(fails: bool) -> None:
    pids: set[int] = set()
    try:
        with StepLoader(NumberedSamples(), Sampler(2, 4, 1, 0), stack, 0, ENDLESS, workers=2) as loader:
            pids = processes(loader)
            if fails:
                raise ArithmeticError("something else")
    except ArithmeticError:
        assert fails
    assert len(pids) == 2 and all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_user_is_raised_as_it_is(workers: int) -> None:
    samples = NumberedSamples(fails_at=13, how="user error")
    with StepLoader(samples, Sampler(2, 2, 1, 0), stack, 0, ENDLESS, workers) as loader:
        assert indices(loader, 3) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
        with pytest.raises(ConfigError) as caught:
            loader.next_step()
    assert (caught.value.what, caught.value.why, caught.value.fix) == (
        "the gate is shut",
        "nobody opened it",
        "open it",
    )
    assert "in __getitem__" in "".join(traceback.format_exception(caught.value))


def test_any_other_error_comes_with_its_traceback() -> None:
    with StepLoader(NumberedSamples(13), Sampler(2, 2, 1, 0), stack, 0, ENDLESS, workers=2) as loader:
        indices(loader, 3)
        with pytest.raises(DataError) as caught:
            loader.next_step()
    assert caught.value.what == "samples 12 to 13 cannot be read"
    assert caught.value.why == "KeyError: 'the shelf is empty'"
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert 'raise KeyError("the shelf is empty")' in str(caught.value.__cause__)


def test_a_killed_worker_is_an_error() -> None:
    with StepLoader(NumberedSamples(100, "SIGKILL"), Sampler(2, 2, 1, 0), stack, 0, ENDLESS, workers=2) as loader:
        pids = processes(loader)
        with pytest.raises(DataError, match=r"^loader worker \d+ was killed by SIGKILL") as caught:
            indices(loader, 25)
    assert any(str(pid) in caught.value.what for pid in pids)
    assert all(is_gone(pid) for pid in pids)


def test_a_batch_that_cannot_be_handed_over_is_an_error() -> None:
    """The worker's thread that sends it fails, and nothing else."""
    loader = StepLoader(NumberedSamples(100, "no room"), Sampler(2, 2, 1, 0), stack, 0, ENDLESS, workers=2)
    with loader, pytest.raises(MachineError, match="shared memory") as caught:
        indices(loader, 30)
    assert "File too large" in caught.value.why
    assert "--data.workers 0" in caught.value.fix


def test_workers_that_cannot_be_started_are_forgotten_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's iterator, made by half, complains when it is collected: at a moment that nobody knows."""
    real = multiprocessing.queues.Queue.__init__
    made: list[Any] = []
    said: list[Any] = []

    def without_room(queue: Any, *arguments: Any, **options: Any) -> None:
        made.append(queue)
        if len(made) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(queue, *arguments, **options)

    monkeypatch.setattr(multiprocessing.queues.Queue, "__init__", without_room)
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    loader = StepLoader(NumberedSamples(), Sampler(2, 2, 1, 0), stack, 0, ENDLESS, workers=2)
    with loader, pytest.raises(MachineError, match="loader workers cannot be started"):
        indices(loader, 1)
    del loader
    gc.collect()
    assert len(made) == 3 and said == []


SMALL = """
from paddock.cli.main import main
from paddock.testing.tiny import TINY
main(["train", *TINY, "--data.workers", "2", "--run-dir", "run"])
"""
TMPFS = 'mount -t tmpfs -o size={} tmpfs /dev/shm && exec "$0" "$@"'


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ("64k", "a loader worker could not hand over a batch in shared memory"),
        ("4k", "loader workers cannot be started"),
    ],
)
def test_a_full_shared_memory_is_an_error(size: str, complaint: str, tmp_path: Path) -> None:
    inside = ["unshare", "-rm", "sh", "-c", TMPFS.format(size)]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("nobody may mount here")
    done = subprocess.run([*inside, sys.executable, "-c", SMALL], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert f"error: {complaint}" in done.stderr and "Traceback" not in done.stderr
    assert "--data.workers 0" in done.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_a_wait_for_batches_can_be_given_up(workers: int) -> None:
    with StepLoader(NumberedSamples(2, "hang"), Sampler(1, 1, 1, 0), stack, 0, ENDLESS, workers) as loader:
        assert indices(loader, 2) == [[[0]], [[1]]]
        with pytest.raises(WaitGivenUp):
            loader.next_step(gives_up=lambda: True)


SCRIPT = """
import os, signal, sys
from multiprocessing import forkserver
from pathlib import Path
from paddock.data.loading.loader import StepLoader
from paddock.data.loading.sampler import Sampler
from paddock.testing.samples.corpora import NumberedSamples, stack

if __name__ == "__main__":
    with StepLoader(NumberedSamples(), Sampler(2, 4, 1, 0), stack, 0, 1 << 40, workers=2) as loader:
        pids = {int(batch["process"][0]) for _ in range(3) for batch in loader.next_step()}
        server = forkserver._forkserver._forkserver_pid
        blocked = int(Path(f"/proc/{server}/status").read_text().split("SigBlk:")[1].split()[0], 16)
        print(*pids, server, [bool(blocked >> number - 1 & 1) for number in (signal.SIGINT, signal.SIGTERM)])
        sys.stdout.flush()
        sys.stdin.read()
"""


def test_workers_leave_when_their_process_is_killed(tmp_path: Path) -> None:
    """And they are deaf to Ctrl-C from the first moment: their fork server is."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first, second, server, deaf = process.stdout.readline().split(maxsplit=3)
        assert deaf.strip() == "[True, True]"
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: all(is_gone(int(pid)) for pid in (first, second, server)))


UNGUARDED = """
print("the script runs")
from paddock.data.loading.loader import StepLoader
from paddock.data.loading.sampler import Sampler
from paddock.testing.samples.corpora import NumberedSamples, stack

with StepLoader(NumberedSamples(), Sampler(2, 4, 1, 0), stack, 0, 8, workers=1) as loader:
    print([batch["index"].tolist() for batch in loader.next_step()])
"""


def test_workers_do_not_run_the_script_again(tmp_path: Path) -> None:
    """Which trains, and need not be guarded by `if __name__ == "__main__"`."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["the script runs", "[[0, 1], [2, 3], [4, 5], [6, 7]]"], done.stderr


def test_starting_workers_leaves_the_main_module_to_other_threads() -> None:
    script = sys.modules["__main__"]
    seen = []

    def parts() -> Iterator[range]:
        seen.append(sys.modules["__main__"])  # the first ones are asked for while the workers start
        yield range(2)

    batches = WorkerBatches(BatchReader(NumberedSamples(), stack), parts(), workers=1)
    try:
        assert next(batches)["index"].tolist() == [0, 1]
    finally:
        batches.close()
    assert seen == [script]


def test_workers_open_the_files_themselves(tmp_path: Path) -> None:
    """Real samples from real files: the corpus is not sent to the workers, and they read the same."""
    with IndexedWriter(tmp_path / "corpus", 9000) as writer:
        for document in range(30):
            writer.add_document(*[np.arange(size) + document for size in (40, 5, 300)])
    corpus = IndexedTokens(tmp_path / "corpus")
    objective = SpanCorruption(SpanOptions(), SpanTokens(0, 1, tuple(range(9000, 9100))))
    samples = TrainingPassages(corpus, range(30), objective, seed=0)
    steps = []
    for workers in (0, 2):
        with StepLoader(samples, Sampler(4, 2, 1, 0), stack, 20, ENDLESS, workers) as loader:
            steps.append([loader.next_step() for _ in range(6)])
    for alone, shared in zip(*steps, strict=True):
        for one, other in zip(alone, shared, strict=True):
            assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
