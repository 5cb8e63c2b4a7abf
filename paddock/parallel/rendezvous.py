"""Where the processes of a job meet: what the environment says of them, the store, and the network interface.

Nothing here listens on an interface that nobody named. torch's store, left alone, listens on all of them, and asks
nobody who they are; so whoever serves one hands it a socket that is bound to the address where the others look for it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from paddock.errors import MachineError
from paddock.process import announced, machine_lacks, mortal

if TYPE_CHECKING:
    from torch.distributed import TCPStore

TIMEOUT = timedelta(minutes=30)  # as long as torch waits for a process group
PORTS = range(1, 2**16)
SECONDS_FOR_A_NAME = 60
SECONDS_BETWEEN_LOOKS = 0.5
STORE_DESCRIPTORS = 16
"""Of files: what a store opens for itself, its first client on both sides, and some to spare."""
SIOCGIFADDR = 0x8915  # <linux/sockios.h>: the IPv4 address of an interface

_servers: WeakValueDictionary[int, TCPStore] = WeakValueDictionary()
"""The stores that this process serves, by their ports."""


@dataclass(frozen=True)
class Place:
    """Where this process stands among those of its job, in the words of whoever started it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"


def place_in_job() -> Place:
    """This process's place, from the variables that torchrun (and our own launcher) sets: all of them, or none."""
    if not any(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return Place()
    size = _number("WORLD_SIZE", 1, range(1, 2**31), "a job has at least one process")
    here = _number("LOCAL_WORLD_SIZE", size, range(1, size + 1), f"this machine has 1 to {size} of {size} processes")
    rank = _number("RANK", 0, range(size), f"the {size} processes of WORLD_SIZE are numbered from 0 to {size - 1}")
    local = _number("LOCAL_RANK", 0, range(here), f"the processes of this machine are numbered from 0 to {here - 1}")
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in needed if not os.environ.get(name)]
    if size == 1 and missing:  # alone, whoever says so
        return Place()
    if missing:
        raise MachineError(
            f"WORLD_SIZE={size} is set, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not",
            why="a process of a job needs all of them to find the others",
            fix="unset WORLD_SIZE to work alone; else start the processes with --nproc-per-node, or with torchrun",
        )
    port = _number("MASTER_PORT", 0, PORTS, f"a port is {PORTS[0]} to {PORTS[-1]}")
    return Place(rank, size, local, here, os.environ["MASTER_ADDR"], port)


def _number(name: str, default: int, allowed: range, why: str) -> int:
    text = os.environ.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) in allowed:
        return int(text)
    fix = f"unset {name}, and start the processes with --nproc-per-node; or start them with torchrun, which sets it"
    raise MachineError(f"the environment variable {name} is {text[:40]!r}", why=why, fix=fix)


def connect_store(address: str, port: int, timeout: timedelta = TIMEOUT) -> TCPStore:
    """A client of the store at an address, which is known to be one (else: `reach`). Waits for it, in C++, where a stop
    signal just ends the process."""
    from torch.distributed import DistError, TCPStore

    where = f"{address}, port {port}"
    await_name(address)
    _check_descriptors()
    try:
        with mortal(), announced(f"waiting for whoever serves the job's store at {where}"):
            return TCPStore(address, port, is_master=False, timeout=timeout)
    except DistError as error:
        raise could_not_meet(where, error) from error


def await_name(address: str) -> None:
    """Until a name is known: of a machine that is being started it is so a moment later. torch's store would look for
    it as long as for the machine."""
    deadline = time.monotonic() + SECONDS_FOR_A_NAME
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except (OSError, UnicodeError) as error:
            if time.monotonic() >= deadline:
                raise MachineError(
                    f"no host is known as {address}",
                    why=str(error),
                    fix="check the address of machine 0: --master-addr, or the first of --node-ips",
                ) from error
        time.sleep(SECONDS_BETWEEN_LOOKS)


