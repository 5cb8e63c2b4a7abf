"""The process on machine 0 that keeps a job's store, and in which its council sits.

The store is not the launcher's own: when that one dies, the others still have a place to meet, and to hear what is to
be done; when it is started again, it finds this process at its port, and joins. It goes when nobody is left who asks.
`python -m paddock.launch.rendezvous.keeper` is handed the socket at which it is to listen.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.launch.rendezvous.council import SECONDS_TO_MEET, Council, Policy, Word
from paddock.process import STOP_SIGNALS

if TYPE_CHECKING:
    from torch.distributed import TCPStore

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_FOR_THE_OTHERS = 10
POLICY, NODES, ORDERS, NODE = "paddock/policy", "paddock/nodes", "paddock/orders", "paddock/node/"
"""Keys of the store: what the user wants, how many machines have come, orders, and each machine's word."""


class Keeper:
    """The launcher's side."""

    def __init__(self, listening: socket.socket, options: list[str]) -> None:
        command = [sys.executable, *options, "-m", __name__, str(listening.fileno())]
        # It may outlive the launcher, whose streams somebody reads to their end.
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command,
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,
        )

    def leave(self, *, waits: bool) -> None:
        """This machine needs it no more. One that `waits` gives the others time to hear how the job ended: where the
        launcher is all that a container runs, they would lose the store with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS_FOR_THE_OTHERS if waits else 0)
        except subprocess.TimeoutExpired:
            _left_behind.append(self._process)


_left_behind: list[subprocess.Popen[bytes]] = []
"""Those that go on for other machines."""


def is_orphaned(port: int) -> bool:
    """Whether a job of this user, whose launcher has died here, still meets at a port of this machine."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(_call_sign(port))
        except OSError:
            return False
        return True


def _call_sign(port: int) -> str:
    """A name that goes with the process that has it (on Linux; elsewhere nobody is found)."""
    return f"\0paddock/{os.getuid()}/{port}"


def main(descriptor: int) -> None:
    from torch.distributed import TCPStore

    # A scheduler sends its signals to every process of a job: this one goes last, and by itself.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as listening:
        address, port = listening.getsockname()[:2]
        listening.detach()
    store = TCPStore(
        address, port, is_master=True, timeout=timedelta(seconds=SECONDS_TO_MEET), master_listen_fd=descriptor
    )
    _Sitting(store, port).last()


class _Sitting:
    """The council at work."""

    def __init__(self, store: TCPStore, port: int) -> None:
        self._store, self._port = store, port
        self._council: Council | None = None
        self._words: dict[str, Word] = {}
        self._said = ""
        self._call: socket.socket | None = None

    def last(self) -> None:
        """Until nobody needs it any more."""
        while not self._is_over():
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if self._call is None and select.select([0], [], [], 0)[0]:
                self._be_orphaned()
            if self._council is None and self._store.check([POLICY]):
                self._council = Council(Policy.from_json(self._store.get(POLICY).decode()))
            if self._council is not None:
                self._look(self._council)

    def _is_over(self) -> bool:
        if self._call is None:
            return False
        return self._council is None or not self._words or self._council.all_have_left

    def _be_orphaned(self) -> None:
        """The launcher has gone: as it should, or not, in which case its machine has lost its processes."""
        self._call = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            self._call.bind(_call_sign(self._port))
            self._call.listen()
        if self._council is None:
            return
        self._look(self._council)  # at its last word, so that it is not taken for a sign of life later
        for key, word in self._words.items():
            if word.keeps and word.phase != "left":
                self._council.lose(key)

    def _look(self, council: Council) -> None:
        for number in range(1, self._store.add(NODES, 0) + 1):
            key = f"{NODE}{number}"
            if str(number) in self._words or self._store.check([key]):
                self._words[str(number)] = Word.from_json(self._store.get(key).decode())
        orders = council.look(time.monotonic(), self._words).to_json()
        if orders != self._said:
            self._store.set(ORDERS, orders)
            self._said = orders


if __name__ == "__main__":
    main(int(sys.argv[1]))
