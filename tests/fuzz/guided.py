"""Inputs led by coverage, where atheris is installed: those that reach new lines of ours are kept and damaged further.

Which inputs there are then depends on the machine's speed too, so a finding is kept as files, not by its number.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from engine import Limits, Portion, Reader, Slot, Tally, Workshop, alone, decode, encode, packed, seeds_of
from mutation import mutator_of

LONGEST_INPUT = 1 << 20


def is_installed() -> bool:
    """Whether this Python can be led."""
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def instrument(load: Callable[[], Any]) -> Any:
    """What `load` imports of ours reports which lines are reached."""
    import atheris

    with atheris.instrument_imports(include=["paddock"], enable_loader_override=False):
        return load()


def work(reader: Reader, portion: Portion, seed: int, slot: Slot, folder: Path) -> None:
    """What `engine.work` does, with libFuzzer in charge of the inputs."""
    import atheris

    corpus = folder / "inputs"
    corpus.mkdir()
    for number, files in enumerate(seeds_of(reader)):
        (corpus / str(number)).write_bytes(encode(files))
    tally, limits, seen = Tally(), Limits(), set()
    current = os.open(folder / "current", os.O_RDWR | os.O_CREAT)
    with alone(folder), open(folder / "findings.jsonl", "w", encoding="utf-8") as findings:
        workshop = Workshop(reader, folder)

        def test(data: bytes) -> None:
            files = decode(data)
            if files is None:
                return
            os.ftruncate(current, 0)
            os.pwrite(current, data, 0)
            began = time.process_time()
            slot.write(tally.inputs, began, tally)
            outcome = limits.checked(workshop.judge(files, None))
            tally.slowest, tally.memory = (
                max(tally.slowest, time.process_time() - began),
                max(tally.memory, limits.growth),
            )
            tally.inputs += 1
            tally.refused += outcome.kind == "refused"
            tally.accepted += outcome.kind == "accepted"
            if outcome.kind == "finding" and outcome.what not in seen:
                seen.add(outcome.what)
                line = {"number": tally.inputs, "what": outcome.what, "trace": outcome.trace, "files": packed(files)}
                findings.write(json.dumps(line) + "\n")
                findings.flush()
            slot.write(tally.inputs, 0.0, tally)

        def mutate(data: bytes, longest: int, number: int) -> bytes:
            files, rng = decode(data), Random(number)
            if not files:
                return data
            name = rng.choice(list(files))
            if rng.random() < 0.3:
                hit = atheris.Mutate(files[name], LONGEST_INPUT)
            else:
                hit = mutator_of(name, reader.mutators)(rng, files[name])
            return encode({**files, name: hit})[:longest]

        assert portion.seconds is not None, "it is led for a time, not for a number of inputs"
        flags = [f"-max_total_time={max(1, int(portion.seconds))}", f"-max_len={LONGEST_INPUT}", f"-seed={seed + 1}"]
        flags += ["-timeout=0", "-rss_limit_mb=0", "-handle_segv=0", "-handle_abrt=0", "-handle_bus=0", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *flags, str(corpus)], test, custom_mutator=mutate)
        atheris.Fuzz()
