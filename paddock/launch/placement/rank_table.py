"""Rank tables: which device of which server has which rank, as Ascend's tools write it in JSON.

{"version": "1.0", "server_count": "1", "server_list": [{"server_id": "10.0.0.1", "device":
 [{"device_id": "0", "device_ip": "192.168.0.1", "rank_id": "0"}, …]}], "status": "completed"}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from paddock.documents import Document, read_document
from paddock.errors import ConfigError, DataError
from paddock.files import nearest_path

VERSION, COMPLETED = "1.0", "completed"
LARGEST = 2**26
"""Bytes; a device has about a hundred."""
AS_WRITTEN = 'every value is a text, numbers too ("rank_id": "0"): `paddock ranktable make` writes such a file'

T = TypeVar("T")
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class TableDevice(Document):
    """One device."""

    device_id: Digits
    device_ip: str = ""
    rank_id: Digits


class TableServer(Document):
    """One machine, with those of its devices that take part."""

    server_id: str
    device: list[TableDevice]
    host_nic_ip: str = "reserve"


class RankTable(Document):
    """All machines of a job."""

    version: str
    server_count: Digits
    server_list: list[TableServer]
    status: str

    @property
    def ranks(self) -> list[int]:
        return [int(device.rank_id) for server in self.server_list for device in server.device]


def read_rank_table(path: Path) -> RankTable:
    """A table as it is in a file; what is wrong with it is another question."""
    if not path.exists():
        usual = "check the path; `paddock ranktable make` writes the table of a server"
        raise DataError(f"there is no rank table {path}", fix=nearest_path(path) or usual)
    return read_document(path, RankTable, fix=AS_WRITTEN, max_bytes=LARGEST)


def checked_rank_table(path: Path) -> RankTable:
    """A table with which a job can run, or an error with all that is wrong with it."""
    table = read_rank_table(path)
    if found := problems_of(table):
        raise DataError(
            f"the rank table {path} cannot be used",
            why="; ".join(found),
            fix="join the servers' own tables again: paddock ranktable merge FILE… --output TABLE",
        )
    return table


def problems_of(table: RankTable) -> list[str]:
    """What is wrong with a table, a sentence each."""
    found = [] if table.version == VERSION else [f"its version is {table.version!r}, and {VERSION!r} is known"]
    if table.status != COMPLETED:
        found.append(f"its status is {table.status!r}: whoever wrote it did not come to the end")
    listed, counted = len(table.server_list), int(table.server_count)
    if counted > listed:
        found.append(f"a server is missing: server_count is {counted}, and {listed} are listed")
    elif counted < listed:
        found.append(f"server_count is {counted}, and {listed} servers are listed")
    found += [f"server {name} is listed twice" for name in _repeated(server.server_id for server in table.server_list)]
    for server in table.server_list:
        if not server.device:
            found.append(f"server {server.server_id or '(without a server_id)'} has no devices")
        ids = _repeated(device.device_id for device in server.device)
        found += [f"server {server.server_id} has device {device} twice" for device in ids]
    return found + _problems_of_addresses(table) + _problems_of_ranks(table.ranks)


def _problems_of_addresses(table: RankTable) -> list[str]:
    addresses = [device.device_ip for server in table.server_list for device in server.device if device.device_ip]
    found = [f"the device_ip {address} belongs to two devices" for address in _repeated(addresses)]
    for address in addresses:
        try:
            ip_address(address)
        except ValueError:
            found.append(f"the device_ip {address!r} is no address")
    return found


def _problems_of_ranks(ranks: Sequence[int]) -> list[str]:
    found = [f"rank {rank} is given twice" for rank in _repeated(ranks)]
    if missing := sorted(set(range(len(ranks))) - set(ranks))[:10] if not found else []:
        found.append(f"there are {len(ranks)} devices, and no rank {', '.join(map(str, missing))}")
    if not found and list(ranks) != sorted(ranks):
        at = next(at for at, rank in enumerate(ranks) if rank != at)
        found.append(f"ranks are numbered in the order of the file, and rank {ranks[at]} is where {at} should be")
    return found


def _repeated(values: Iterable[T]) -> list[T]:
    return [value for value, count in Counter(values).items() if count > 1]


def make_rank_table(server: str, devices: Sequence[int], device_ips: Sequence[str] = ()) -> RankTable:
    """The table of one server, whose ranks begin at 0."""
    if not server:
        raise ConfigError("a server needs a name", fix="--server-id ADDRESS")
    if device_ips and len(device_ips) != len(devices):
        why = f"{len(devices)} devices, and {len(device_ips)} addresses"
        raise ConfigError(
            "each device needs its own address", why=why, fix="--device-ips, one a device, in their order"
        )
    addresses = device_ips or [""] * len(devices)
    listed = [
        TableDevice(device_id=str(device), device_ip=address, rank_id=str(rank))
        for rank, (device, address) in enumerate(zip(devices, addresses, strict=True))
    ]
    table = _table([TableServer(server_id=server, device=listed)])
    if found := problems_of(table):
        raise ConfigError("this would not be a rank table", why="; ".join(found), fix="give each device once")
    return table


def merge_rank_tables(tables: Sequence[tuple[str, RankTable]]) -> RankTable:
    """One table of the servers of several, each with its name; ranks are numbered anew, in this order."""
    versions = {table.version for _, table in tables}
    if len(versions) > 1:
        raise DataError(
            "the rank tables are of several versions",
            why=", ".join(f"{name} is of {table.version}" for name, table in tables),
            fix="write all of them with the same tool",
        )
    for name, table in tables:
        if found := problems_of(table):
            raise DataError(f"the rank table {name} cannot be joined", why="; ".join(found), fix=AS_WRITTEN)
    rank, servers = 0, []
    for _, table in tables:
        for server in table.server_list:
            devices = [one.model_copy(update={"rank_id": str(rank + at)}) for at, one in enumerate(server.device)]
            rank += len(devices)
            servers.append(server.model_copy(update={"device": devices}))
    merged = _table(servers)
    if found := problems_of(merged):
        fix = "give the table of each server once"
        raise DataError("the rank tables do not fit together", why="; ".join(found), fix=fix)
    return merged


def _table(servers: list[TableServer]) -> RankTable:
    return RankTable(version=VERSION, server_count=str(len(servers)), server_list=servers, status=COMPLETED)


def parse_range(flag: str, text: str) -> range:
    """`[0,8]`: from the first to before the last, as MindFormers' scripts write it; brackets may be left out."""
    found = re.fullmatch(r"\[?([0-9]{1,9}),([0-9]{1,9})\]?", text.replace(" ", ""))
    if found is None or int(found[1]) >= int(found[2]):
        why = "it is the first, and the one after the last"
        raise ConfigError(f"{flag} = {text}", why=why, fix=f"{flag} [0,8] for eight, 0 to 7")
    return range(int(found[1]), int(found[2]))


def device_addresses(hccn: Path) -> dict[int, str]:
    """The devices' addresses on their own network, which Ascend's driver keeps as lines `address_0=192.168.0.1`."""
    try:
        text = hccn.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {hccn}", why=str(error), fix="--device-ips A,B,… names them instead") from None
    return {
        int(device): address for device, address in re.findall(r"^address_([0-9]{1,9})=(\S+)\s*$", text, re.MULTILINE)
    }
