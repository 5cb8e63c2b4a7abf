"""What benchmarks beside another library share: each setting in a process of its own, steps that take turns between
settings so that a noisy machine disturbs all of them alike, the middle of each, and a table that is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from report import Row, keep

READY = "ready"
GEMM_SIZES = (1024, 2048, 4096)
GEMM_WORK = 4096**3
"""Multiplications in a turn, for each size."""
Result = dict[str, float]
Child = Callable[[int], Result]
"""A setting: given a number of steps, what it measured; `speed` decides which round counts."""


def compare(
    description: str,
    script: str,
    children: Mapping[str, Child],
    rows: Callable[[dict[str, Result]], list[Row]],
    steps: int = 8,
) -> None:
    """The whole of a benchmark script: its arguments, its rounds, its table and its file of results."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--settings", nargs="*", default=list(children), choices=list(children))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(children[arguments.child](arguments.steps)))
        return
    found: dict[str, list[Result]] = {setting: [] for setting in arguments.settings}
    for number in range(arguments.rounds):
        for together in workloads(arguments.settings):
            for setting, result in run_in_turns(script, together, arguments.steps).items():
                print(f"round {number + 1} {setting}: {result}", file=sys.stderr, flush=True)
                found[setting].append(result)
    if set(found) == set(children):
        keep(script, rows({setting: middle(results) for setting, results in found.items()}))


def workloads(settings: Iterable[str]) -> list[list[str]]:
    """Settings that take turns: those of one workload, where names have the form "workload: setting". All of them at
    once would not fit into memory."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        workload, colon, _ = setting.partition(": ")
        found.setdefault(workload if colon else "", []).append(setting)
    return list(found.values())


def middle(results: list[Result]) -> Result:
    """Of several rounds the one of middle speed; of two the slower."""
    return sorted(results, key=lambda result: result["speed"])[(len(results) - 1) // 2]


def run_in_turns(script: str, settings: Iterable[str], steps: int) -> dict[str, Result]:
    """Start the settings one after the other, until each is warm; then let them take turns, a step at a time. One that
    never says that it is ready is measured as a whole."""
    with ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory())  # nobody profits from what an earlier run compiled
        children: dict[str, subprocess.Popen[str]] = {}
        last: dict[str, str] = {}
        for number, setting in enumerate(settings):
            command = [sys.executable, script, "--child", setting, "--steps", str(steps)]
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/{number}"}
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            children[setting] = stack.enter_context(child)
            last[setting] = _says(setting, child)
        while waiting := [setting for setting, line in last.items() if line == READY]:
            for setting in waiting:
                print(file=children[setting].stdin, flush=True)
                last[setting] = _says(setting, children[setting])
        return {setting: json.loads(line) for setting, line in last.items()}


def _says(setting: str, child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{setting} ended without a result")
    return line


def best_rounds(
    script: str, children: Iterable[str], folder: Path, rounds: int, largest: tuple[str, ...] = ("per_second",)
) -> Result:
    """Of measures that each need one core and what lies in `folder`: the smallest that a round found, or the largest
    of those whose names end so."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    best: Result = {}
    for number in range(rounds):
        for child in children:
            command = [sys.executable, script, "--child", child, "--folder", str(folder)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
            result: Result = json.loads(output)
            print(f"round {number + 1} {child}: {result}", file=sys.stderr, flush=True)
            for measure, value in result.items():
                choose = max if measure.endswith(largest) else min
                best[measure] = choose(best.get(measure, value), value)
    return best


class Turns:
    """The seconds of a child's steps: before each it says that it is ready and waits until it is asked. The first
    (compiling) and the second (allocating) step wait for nobody and are kept apart."""

    def __init__(self) -> None:
        self._answer = sys.stdout  # what stands there now, whoever writes to another in the meantime
        self._began: float | None = None
        self._durations: list[float] = []

    def begin(self) -> None:
        """The step before, if there was one, is at its end, and the next one begins when it is asked for."""
        self.end()
        if len(self._durations) >= 2:
            print(READY, file=self._answer, flush=True)
            sys.stdin.readline()
        self._began = time.perf_counter()

    def end(self) -> None:
        """The step is at its end, and no other follows at once."""
        if self._began is not None:
            self._durations.append(time.perf_counter() - self._began)
        self._began = None

    def result(self, items: int) -> Result:
        """Items a second in the median step, and in the fastest."""
        from paddock.devices import select

        return {
            "speed": items / statistics.median(self._durations[2:]),
            "fastest": items / min(self._durations[2:]),
            "first_step": self._durations[0],
            "memory": float(select("cpu").memory_used() or 0),
        }


def timed(step: Callable[[], object], steps: int, items: int) -> Result:
    """Items a second in the median of `steps` steps that take turns."""
    turns = Turns()
    for _ in range(steps + 2):
        turns.begin()
        step()
    turns.end()
    return turns.result(items)


def measure_gemm(steps: int) -> Result:
    """The machine's best matrix product, in FLOP/s, measured as steps are: each turn a second or so of products of
    each size; of a size the median turn, of these the best. `fastest` is the best of all turns, `product` the fastest
    single product."""
    import torch

    from paddock.devices import select

    select("cpu").prepare()
    seconds: dict[int, list[float]] = {size: [] for size in GEMM_SIZES}
    pairs = {size: (torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)) for size in GEMM_SIZES}
    product = 0.0
    turns = Turns()
    for _ in range(steps + 2):
        turns.begin()
        for size, (left, right, out) in pairs.items():
            times = []
            for _ in range(GEMM_WORK // size**3):
                started = time.perf_counter()
                torch.mm(left, right, out=out)
                times.append(time.perf_counter() - started)
            seconds[size].append(statistics.mean(times))
            product = max(product, 2 * size**3 / min(times))
    speeds = [2 * size**3 / statistics.median(found[2:]) for size, found in seconds.items()]
    fastest = [2 * size**3 / min(found[2:]) for size, found in seconds.items()]
    return {"speed": max(speeds), "fastest": max(fastest), "product": product}
