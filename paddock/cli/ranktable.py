"""`paddock ranktable make|merge|check`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from paddock.cli.arguments import parse
from paddock.cli.subverbs import run_subverb
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write
from paddock.launch.placement.addresses import own_addresses, parse_addresses
from paddock.launch.placement.rank_table import (
    RankTable,
    device_addresses,
    make_rank_table,
    merge_rank_tables,
    parse_range,
    problems_of,
    read_rank_table,
)

HCCN = Path("/etc/hccn.conf")


@dataclass(frozen=True)
class MakeOptions:
    """Write the rank table of this server.

    Its ranks begin at 0; the tables of all servers are joined by `paddock ranktable merge`.

        paddock ranktable make --devices [0,8] --output server0.json"""

    devices: str
    """Which of its devices: [0,8] for 0 to 7."""
    server_id: str | None = None
    """The address by which other servers reach this one; default: this machine's, if it has one only."""
    device_ips: str | None = None
    """The devices' addresses on their own network, A,B,…; default: what /etc/hccn.conf says, if it is there."""
    hccn_conf: Path | None = None
    """Where Ascend's driver keeps those addresses, if it is another file."""
    output: Path | None = None
    """Write to this file; default: standard output."""


@dataclass(frozen=True)
class MergeOptions:
    """Join the rank tables of several servers.

    Ranks are numbered anew, in the order of the files. All servers need the same joined table.

        paddock ranktable merge server0.json server1.json --output table.json"""

    tables: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")]
    """The servers' tables, in the order of their ranks."""
    output: Path | None = None
    """Write to this file; default: standard output."""


@dataclass(frozen=True)
class CheckOptions:
    """Check a rank table and show what is in it.

    Exit code 0 if a job can run with it, 4 if not."""

    table: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """The table of all servers."""
    rank_size: int | None = None
    """So many ranks it should have."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    subverbs = {"make": (make, MakeOptions), "merge": (merge, MergeOptions), "check": (check, CheckOptions)}
    run_subverb("ranktable", subverbs, arguments)


def make(arguments: list[str]) -> None:
    options = parse(MakeOptions, "ranktable make", arguments)
    devices = list(parse_range("--devices", options.devices))
    _write(make_rank_table(_server(options.server_id), devices, _device_ips(options, devices)), options.output)


def merge(arguments: list[str]) -> None:
    options = parse(MergeOptions, "ranktable merge", arguments)
    if not options.tables:
        raise ConfigError("paddock ranktable merge needs tables", fix="paddock ranktable merge FILE FILE …")
    _write(merge_rank_tables([(str(path), read_rank_table(path)) for path in options.tables]), options.output)


def check(arguments: list[str]) -> None:
    options = parse(CheckOptions, "ranktable check", arguments)
    table = read_rank_table(options.table)
    problems = problems_of(table)
    if options.rank_size is not None and options.rank_size != len(table.ranks):
        problems.append(f"it has {len(table.ranks)} ranks, and {options.rank_size} are wanted")
    servers = {server.server_id: [int(device.rank_id) for device in server.device] for server in table.server_list}
    if options.json:
        print(json.dumps({"sound": not problems, "problems": problems, "ranks": servers}))
    else:
        lines = [
            f"{'FAIL' if problems else 'ok  '} {options.table}: {len(table.ranks)} ranks on {len(servers)} servers"
        ]
        lines += [f"     {problem}" for problem in problems]
        lines += [f"     {name}: ranks {', '.join(map(str, ranks)) or 'none'}" for name, ranks in servers.items()]
        print("\n".join(lines))
    sys.stdout.flush()
    if problems:
        why = problems[0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
        fix = "join the servers' own tables again: paddock ranktable merge FILE… --output TABLE"
        raise DataError(f"the rank table {options.table} cannot be used", why=why, fix=fix)


def _server(named: str | None) -> str:
    if named is not None:
        return named
    own = own_addresses()
    if len(own) != 1:
        why = f"this machine has {', '.join(own) or 'none'}"
        raise ConfigError("a server is known by one address", why=why, fix="--server-id ADDRESS")
    return own[0]


def _device_ips(options: MakeOptions, devices: list[int]) -> list[str]:
    if options.device_ips is not None:
        return parse_addresses("--device-ips", options.device_ips)
    file = options.hccn_conf or HCCN
    if options.hccn_conf is None and not file.exists():
        return []
    addresses = device_addresses(file)
    if missing := [device for device in devices if device not in addresses]:
        why = f"it has those of {', '.join(map(str, sorted(addresses))) or 'none'}"
        fix = "choose other --devices, or name the addresses: --device-ips A,B,…"
        raise DataError(f"{file} has no address of device {', '.join(map(str, missing))}", why=why, fix=fix)
    return [addresses[device] for device in devices]


def _write(table: RankTable, output: Path | None) -> None:
    text = json.dumps(table.model_dump(), indent=2)
    if output is None:
        print(text)
        return
    with atomic_write(output) as stream:
        stream.write(text + "\n")
    servers = f"{len(table.server_list)} server{'s' if len(table.server_list) > 1 else ''}"
    print(f"{output}: {len(table.ranks)} ranks on {servers}", file=sys.stderr)
