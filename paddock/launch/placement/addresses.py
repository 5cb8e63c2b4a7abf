"""The addresses of this machine: which of several is its own, and by which one the others reach it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from paddock.errors import ConfigError, MachineError
from paddock.parallel.rendezvous import interface_addresses

FAR_AWAY = "198.51.100.1"
"""Of a network for documentation: nobody is there, and the way to it begins at the interface that leads outside."""


def parse_addresses(flag: str, text: str) -> list[str]:
    """`a,b,c`: names, IPv4 and IPv6 addresses, the latter in brackets or without."""
    addresses = [without_brackets(word.strip()) for word in text.split(",")]
    if not all(addresses):
        raise ConfigError(f"{flag} {text} has an empty place", fix=f"{flag} 10.0.0.1,10.0.0.2")
    if repeated := sorted({one for one in addresses if addresses.count(one) > 1}):
        why = "each machine has one place in the list"
        raise ConfigError(f"{flag} names {', '.join(repeated)} twice", why=why, fix="leave the second one out")
    return addresses


def without_brackets(address: str) -> str:
    """`[::1]`, as it is written before a port, is ::1."""
    return address.removeprefix("[").removesuffix("]")


def own_addresses() -> list[str]:
    """By which others may reach this machine: those of its interfaces, but for the loopback and for links."""
    found = [ip_address(packed) for _, name in socket.if_nameindex() for packed in interface_addresses(name)]
    return [str(one) for one in found if not one.is_loopback and not one.is_link_local]


def position_of_this_machine(flag: str, addresses: Sequence[str]) -> int:
    """Which of these is this machine, or an error that says which addresses it has."""
    own = [position for position, address in enumerate(addresses) if is_own(address)]
    if len(own) == 1:
        return own[0]
    here = ", ".join([socket.gethostname(), *own_addresses()])
    if own:
        raise ConfigError(
            f"{' and '.join(addresses[position] for position in own)} are both this machine ({here})",
            why=f"by {flag} each machine finds its own place",
            fix="name each machine once; to try several on one machine: --simulate-nodes",
        )
    unknown = [address for address in addresses if not _resolved(address)]
    raise ConfigError(
        f"{flag} {','.join(addresses)}: none of them is an address of this host",
        why=f"it is {here}" + (f"; no host is known as {', '.join(unknown)}" if unknown else ""),
        fix="run this on one of the nodes, or add this one to the list",
    )


def is_own(address: str) -> bool:
    """Whether an address or a name is this machine's: a socket can be bound to it."""
    name = socket.gethostname()
    return address in (name, name.partition(".")[0]) or any(map(_can_bind, _resolved(address)))


def reachable(address: str, others: Sequence[str] = ()) -> str:
    """The address that the others use for what may be a name of this machine.

    Debian's installer writes `127.0.1.1 NAME` into /etc/hosts: whoever listens there is heard by nobody else. In place
    of a loopback address that was not named as such, it gives the one that leads to the others.
    """
    found = _resolved(address)
    if _is_literal(address) or address == "localhost" or not found or not all(one.is_loopback for one in found):
        return address
    towards = [str(one) for other in others for one in _resolved(other) if not one.is_loopback]
    for place in [*towards, FAR_AWAY]:
        if (ours := _source_towards(place)) is not None:
            return ours
    if len(own := own_addresses()) == 1:
        return own[0]
    raise MachineError(
        f"{address} is {found[0]} on this machine, which no other machine can reach",
        why=f"so says /etc/hosts; its other addresses are {', '.join(own) or 'none'}",
        fix="name the address by which the other machines reach this one",
    )


def _resolved(address: str) -> list[IPv4Address | IPv6Address]:
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # the latter, if it is no name at all, which Python finds
        return []
    return [ip_address(str(where[0]).partition("%")[0]) for *_, where in found]


def _can_bind(address: IPv4Address | IPv6Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _source_towards(place: str) -> str | None:
    """The address from which packets to a place would leave."""
    family = socket.AF_INET if ip_address(place).version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((place, 9))  # sends nothing
            ours = str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None
    return None if ip_address(ours).is_loopback or ip_address(ours).is_unspecified else ours


def _is_literal(address: str) -> bool:
    try:
        ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True
