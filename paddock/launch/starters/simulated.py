"""Several machines on one, to try it: a launcher for each, in a process of its own, as they would be elsewhere.

`python -m paddock.launch.starters.simulated PARENT WORD…` is such a launcher: `paddock WORD…`, ending with its parent.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from paddock.cores import num_cores
from paddock.launch.options import LaunchOptions
from paddock.launch.starters.programs import Program, run_together
from paddock.launch.worker import die_with_parent
from paddock.phases import over

MEETING = "127.0.0.1"


def simulate(command: Sequence[str], options: LaunchOptions) -> int:
    """Run `paddock COMMAND` as so many machines as `options` count; returns the exit code."""
    over()  # the machines say what they are doing
    words = without_flag(command, "--simulate-nodes")
    with _port_kept(options.master_port) as port:
        programs = [
            Program(f"node {node}", _node(words, options, node, port), _environment(options, node))
            for node in range(options.nnodes)
        ]
        return run_together(programs)


def _node(words: Sequence[str], options: LaunchOptions, node: int, port: int) -> list[str]:
    flags = {"--nnodes": options.nnodes, "--node-rank": node, "--master-addr": MEETING}
    place = [str(word) for pair in flags.items() for word in pair]
    place += [] if options.master_port is not None else ["--master-port", str(port)]
    safe_path = [] if "" in sys.path or os.getcwd() in sys.path else ["-P"]
    return [sys.executable, *safe_path, "-m", __name__, str(os.getpid()), *words, *place]


def _environment(options: LaunchOptions, node: int) -> dict[str, str]:
    """The share of this machine that a simulated one has: of its cores, and of its devices."""
    from paddock.devices import all_adapters

    each = options.nproc_per_node
    shares = {"OMP_NUM_THREADS": str(max(1, num_cores() // (each * options.nnodes)))}
    devices = range(node * each, (node + 1) * each)
    for adapter in all_adapters():
        if (variable := adapter.visible_devices) is not None:
            shares[variable] = ",".join(map(str, devices))
    return {name: value for name, value in shares.items() if name not in os.environ}


def without_flag(words: Sequence[str], flag: str) -> list[str]:
    """A command line without a flag and its value, however the flag is spelt."""
    kept: list[str] = []
    skips = False
    for word in words:
        name, equals, _ = word.partition("=")
        if skips:
            skips = False
        elif name.replace("_", "-") == flag:
            skips = not equals
        else:
            kept.append(word)
    return kept


@contextmanager
def _port_kept(wanted: int | None) -> Iterator[int]:
    """The port that is wanted; else a free one, which nobody else is given while the launchers run."""
    with socket.socket() as holder:
        if wanted is None:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # bound, not listening: node 0 may join
            holder.bind((MEETING, 0))
        yield wanted or int(holder.getsockname()[1])


def main(parent: str, *words: str) -> None:
    die_with_parent(int(parent))
    sys.argv = ["paddock", *words]
    runpy.run_module("paddock", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
