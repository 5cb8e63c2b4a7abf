"""A slow cable between two network interfaces: whatever is sent on one end comes out of the other a while later.

The kernel's own way (tc's netem) is a module that few machines have; this needs a TUN device alone.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # <linux/if_tun.h>
LONGEST_FRAME = 2**16

_numbers = itertools.count()


class Wire:
    """Two interfaces, named by `ends`, and a thread that carries frames from each to the other in `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.ends = [f"wire{os.getpid() % 10**7}{next(_numbers) % 100}{side}" for side in "ab"]

    def __enter__(self) -> Wire:
        self._taps = [_open_tap(name) for name in self.ends]
        self._stop_reader, self._stop = os.pipe()
        self._carrier = threading.Thread(target=self._carry, daemon=True)
        self._carrier.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._stop)
        self._carrier.join()
        for descriptor in (*self._taps, self._stop_reader):
            os.close(descriptor)

    def _carry(self) -> None:
        other = dict(zip(self._taps, reversed(self._taps), strict=True))
        under_way: deque[tuple[float, int, bytes]] = deque()  # in order: all take equally long
        while True:
            patience = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready, _, _ = select.select([*self._taps, self._stop_reader], [], [], patience)
            if self._stop_reader in ready:
                return
            for tap in ready:
                try:
                    under_way.append((time.monotonic() + self.delay, other[tap], os.read(tap, LONGEST_FRAME)))
                except OSError:  # the interface is down
                    time.sleep(self.delay)
            while under_way and under_way[0][0] <= time.monotonic():
                _, tap, frame = under_way.popleft()
                with suppress(OSError):  # nobody is plugged in there: lost, as on any cable
                    os.write(tap, frame)


def _open_tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
