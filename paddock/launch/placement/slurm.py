"""SLURM: the nodes of the job step that this process is in, from the variables that srun sets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from paddock.errors import MachineError

MOST_NODES = 100_000
FIRST_SPECIAL_STEP = 0xFFFF_FFF0
"""Step numbers from here on are no srun: they are the batch script itself, an interactive shell, and the like."""
PORTS = range(20_000, 30_000)
"""Below those that kernels give away by themselves; a job's own follows from its number."""
RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")
NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class SlurmStep:
    """The nodes of a job step, in SLURM's order, and which of them this is."""

    nodes: tuple[str, ...]
    node: int
    port: int
    """The same on all of them, and as a rule not that of another job."""
    source: str
    """The variable that lists the nodes."""


def slurm_step(environment: Mapping[str, str]) -> SlurmStep | None:
    """The step of several nodes that this process is a task of; None where there is none."""
    step = _number(environment, "SLURM_STEP_ID")
    if step is None or step >= FIRST_SPECIAL_STEP:
        return None
    source = next((name for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if environment.get(name)), None)
    if source is None:
        return None
    nodes = expand_nodelist(environment[source])
    counted = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES", "")
    if len(nodes) == 1 and counted in ("", "1"):
        return None
    if counted and counted != str(len(nodes)):
        why = f"{source} is {environment[source]}"
        raise MachineError(f"SLURM counts {counted} nodes and lists {len(nodes)}", why=why, fix=_BY_HAND)
    _check_tasks(environment, len(nodes))
    node = _number(environment, "SLURM_NODEID")
    if node is None or node >= len(nodes):
        said = environment.get("SLURM_NODEID", "")[:40]
        why = f"SLURM_NODEID is {said!r}, and a step of {len(nodes)} nodes numbers them from 0"
        raise MachineError("SLURM does not say which node this is", why=why, fix=_BY_HAND)
    number = (_number(environment, "SLURM_JOB_ID") or 0) * 7 + step  # steps of a job may run beside each other
    return SlurmStep(tuple(nodes), node, PORTS[number % len(PORTS)], source)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if NUMBER.fullmatch(text) else None


def nodes_left_alone(environment: Mapping[str, str]) -> int:
    """How many nodes a job has, of which a command that srun did not start uses one; 0 where all is as it should be."""
    step = _number(environment, "SLURM_STEP_ID")
    if step is not None and step < FIRST_SPECIAL_STEP:
        return 0
    counted = _number(environment, "SLURM_NNODES") or _number(environment, "SLURM_JOB_NUM_NODES") or 0
    return counted if counted > 1 else 0


_BY_HAND = "give --nnodes, --node-rank and --master-addr yourself; or start this with srun"


def _check_tasks(environment: Mapping[str, str], nodes: int) -> None:
    """One task a node: it starts the node's processes itself."""
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    counts = {int(word) for word in re.findall(r"(?:^|,)([0-9]{1,9})", tasks)}
    if counts - {1}:
        raise MachineError(
            f"SLURM starts {max(counts)} tasks on a node",
            why=f"on each of the {nodes} nodes one task starts all processes (tasks per node: {tasks})",
            fix=f"srun --ntasks-per-node 1 paddock … --nproc-per-node {max(counts)}",
        )


def expand_nodelist(nodelist: str) -> list[str]:
    """The nodes that SLURM writes as `node[01-03,7],login`, in this order."""
    nodes: list[str] = []
    for expression in _split(nodelist):
        parts = re.split(r"\[([^\[\]]*)\]", expression)
        if any(sign in text for text in parts[::2] for sign in "[]") or not any(parts):
            raise _unreadable(
                nodelist, f"the brackets of {expression!r} do not match" if expression else "it has a gap"
            )
        choices = [list(_numbers(text, nodelist)) if at % 2 else [text] for at, text in enumerate(parts)]
        count = 1
        for choice in choices:
            count *= len(choice)
        if len(nodes) + count > MOST_NODES:
            raise _unreadable(nodelist, f"these are more than {MOST_NODES:,} nodes")
        nodes += ["".join(words) for words in product(*choices)]
    return nodes


def _split(nodelist: str) -> Iterator[str]:
    """At the commas that are not in brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(nodelist):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            yield nodelist[begin:at]
            begin = at + 1
    yield nodelist[begin:]


def _numbers(ranges: str, nodelist: str) -> Iterator[str]:
    """`01-03,7` as 01 02 03 7: as wide as the first of each range is written."""
    for text in ranges.split(","):
        found = RANGE.fullmatch(text)
        if found is None:
            raise _unreadable(nodelist, f"{text!r} is no number and no range of numbers")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise _unreadable(nodelist, f"the range {text} goes backwards")
        if int(last) - int(first) >= MOST_NODES:
            raise _unreadable(nodelist, f"the range {text} has more than {MOST_NODES:,} nodes")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def _unreadable(nodelist: str, why: str) -> MachineError:
    return MachineError(f"SLURM's list of nodes {nodelist[:200]!r} cannot be read", why=why, fix=_BY_HAND)
