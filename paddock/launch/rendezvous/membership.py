"""Who belongs to a job: a launcher says what it was started for, and takes its place, once.

Whoever comes to the wrong place (two jobs at one port, a --node-rank that is taken, another number of machines) is told
so, and the job that he came upon goes on waiting for its own. Where machines may be replaced, nobody keeps a place, and
what they were asked to do tells the right ones from strangers.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from paddock.documents import Document, parse_document
from paddock.errors import MachineError
from paddock.launch.facts import MOST_NAMED
from paddock.launch.options import LaunchOptions

if TYPE_CHECKING:
    from torch.distributed import Store, TCPStore

JOB, REFUSALS = "paddock/job", "paddock/refusals"
SECONDS_TO_SAY = 60
SECONDS_BETWEEN_LOOKS = 0.1
SAME_COMMAND = (
    "start the same command on every machine, with its own --node-rank where they are numbered; another job that meets "
    "on that machine needs another --master-port"
)


class Launcher(Document):
    """A launcher, for others to name it."""

    host: str
    pid: int
    id: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host}"


_ID = uuid4().hex
"""Tells apart processes that have one number, in containers of one host; the same in every thread."""


def _me() -> Launcher:
    return Launcher(host=socket.gethostname(), pid=os.getpid(), id=_ID)


def join_job(
    store: TCPStore, options: LaunchOptions, asked: Mapping[str, str] | None = None, *, made_store: bool = False
) -> None:
    """Take this launcher's place in the job that meets at a store, or raise: it is another job, or the place is
    taken. Doing so again changes nothing. `asked` is what it is to do, by names; of an elastic job, the one that
    `made_store` says what the job is."""
    mine = _described(options, os.environ, asked or {})
    leads = made_store or (options.node_rank == 0 and not options.elastic)
    if why := differences(_job_at(store, mine if leads else None), mine):
        who = "this machine" if options.elastic else f"machine {options.node_rank}"
        raise _refused(store, f"{who} does not fit the job that", why)
    if options.replaces_machines:  # another one may come in place of one that is lost: the council knows who is
        return
    if (holder := _take_place(store, f"paddock/place/{options.node_rank}")) != _me():
        why = f"--node-rank {options.node_rank} is {holder}, and this is {_me()}"
        raise _refused(store, f"there is a machine {options.node_rank} already in the job that", why)


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """In words, what both have under the same names and not alike; empty, if there is nothing."""
    names = [name for name in mine if theirs.get(name, mine[name]) != mine[name]]
    words = [f"{name} is {theirs[name]} there, and {mine[name]} here" for name in names[:MOST_NAMED]]
    return "; ".join([*words, *([f"and {len(names) - MOST_NAMED} more"] if names[MOST_NAMED:] else [])])


def _take_place(store: TCPStore, key: str) -> Launcher:
    """Who holds a place, after this launcher has asked for it. One that has died on this machine holds none."""
    token = _me().model_dump_json()
    said = store.compare_set(key, "", token)
    holder = parse_document(said, Launcher, "who takes part in the job")
    if holder.host == _me().host and holder != _me() and not is_alive(holder.pid):
        holder = parse_document(store.compare_set(key, said.decode(), token), Launcher, "who takes part in the job")
    return holder


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _job_at(store: TCPStore, mine: Mapping[str, str] | None) -> dict[str, Any]:
    """What was said of the job first of all, by its machine 0; this one says `mine`, if it leads and nobody has."""
    if mine is not None:
        said = store.compare_set(JOB, "", json.dumps(mine))
        return parse_document(said, dict[str, Any], "what machine 0 says of its job")
    deadline = time.monotonic() + SECONDS_TO_SAY
    while not store.check([JOB]):
        if time.monotonic() > deadline:
            raise MachineError(
                f"whoever listens at {store.host}, port {store.port}, is no job of Paddock",
                why=f"machine 0 of a job would have said so within {SECONDS_TO_SAY} s",
                fix="check the address of machine 0, or choose another --master-port for this job",
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return parse_document(store.get(JOB), dict[str, Any], "what machine 0 says of its job")


def tell_of_refusals(store: Store, told: int) -> int:
    """On machine 0: say who came and was sent away, since the first `told` of them; returns how many there are."""
    number = store.add(REFUSALS, 0)
    for refusal in range(told, number):
        words = store.get(f"{REFUSALS}/{refusal}").decode()
        print(f"note: {words}", file=sys.stderr, flush=True)
    return number


def _described(options: LaunchOptions, environment: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """What is the same on all machines of a job. Where all have to be there before it begins, what else differs is left
    to the preflight, which tells all of them."""
    said = {"--nnodes": options.nodes, "--max-restarts": str(options.max_restarts)}
    if options.replaces_machines:
        said |= {"--node-timeout": f"{options.node_timeout:g}", "--nproc-per-node": str(options.nproc_per_node)}
        said |= asked
    if options.elastic:
        return said | {"--rdzv-id": options.rdzv_id or ""}  # its machines may come from several jobs of a scheduler
    program = Path(sys.argv[0])
    is_ours = program.name == "paddock" or program.parts[-2:] == ("paddock", "__main__.py")
    # Another program's words may differ from machine to machine, and a machine that comes back may say `resume`.
    if is_ours and not options.replaces_machines:
        said["command"] = " ".join(["paddock", *sys.argv[1:2], *(Path(word).name for word in sys.argv[2:3])])
    if "SLURM_JOB_ID" in environment:
        said["SLURM_JOB_ID"] = environment["SLURM_JOB_ID"]
    return said


def _refused(store: TCPStore, what: str, why: str) -> MachineError:
    number = store.add(REFUSALS, 1) - 1
    store.set(f"{REFUSALS}/{number}", f"{_me()} was sent away: {what} meets here ({why})")
    return MachineError(f"{what} meets at {store.host}, port {store.port}", why=why, fix=SAME_COMMAND)
