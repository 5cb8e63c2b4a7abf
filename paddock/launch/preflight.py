"""The machines of a job before it has processes: each says what it has, and tries to reach another.

They meet in the store that their processes will use. Machine 0 compares, and every machine raises the same error, which
names those that do not fit. Takes a second, when all are there.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import MachineError
from paddock.files import disk_errors
from paddock.launch.environment import under_torchrun
from paddock.launch.facts import Facts, Finding, compare, flat, listed, own_facts, refusal
from paddock.launch.options import DEFAULT_PORT, LaunchOptions
from paddock.launch.rendezvous.membership import tell_of_refusals
from paddock.launch.rendezvous.nodes import SECONDS_BETWEEN_LOOKS, SECONDS_TO_BE_HEARD, SECONDS_TO_MEET, agreed
from paddock.messages import error_from_json, error_to_json
from paddock.parallel.reach import await_store, connection_error
from paddock.parallel.rendezvous import address_towards
from paddock.process import announced, mortal

if TYPE_CHECKING:
    from torch.distributed import PrefixStore, Store

SECONDS_APART = 2.0
"""Between two clocks, from which on people should know: files and logs of a run then tell different times."""
CLOCK_ROUNDS = 5


@dataclass(frozen=True)
class Meeting:
    """What machine 0 knows when all are there; elsewhere nothing."""

    machines: list[Facts] = field(default_factory=list)
    clocks: dict[int, float] = field(default_factory=dict)
    """Seconds that a machine's clock is ahead of machine 0's."""
    delays: dict[int, float] = field(default_factory=dict)
    """Seconds from machine 0 to a machine and back, through the store."""
    findings: list[Finding] = field(default_factory=list)

    def to_list(self) -> list[dict[str, Any]]:
        """The machines as plain values, for JSON."""
        return [
            {name: value for name, value in asdict(one).items() if name not in ("recipe", "place", "error")}
            | {"clock_ahead": self.clocks.get(one.machine, 0.0), "delay": self.delays.get(one.machine, 0.0)}
            for one in self.machines
        ]


class Inspection:
    """This machine's part, when `agreed` has opened the store."""

    def __init__(self, options: LaunchOptions, facts: Facts, patience: float) -> None:
        self._options, self._facts, self._patience = options, facts, patience
        self.meeting = Meeting()

    @property
    def finds_device(self) -> bool:
        """Whether this machine has the device that the job needs."""
        return self._facts.error is None

    def __call__(self, store: Store) -> None:
        from torch.distributed import PrefixStore

        own = PrefixStore("paddock/preflight", store)
        if own.check(["verdict"]):  # the others have met before, and this machine comes again
            return
        with _door(self._options) as door:
            mine = replace(self._facts, place=door)
            if mine.machine:
                _join(own, mine)
            else:
                self.meeting = _lead(own, mine, self._options.nnodes, self._patience)
        for note in self.notes():
            print(f"note: {note}", file=sys.stderr)

    def notes(self) -> list[str]:
        """What people should know, though the job can begin."""
        return [f"{self.meeting.machines[one.machine]}: {one.what}" for one in self.meeting.findings]


def inspection(
    options: LaunchOptions, device: str, recipe: Mapping[str, Any], patience: float = SECONDS_TO_MEET
) -> Inspection | None:
    """How the machines of a job are to be compared; None where there is one machine, or nobody wants it. `recipe` is
    what this one was told to do; whoever is not there within `patience` seconds is named."""
    if options.nnodes == 1 or options.elastic or options.preflight == "off" or under_torchrun():
        return None  # machines of an elastic job come and go: there is no moment at which all are there
    facts = own_facts(options.node_rank, options.nproc_per_node, device, recipe)
    if options.node_rank:
        assert options.master_addr is not None
        await_store(options.master_addr, options.master_port or DEFAULT_PORT, patience)
    return Inspection(options, facts, patience)


@contextmanager
def compared(options: LaunchOptions, device: str, recipe: Mapping[str, Any]) -> Iterator[None]:
    """Inside, all machines of the job are there and fit together, where that is asked for; an error on each, if not."""
    found = inspection(options, device, recipe)
    with agreed(options, str, lambda _: None, found, flat(recipe)) if found is not None else nullcontext():
        yield


def _lead(store: PrefixStore, mine: Facts, nnodes: int, patience: float) -> Meeting:
    """Machine 0: hear what all have, compare, let them try each other, and tell."""
    store.set("facts/0", mine.to_json())
    missing = _wait_for(store, {node: f"facts/{node}" for node in range(nnodes)}, patience, _come)
    here = [node for node in range(nnodes) if node not in missing]
    machines = [Facts.from_json(store.get(f"facts/{node}").decode()) for node in here]
    findings = [_absent(node, patience) for node in missing] + compare(machines)
    _tell(store, "ready", refusal(machines, findings), here, [one.place for one in machines])
    store.set("link/0", _try(mine, [one.place for one in machines]))
    silent = _wait_for(store, {node: f"link/{node}" for node in here}, SECONDS_TO_BE_HEARD, _try_links)
    links = {node: store.get(f"link/{node}").decode() for node in here if node not in silent}
    findings += [Finding(node, "it was there, and is silent", "look what it said") for node in silent]
    findings += [_unreached(machines[node], machines[(node + 1) % nnodes], why) for node, why in links.items() if why]
    clocks, delays = _read_clocks(store, [node for node in here[1:] if node not in silent])
    findings += [_askew(node, ahead) for node, ahead in clocks.items() if abs(ahead) > SECONDS_APART]
    _tell(store, "verdict", refusal(machines, findings), here)
    return Meeting(machines, clocks, delays, findings)


