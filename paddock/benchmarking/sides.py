"""The sides of a comparison, each in a process of its own, and turns between them.

A machine is never equally fast twice. So sides take turns, an iteration at a time, and what is compared is the
iterations of the same turn: whatever disturbed one disturbed the others too. A side is this module, run: it is told on
its standard input what to do, as JSON, and answers on its standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, Any

from paddock.errors import MachineError, UserError
from paddock.messages import error_from_json, error_to_json

PRODUCT = "best product"
"""The side that multiplies matrices and does nothing else."""


@dataclass(frozen=True)
class Side:
    """What a process does in its turns."""

    recipe: Mapping[str, Any]
    trains: bool
    peer: str | None = None
    """None is ours, or, with the setting PRODUCT, the machine's best matrix product."""
    setting: str = "default"


@dataclass
class Measured:
    """What came of a side."""

    seconds: list[float]
    """Of every turn."""
    memory: int | None = None


def take_turns(
    sides: Mapping[str, Side], warmup: int, turns: int, threads: int | None, on_turn: Callable[[int, int], None]
) -> dict[str, Measured]:
    """Seconds of every side in every turn, with so many threads. Sides begin one after the other, till each is warm."""
    with ExitStack() as stack:
        processes = {}
        for number, (name, side) in enumerate(sides.items()):
            processes[name] = stack.enter_context(_process(name, side, threads))
            for _ in range(warmup):
                processes[name].ask("go")
            on_turn(number + 1, len(sides) + turns)
        found = {name: Measured([]) for name in sides}
        for turn in range(turns):
            for name, process in processes.items():
                found[name].seconds.append(process.ask("go")["seconds"])
            on_turn(len(sides) + turn + 1, len(sides) + turns)
        for name, process in processes.items():
            found[name].memory = process.ask("memory")["memory"]
        return found


@dataclass(frozen=True)
class _Process:
    name: str
    words: IO[str]
    answers: IO[str]

    def ask(self, word: str) -> dict[str, Any]:
        """One word, one answer."""
        try:
            self.words.write(word + "\n")
            self.words.flush()
        except BrokenPipeError:
            pass  # what it said last explains it
        line = self.answers.readline()
        if not line:
            raise MachineError(f"{self.name} ended without an answer", why="its own words, if any, are above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer


@contextmanager
def _process(name: str, side: Side, threads: int | None) -> Iterator[_Process]:
    command = [sys.executable, "-m", "paddock.benchmarking.sides"]
    variables = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            found = _Process(name, process.stdin, process.stdout)
            found.ask(json.dumps(asdict(side)))
            yield found
        finally:
            process.kill()


# In a side's own process


def main() -> None:
    """Answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    told = Side(**json.loads(sys.stdin.readline()))
    try:
        with _iteration(told) as iterate:
            _say(answers, {"ready": True})
            for number, word in enumerate(sys.stdin):
                asks_memory = word.strip() == "memory"
                _say(answers, _memory() if asks_memory else {"seconds": _seconds(partial(iterate, number))})
    except UserError as error:
        _say(answers, {"error": error_to_json(error)})


def _say(answers: IO[str], answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _memory() -> dict[str, Any]:
    from paddock.devices import select

    return {"memory": select("cpu").memory_used()}


@contextmanager
def _iteration(side: Side) -> Iterator[Callable[[int], object]]:
    """What a turn of this side does."""
    from paddock.benchmarking.computation import computation
    from paddock.benchmarking.peers import peer_step
    from paddock.config.recipe import recipe_from_dict
    from paddock.config.rules import check_layout
    from paddock.devices import select
    from paddock.parallel.world import join_world
    from paddock.process import claim
    from paddock.training.run import chosen_products

    claim()
    recipe = recipe_from_dict(dict(side.recipe))
    adapter = select(recipe.train.device)
    if side.peer is not None:
        step = peer_step(recipe, side.peer, side.setting, side.trains, adapter)
        yield lambda number: step()
    elif side.setting == PRODUCT:
        adapter.prepare()
        yield best_product(recipe.precision.compute)
    else:
        with join_world(adapter) as world, chosen_products(recipe, world):
            yield computation(recipe, check_layout(recipe, 1), world, side.trains)


PRODUCT_SIZE, PRODUCTS = 2048, 4


def best_product(compute: str) -> Callable[[int], object]:
    """Products of large matrices, as the faster of the libraries here makes them."""
    import torch

    from paddock.devices.products import Way, multiply_by

    left, right = (torch.rand(PRODUCT_SIZE, PRODUCT_SIZE).to(getattr(torch, compute)) for _ in range(2))
    ways: tuple[Way, ...] = ("mkl", "onednn") if compute == "float32" else ("mkl",)
    trials = {way: partial(multiply_by, way, left, right) for way in ways}
    best = min(trials.values(), key=lambda product: min(_seconds(product) for _ in range(5)))

    def iterate(number: int) -> None:
        for _ in range(PRODUCTS):
            best()

    return iterate


def product_flops() -> float:
    """Of one turn of the best product."""
    return 2.0 * PRODUCT_SIZE**3 * PRODUCTS


if __name__ == "__main__":
    main()