def could_not_meet(where: str, error: Exception) -> MachineError:
    """What to say when the store cannot be opened or reached, or has gone, or not everybody came."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return MachineError(
            f"the processes could not meet at {where}",
            why="the port is in use: another process listens there, such as another job, or a machine 0 of this one",
            fix="give all machines of this job another port: --master-port",
        )
    return machine_lacks(error) or MachineError(
        f"the processes could not meet at {where}",
        why=(str(error).splitlines() or [type(error).__name__])[0],
        fix="check that address (--master-addr, --master-port), and that all of them have been started",
    )


def serve_store(address: str, port: int, timeout: timedelta = TIMEOUT) -> TCPStore:
    """A store that listens at this address of this machine, and nowhere else; the same one, if there is one already.

    With port 0 the kernel picks the port as it is bound: no moment in which somebody else could take it.
    """
    from torch.distributed import TCPStore

    if (serving := _servers.get(port)) is not None:
        return serving
    listening = listen(address, port)
    _check_descriptors()
    bound, port = listening.getsockname()[:2]
    store = TCPStore(bound, port, is_master=True, timeout=timeout, master_listen_fd=listening.detach())
    _servers[port] = store
    return store


def _check_descriptors() -> None:
    """An OSError, if a store could not open what it needs: torch's would try again and again, for as long as anybody
    may be waited for."""
    held: list[int] = []
    try:
        for _ in range(STORE_DESCRIPTORS):
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for descriptor in held:
            os.close(descriptor)


def listen(address: str, port: int) -> socket.socket:
    """A socket at an address of this machine, at which others reach it."""
    try:
        family, *_, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if ip_address(where[0]).is_loopback and not _says_loopback(address):
            raise MachineError(
                f"{address} is {where[0]} on this machine, which no other machine can reach",
                fix="name the address by which the other machines reach this one; 127.0.0.1, if there are no others",
            )
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        raise MachineError(
            f"{address} is not an address of this machine",
            why="the processes meet at machine 0 (rank 0), and this is it",
            fix="name an address of this machine, at which the others reach it",
        ) from error


def is_own_address(address: str) -> bool:
    """Whether an address, or what a name stands for here, is one of this machine's."""
    try:
        family, *_, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(where)
    except OSError:
        return False
    return True


def _says_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address.startswith("localhost")


def address_towards(address: str) -> str | None:
    """The address of this machine from which another one is reached; None if that cannot be told."""
    try:
        family, *_, where = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_towards(address: str) -> str | None:
    """The network interface of this machine that leads to an address; None if that cannot be told."""
    found = address_towards(address)
    if found is None:
        return None
    ours = ip_address(found.partition("%")[0])
    names = [name for _, name in socket.if_nameindex()]
    if ours.is_loopback:
        return next((name for name in names if name in ("lo", "lo0")), None)
    return next((name for name in names if ours.packed in interface_addresses(name)), None)


def interface_addresses(interface: str) -> list[bytes]:
    """The addresses of a network interface, packed, as far as Linux tells."""
    found = []
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            found.append(fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))[20:24])
    except (ImportError, OSError):  # it has no IPv4 address
        pass
    try:
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()]
        found += [bytes.fromhex(row[0]) for row in rows if row[-1] == interface]
    except OSError:
        pass
    return found


def check_interfaces() -> None:
    """Raise MachineError if GLOO_SOCKET_IFNAME names an interface that is not there: gloo blames a lost peer."""
    wanted = os.environ.get("GLOO_SOCKET_IFNAME", "")
    there = [name for _, name in socket.if_nameindex()]
    if strange := [name for name in wanted.split(",") if name and name not in there]:
        raise MachineError(
            f"this machine has no network interface {', '.join(strange)}",
            why=f"GLOO_SOCKET_IFNAME is {wanted}",
            fix=f"unset it, or choose from: {', '.join(there)}",
        )
