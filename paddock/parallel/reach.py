"""Reaching the store of a job, on machine 0: whether somebody listens at its address, and whether that is a store,
which answers.

torch's client waits in C++, for ever where somebody else takes its connection and says nothing. So the words with which
it begins are said here first, and have to be answered within a time: by whoever comes to a job, and comes again.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from paddock.errors import MachineError
from paddock.parallel.rendezvous import TIMEOUT, Place, await_name, connect_store, place_in_job, serve_store
from paddock.process import announced, mortal

if TYPE_CHECKING:
    from torch.distributed import TCPStore

SECONDS_TO_REACH = 5.0
"""A machine on the same network answers in a thousandth of that."""
SECONDS_TO_ANSWER = 120.0
"""For a listener that is machine 0 and has just begun: it imports torch before it answers."""
SECONDS_BETWEEN_LOOKS = 0.1
NONCE = b"\r\n\r\n"
"""A store sends it back. To what reads lines it is the end of one, or of a request, and it will answer as well."""
VALIDATE, MAGIC, PING = 0, 0x3C85F7CE, 13  # <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
GREETING = struct.pack("=BIB", VALIDATE, MAGIC, PING) + NONCE


@dataclass(frozen=True)
class Answer:
    """What came of a greeting."""

    kind: Literal["store", "nobody", "closed", "silence", "strange"]
    why: str = ""
    """It is no store, in words."""


def agent_store() -> TCPStore | None:
    """The store of the agent that started this process; None where there is no agent, or it keeps its own."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    place = place_in_job()
    if not place.address:
        raise MachineError(
            "TORCHELASTIC_USE_AGENT_STORE is set, but not all that torchrun sets with it",
            why="it says that whoever started this process keeps a store for it, and not where",
            fix="unset TORCHELASTIC_USE_AGENT_STORE; or start the processes with torchrun",
        )
    return reach(place)


def store_of_job(place: Place) -> TCPStore:
    """The store in which the processes meet: the agent's, or one that rank 0 serves."""
    if (store := agent_store()) is not None:
        return store
    return serve_store(place.address, place.port) if place.rank == 0 else reach(place)


def reach(place: Place) -> TCPStore:
    """A client of the store of a process's job. A stop signal ends the process while it waits."""
    with mortal():
        return reach_store(place.address, place.port)


def reach_store(address: str, port: int, timeout: timedelta = TIMEOUT) -> TCPStore:
    """A client of the store at an address, which may still have to come; as soon as it is known to be one."""
    await_name(address)
    await_store(address, port, timeout.total_seconds())
    return connect_store(address, port, timeout)


def await_store(address: str, port: int, patience: float) -> None:
    """Until machine 0's store answers. An error, if nobody listens there for `patience` seconds, or if somebody does
    who gives no answer, or another one."""
    where = f"{address}, port {port}"
    deadline = time.monotonic() + patience
    while True:
        _await_listener(address, port, deadline)
        answer = _await_answer(address, port, min(max(patience, SECONDS_TO_REACH), SECONDS_TO_ANSWER))
        if answer.kind == "store":
            return
        if answer.kind == "nobody":  # who listened has gone: machine 0 may still come
            if time.monotonic() > deadline:
                raise _unreached(where, answer.why)
        elif _own_store_answers():
            raise MachineError(
                f"what listens at {where} is no job of Paddock",
                why=answer.why,
                fix="check --master-addr and --master-port, which are the same on all machines; if another program has "
                "that port, choose another one for this job; if machine 0 has only begun, start this one again",
            )
        else:
            return


def _await_listener(address: str, port: int, deadline: float) -> None:
    why = connection_error(address, port, deadline - time.monotonic())
    with announced(f"waiting for machine 0 at {address}, port {port}: {why}"):
        while why:
            if time.monotonic() > deadline:
                raise _unreached(f"{address}, port {port}", why)
            time.sleep(SECONDS_BETWEEN_LOOKS)
            why = connection_error(address, port, deadline - time.monotonic())


def _await_answer(address: str, port: int, patience: float) -> Answer:
    """What comes of greetings; whoever only closes the connection, as a proxy of a machine that is being started, is
    greeted again for so long."""
    deadline = time.monotonic() + patience
    with announced(f"waiting for an answer at {address}, port {port}: machine 0 gives one as soon as it has begun"):
        while True:
            answer = greet(address, port, deadline - time.monotonic())
            if answer.kind != "closed" or time.monotonic() > deadline:
                return answer
            time.sleep(SECONDS_BETWEEN_LOOKS)


def _unreached(where: str, why: str) -> MachineError:
    return MachineError(
        f"machine 0 cannot be reached at {where}",
        why=why,
        fix="start the same command there, with --node-rank 0 where machines are numbered; check --master-addr and "
        "--master-port, which are the same on all machines, and that no firewall is between them",
    )


def _own_store_answers() -> bool:
    """Whether a store of this torch answers a greeting: if not, nobody is to be judged by it."""
    store = serve_store("127.0.0.1", 0)
    return greet("127.0.0.1", store.port, SECONDS_TO_REACH).kind == "store"


def greet(address: str, port: int, patience: float) -> Answer:
    """Say what a client of a store says first, and hear for so many seconds what comes back."""
    try:
        with socket.create_connection((address, port), timeout=SECONDS_TO_REACH) as connection:
            return _converse(connection, patience)
    except (OSError, UnicodeError) as error:
        return Answer("nobody", _in_words(error, SECONDS_TO_REACH))


def _converse(connection: socket.socket, patience: float) -> Answer:
    deadline = time.monotonic() + patience
    said = b""
    try:
        connection.sendall(GREETING)
        while len(said) < len(NONCE):
            connection.settimeout(max(deadline - time.monotonic(), SECONDS_BETWEEN_LOOKS))
            if not (part := connection.recv(64)):
                break
            said += part
    except TimeoutError:
        if not said:
            return Answer("silence", f"it takes a connection, and has said nothing for {patience:.0f} s")
    except OSError:  # reset: whatever it has said is all
        pass
    if said == NONCE:
        return Answer("store")
    if said:
        return Answer("strange", f"it says {said.decode('latin-1').partition(chr(10))[0]!r}")
    return Answer("closed", "it takes a connection, and closes it without a word")


def connection_error(address: str, port: int, patience: float = math.inf) -> str:
    """Why nobody can be reached there, in so many seconds; empty, if somebody can."""
    seconds = max(SECONDS_BETWEEN_LOOKS, min(patience, SECONDS_TO_REACH))
    try:
        with socket.create_connection((address, port), timeout=seconds):
            return ""
    except (OSError, UnicodeError) as error:
        return _in_words(error, seconds)


def _in_words(error: OSError | UnicodeError, seconds: float) -> str:
    if isinstance(error, UnicodeError):
        return "that is no name of a machine"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({(error.strerror or str(error)).lower()})"
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.2g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the machine answers, and nothing listens at that port"
    return (error.strerror or str(error)).lower()
