"""From what a user says to what a launcher needs: how many machines there are, which one this is, where they meet.

In two steps, because a dry run works anywhere: `placed` counts, when a command line is read; `located` finds this
machine, when something is about to start.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from paddock.errors import ConfigError, DataError, bad_value
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.addresses import (
    is_own,
    parse_addresses,
    position_of_this_machine,
    reachable,
    without_brackets,
)
from paddock.launch.placement.rank_table import RankTable, checked_rank_table, parse_range
from paddock.launch.placement.slurm import nodes_left_alone, slurm_step
from paddock.launch.quiet import import_torch_quietly

FORMS = ("--node-ips", "--rank-table", "--simulate-nodes")
WHOLE = re.compile(r"[0-9]{1,9}")
BY_HAND = ("--nnodes", "--node-rank", "--master-addr")


def placed(
    options: LaunchOptions, given: Collection[str], environment: Mapping[str, str]
) -> tuple[LaunchOptions, list[str]]:
    """The options with all machines and processes counted, and what to tell of where that comes from. `given` are the
    flags on the command line, which go before the environment."""
    forms = [flag for flag in FORMS if flag in given]
    if len(forms) > 1:
        raise ConfigError(f"{' and '.join(forms)} exclude each other", fix="choose one")
    for flag in forms:
        own = {"--node-ips": BY_HAND[1:], "--rank-table": BY_HAND[:2], "--simulate-nodes": BY_HAND}[flag]
        if ignored := [other for other in (*own, "--master-port") if other in given and other in own]:
            what = f"{' and '.join(ignored)} would be ignored"
            raise ConfigError(what, why=f"{flag} says it already", fix=f"leave {' and '.join(ignored)} out")
    if forms and options.min_nodes is not None:
        why = "machines of an elastic job are numbered as they come"
        raise ConfigError(f"{forms[0]} and --nnodes MIN:MAX exclude each other", why=why, fix="choose one")
    if options.device_range is not None and options.rank_table is None:
        raise ConfigError("--device-range is for --rank-table, and would be ignored", fix="add --rank-table FILE")
    if options.node_ips is not None:
        return _counted_addresses(options, options.node_ips, "--nnodes" in given), []
    if options.rank_table is not None:
        return _counted_ranks(options, "--nproc-per-node" in given), []
    if options.simulate_nodes is not None:
        if options.simulate_nodes < 2:
            raise bad_value("--simulate-nodes", options.simulate_nodes, "several are simulated", "--simulate-nodes 2")
        return replace(options, nnodes=options.simulate_nodes), []
    if under_torchrun() or options.min_nodes is not None or not {"--node-rank", "--master-addr"}.isdisjoint(given):
        return options, []
    return _from_environment(options, "--nnodes" in given, environment)


def _counted_addresses(options: LaunchOptions, text: str, counted: bool) -> LaunchOptions:
    addresses = parse_addresses("--node-ips", text)
    number = options.nnodes if counted else len(addresses)
    if number > len(addresses):
        why = f"--node-ips lists {len(addresses)}"
        raise bad_value("--nnodes", number, why, "list all machines, or leave --nnodes out")
    return replace(options, nnodes=number)


def _counted_ranks(options: LaunchOptions, counted: bool) -> LaunchOptions:
    """By the table: each launcher starts the ranks of its range, or those of its server."""
    table = _table_of(options)
    if options.device_range is None:
        sizes = {server.server_id: len(server.device) for server in table.server_list}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise DataError(
                f"the servers of {options.rank_table} have different numbers of devices",
                why=f"every machine starts as many processes: {listed}",
                fix="leave the additional devices out of the table, or give every machine a --device-range",
            )
        each = len(table.server_list[0].device)
    else:
        part = parse_range("--device-range", options.device_range)
        each, everybody = len(part), len(table.ranks)
        if part.stop > everybody or everybody % each or part.start % each:
            why = f"the table has ranks 0 to {everybody - 1}, of which every launcher starts {each}"
            fix = f"ranges of one length that add up to {everybody}, such as [0,{everybody}]"
            raise bad_value("--device-range", options.device_range, why, fix)
    if counted and options.nproc_per_node != each:
        why = f"the rank table gives this launcher {each} processes"
        raise bad_value("--nproc-per-node", options.nproc_per_node, why, "leave it out")
    return replace(options, nproc_per_node=each, nnodes=len(table.ranks) // each)


def _table_of(options: LaunchOptions) -> RankTable:
    assert options.rank_table is not None
    return checked_rank_table(options.rank_table)


def _from_environment(
    options: LaunchOptions, counted: bool, environment: Mapping[str, str]
) -> tuple[LaunchOptions, list[str]]:
    """From SLURM's variables, or LiBai's, unless they say something else than the command line."""
    found, source, nodes = _slurm(options, environment) or _libai(options, environment) or (options, "", "")
    if not source:
        alone = 0 if counted else nodes_left_alone(environment)
        words = (
            f"SLURM gave this job {alone} nodes, and this uses one of them; on all: srun --ntasks-per-node 1 paddock …"
        )
        return options, [words] if alone else []
    if (counted or options.nnodes > 1) and options.nnodes != found.nnodes:
        return options, [f"{source} of {found.nnodes} nodes are not used: --nnodes is {options.nnodes}"]
    where = f"{found.master_addr}, port {found.master_port}"
    return found, [f"node {found.node_rank} of {found.nnodes}, which meet at {where}: from {source} ({nodes})"]


def _slurm(options: LaunchOptions, environment: Mapping[str, str]) -> tuple[LaunchOptions, str, str] | None:
    step = slurm_step(environment)
    if step is None:
        return None
    port = options.master_port or step.port
    found = replace(options, nnodes=len(step.nodes), node_rank=step.node, master_addr=step.nodes[0], master_port=port)
    return found, "SLURM's variables", f"{step.source}={environment[step.source]}"


def _libai(options: LaunchOptions, environment: Mapping[str, str]) -> tuple[LaunchOptions, str, str] | None:
    """NODE NODE_RANK ADDR PORT, as in `NODE=2 NODE_RANK=0 ADDR=10.0.0.1 PORT=12345 bash tools/train.sh`. The names are
    anybody's: only with a number of nodes and another one of the four are they taken for these."""
    names = ("NODE", "NODE_RANK", "ADDR", "PORT")
    said = {name: environment[name] for name in names if environment.get(name)}
    count = said.get("NODE", "")
    if not (WHOLE.fullmatch(count) and int(count) > 1 and {"NODE_RANK", "ADDR"} & set(said)):
        return None
    rank, port = said.get("NODE_RANK", "0"), said.get("PORT", "12345")
    for name, value in (("NODE_RANK", rank), ("PORT", port)):
        if not WHOLE.fullmatch(value):
            raise bad_value(f"the environment variable {name}", value, "it should be a number", f"unset {name}")
    if "ADDR" not in said:
        raise ConfigError(
            f"NODE={count} is set, and ADDR is not", why="the nodes meet at ADDR", fix="set ADDR, or unset NODE"
        )
    found = replace(
        options,
        nnodes=int(count),
        node_rank=int(rank),
        master_addr=said["ADDR"],
        master_port=options.master_port or int(port),
    )
    return found, "LiBai's variables", " ".join(f"{name}={value}" for name, value in said.items())