def _join(store: Store, mine: Facts) -> None:
    """Any other machine."""
    me = mine.machine
    store.set(f"facts/{me}", mine.to_json())
    places = _hear(store, "ready", me, "waiting for all machines to come")
    store.set(f"link/{me}", _try(mine, places))
    with mortal():
        for number in range(CLOCK_ROUNDS):
            store.get(f"clock/{me}/{number}/asked")  # waits in C++, which takes no time to hear it
            store.set(f"clock/{me}/{number}/told", repr(time.time()))
    _hear(store, "verdict", me, "waiting for what machine 0 makes of the others")


def _come(nodes: Sequence[int]) -> str:
    words = listed([f"machine {node}" for node in nodes])
    return f"waiting for {words}: start the same command there, with --node-rank {nodes[0]}"


def _try_links(nodes: Sequence[int]) -> str:
    return f"waiting for {listed([f'machine {node}' for node in nodes])} to try to reach another"


def _absent(node: int, patience: float) -> Finding:
    return Finding(
        node,
        f"it did not come within {patience:g} s",
        f"start the same command there, with --node-rank {node}; what it says there is the reason",
    )


def _wait_for(
    store: PrefixStore, keys: Mapping[int, str], patience: float, words: Callable[[Sequence[int]], str]
) -> list[int]:
    """Until all keys are there, or for so long; gives those that are not."""
    deadline = time.monotonic() + patience
    missing, refusals = list(keys), 0
    while missing and time.monotonic() < deadline:
        with announced(words(missing)):
            count = len(missing)
            while len(missing) == count and time.monotonic() < deadline:
                missing = [node for node in missing if not store.check([keys[node]])]
                refusals = tell_of_refusals(store.underlying_store, refusals)
                if len(missing) == count:
                    time.sleep(SECONDS_BETWEEN_LOOKS)
    return missing


def _tell(store: Store, key: str, error: MachineError | None, here: Sequence[int], what: object = None) -> None:
    """Machine 0's word to all; an error is its own too, when the others have heard it: it takes the store along."""
    store.set(key, json.dumps([None if error is None else error_to_json(error), what]))
    if error is None:
        return
    deadline = time.monotonic() + SECONDS_TO_BE_HEARD
    heard = [f"heard/{node}" for node in here if node]
    while heard and not store.check(heard) and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    raise error


def _hear(store: Store, key: str, me: int, words: str) -> Any:
    with announced(words):
        while not store.check([key]):
            time.sleep(SECONDS_BETWEEN_LOOKS)
    error, what = json.loads(store.get(key).decode())
    if error is not None:
        store.set(f"heard/{me}", "")
        raise error_from_json(error)
    return what


@contextmanager
def _door(options: LaunchOptions) -> Iterator[tuple[str, int] | None]:
    """Somewhere to be reached at, at the address that the processes of this machine will use: the kernel answers."""
    address = address_towards(options.master_addr or "")
    if address is None:
        yield None
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=8) as door:
        yield address, door.getsockname()[1]


def _try(mine: Facts, places: Sequence[Sequence[Any] | None]) -> str:
    """Why the next machine cannot be reached from here; empty, if it can. Each tries one, so that many machines take no
    longer than two."""
    place = places[(mine.machine + 1) % len(places)]
    return "" if place is None else connection_error(place[0], place[1])


def _unreached(one: Facts, other: Facts, why: str) -> Finding:
    assert other.place is not None
    return Finding(
        one.machine,
        f"it cannot reach {other} at {other.place[0]}, port {other.place[1]}: {why}",
        "processes talk over ports that the kernel picks (net.ipv4.ip_local_port_range): let the firewalls between "
        "the machines pass them; GLOO_SOCKET_IFNAME names another network",
    )


def _read_clocks(store: Store, nodes: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    """How far each clock is ahead of ours, as NTP asks: what it says against the middle of question and answer, in the
    quickest of a few rounds."""
    ahead, delays = {}, {}
    for node in nodes:
        rounds = []
        for number in range(CLOCK_ROUNDS):
            asked = time.time()
            store.set(f"clock/{node}/{number}/asked", "")
            with mortal():
                store.wait([f"clock/{node}/{number}/told"], timedelta(seconds=SECONDS_TO_BE_HEARD))
            answered = time.time()
            told = float(store.get(f"clock/{node}/{number}/told"))
            rounds.append((answered - asked, told - (asked + answered) / 2))
        delays[node], ahead[node] = min(rounds)
    return ahead, delays


def _askew(node: int, ahead: float) -> Finding:
    direction = "ahead of" if ahead > 0 else "behind"
    what = f"its clock is {abs(ahead):.1f} s {direction} machine 0's: times in logs will not fit (timedatectl, chrony)"
    return Finding(node, what, prevents=False)


def check_same_data(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """An error, if this machine's training data is not what machine 0 has: by what decides which sample a number stands
    for, which every run has at hand."""
    changed = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
    if changed:
        raise MachineError(
            f"{socket.gethostname()} has other data than machine 0",
            why="; ".join(f"{name}: {mine.get(name)}, and {theirs.get(name)} on machine 0" for name in changed),
            fix="give every machine the same files, from shared storage or as copies",
        )


def check_writable(run_dir: str) -> None:
    """An error, if this machine could not write its part of a run: checkpoints, and what failing processes leave."""
    there = Path(run_dir).absolute()
    place = next(folder for folder in (there, *there.parents) if folder.is_dir())
    with disk_errors(there), tempfile.TemporaryFile(dir=place):
        pass