def located(options: LaunchOptions) -> LaunchOptions:
    """The options with this machine's place among the others, and the address at which all can meet."""
    if options.nnodes == 1:
        return replace(options, node_ips=None)
    import_torch_quietly()  # it talks to the others
    if options.node_ips is not None:
        addresses = parse_addresses("--node-ips", options.node_ips)[: options.nnodes]
        position = position_of_this_machine("--node-ips", addresses)
        others = [one for at, one in enumerate(addresses) if at != position]
        master = _meeting_address(addresses[0], others)
        return replace(options, node_ips=None, node_rank=position, master_addr=master)
    if options.rank_table is not None:
        return _located_by_table(options)
    return replace(options, master_addr=_meeting_address(options.master_addr)) if options.master_addr else options


def _meeting_address(named: str, others: Sequence[str] = ()) -> str:
    named = without_brackets(named)
    found = reachable(named, others)
    if found != named:
        print(f"note: {named} is this machine alone by its /etc/hosts; the nodes meet at {found}", file=sys.stderr)
    return found


def _located_by_table(options: LaunchOptions) -> LaunchOptions:
    table = _table_of(options)
    servers = [server.server_id for server in table.server_list]
    master = options.master_addr or servers[0]
    if options.device_range is None:
        position = position_of_this_machine(f"--rank-table {options.rank_table}: server_id", servers)
    else:
        part = parse_range("--device-range", options.device_range)
        position = part.start // len(part)
        holders = {s.server_id for s in table.server_list for d in s.device if int(d.rank_id) in part}
        here = [server for server in servers if is_own(server)]
        if here and holders.isdisjoint(here):
            raise bad_value(
                "--device-range",
                options.device_range,
                f"this machine is {here[0]}, and these ranks are on {', '.join(sorted(holders))}",
                "give each machine the range of its own ranks, or leave the range out",
            )
    return replace(options, node_rank=position, master_addr=_meeting_address(master, servers))


def devices_of(options: LaunchOptions) -> list[int] | None:
    """The devices that a rank table gives to this launcher's processes, in their order; None without a table."""
    if options.rank_table is None:
        return None
    ranks = range(options.node_rank * options.nproc_per_node, (options.node_rank + 1) * options.nproc_per_node)
    devices = [device for server in _table_of(options).server_list for device in server.device]
    return [int(device.device_id) for device in devices if int(device.rank_id) in ranks]
