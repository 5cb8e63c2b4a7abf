"""What a user says about processes. No torch, no pydantic: this is read for every `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paddock.errors import bad_value
from paddock.process import MOST_PROCESSES

NODE_TIMEOUT = 30.0
DEFAULT_PORT = 29500  # torchrun's, so that a mixed set of nodes still meets
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_ON_ONE_MACHINE = 4096


@dataclass(frozen=True)
class LaunchOptions:
    """How many processes, on which machines."""

    nproc_per_node: int = 1
    """Processes to start on this machine. One runs in place."""
    nnodes: int = 1
    """Machines in the job; run the same command on each, with its own --node-rank."""
    node_rank: int = 0
    """Which of the machines this is: 0 to nnodes - 1."""
    master_addr: str | None = None
    """Address of machine 0, where the machines meet (needed when nnodes > 1)."""
    master_port: int | None = None
    """Port on machine 0. Default: a free one on a single machine, 29500 on several."""
    threads: int | None = None
    """Threads of each process, where the host computes. Default: OMP_NUM_THREADS if it is set, else the cores that
    other work leaves free when a run begins, shared out; a run that is resumed keeps its number."""
    node_ips: str | None = None
    """All machines, a,b,c: names, IPv4 or IPv6 addresses. Each finds its own place; they meet at the first."""
    rank_table: Path | None = None
    """A rank table (JSON of Ascend's tools): starts the ranks of this server, on the devices that it names."""
    device_range: str | None = None
    """With --rank-table: start these ranks, [0,8] for 0 to 7, rather than all of this server."""
    simulate_nodes: int | None = None
    """Try several machines on this one: a launcher for each, which meet on the loopback interface."""
    max_restarts: int = 0
    """How often it goes on from its newest checkpoint after a process or a machine has failed (fault tolerance)."""
    node_timeout: float = NODE_TIMEOUT
    """Seconds of silence after which a machine counts as lost (heartbeat timeout)."""
    rdzv_id: str | None = None
    """Name of an elastic job, which goes on as machines leave and come: --nnodes MIN:MAX, and no --node-rank."""
    min_nodes: int | None = None
    """Fewest machines of an elastic job; --nnodes MIN:MAX says both."""
    preflight: Literal["on", "off"] = "on"
    """Before a job on several machines: compare their versions, devices, recipes, data and clocks, and try each device
    and the collectives. Takes a second or two; `paddock doctor --nnodes` does it alone, and says more."""

    @property
    def world_size(self) -> int:
        return self.nproc_per_node * self.nnodes

    @property
    def elastic(self) -> bool:
        """Whether machines may leave and come."""
        return self.min_nodes is not None

    @property
    def nodes(self) -> str:
        """The number of machines, as --nnodes has it."""
        return f"{self.min_nodes}:{self.nnodes}" if self.elastic else str(self.nnodes)

    @property
    def replaces_machines(self) -> bool:
        """Whether another machine may come in place of one that is lost."""
        return self.elastic or self.max_restarts > 0

    def check_size(self) -> None:
        """Raise ConfigError for a number of processes that no job has."""
        for name, most in (("nproc_per_node", MOST_ON_ONE_MACHINE), ("nnodes", MOST_PROCESSES)):
            count, flag = getattr(self, name), "--" + name.replace("_", "-")
            if count < 1:
                raise bad_value(flag, count, "a job has at least one process", f"{flag} 1 or more")
            if count > most:
                raise bad_value(flag, count, f"there are no {most:,} of them", f"{flag} {most} or less")
        check_world("--nnodes × --nproc-per-node", self.world_size)

    def check(self) -> None:
        """Raise ConfigError for values that cannot start a job."""
        self.check_size()
        if not 0 <= self.node_rank < self.nnodes:
            raise bad_value(
                "--node-rank",
                self.node_rank,
                f"with --nnodes {self.nnodes} it is one of 0 to {self.nnodes - 1}",
                "number the machines from 0",
            )
        if self.nnodes > 1 and not (self.master_addr or self.node_ips or self.rank_table):
            raise bad_value(
                "--master-addr",
                self.master_addr,
                f"{self.nnodes} machines need a place to meet",
                "give every machine the address of machine 0: --master-addr ADDRESS; or those of all: --node-ips A,B",
            )
        if self.nnodes == 1 and self.master_addr not in (None, *LOOPBACK):
            raise bad_value(
                "--master-addr",
                self.master_addr,
                "a job on one machine meets on its loopback interface, so the address would be ignored",
                "leave it out, or give --nnodes",
            )
        if self.threads is not None and not 1 <= self.threads <= MOST_ON_ONE_MACHINE:
            raise bad_value("--threads", self.threads, f"a process has 1 to {MOST_ON_ONE_MACHINE}", "leave it out")
        self._check_faults()
        if self.master_port is not None and not 1 <= self.master_port <= 65535:
            raise bad_value("--master-port", self.master_port, "a port is 1 to 65535", "leave it out")

    def _check_faults(self) -> None:
        if self.max_restarts < 0:
            raise bad_value("--max-restarts", self.max_restarts, "it is a number of times", "0 for none")
        if not 1 <= self.node_timeout <= 86400:
            why = "machines speak a few times a second, and nobody waits longer than a day"
            raise bad_value("--node-timeout", self.node_timeout, why, "say, --node-timeout 30")
        if self.nnodes == 1 and self.node_timeout != NODE_TIMEOUT:
            why = "there is one machine, which nobody can lose, and it would be ignored"
            raise bad_value("--node-timeout", self.node_timeout, why, "leave it out, or give --nnodes")
        if self.rdzv_id is not None and self.min_nodes is None:
            why = "a job with a fixed number of machines has no name, and it would be ignored"
            raise bad_value("--rdzv-id", self.rdzv_id, why, "add --nnodes MIN:MAX")
        if self.min_nodes is None:
            return
        if not 1 <= self.min_nodes < self.nnodes:
            raise bad_value("--nnodes", self.nodes, "MIN is at least 1, and less than MAX", "say, --nnodes 2:4")
        if self.node_rank:
            why = "machines of an elastic job are numbered as they come"
            raise bad_value("--node-rank", self.node_rank, why, "leave it out")
        if self.rdzv_id is None:
            why = "machines that may come at any time have to know that it is their job"
            raise bad_value("--rdzv-id", None, why, "name the job: --rdzv-id NAME, the same on every machine")


def node_range(arguments: list[str]) -> list[str]:
    """Flags in which `--nnodes MIN:MAX` is two numbers."""
    spelled = [word for given in arguments for word in _split_range(given)]
    for at, flag in enumerate(spelled[:-1]):
        low, colon, high = spelled[at + 1].partition(":")
        if flag in ("--nnodes", "--num-nodes") and colon:
            return [*spelled[:at], flag, high, "--min-nodes", low, *spelled[at + 2 :]]
    return arguments


def _split_range(argument: str) -> list[str]:
    flag, equals, value = argument.partition("=")
    return [flag, value] if flag == "--nnodes" and equals and ":" in value else [argument]


def check_world(flag: str, world: int) -> None:
    """Raise ConfigError for a number of processes in all that no job has."""
    if not 1 <= world <= MOST_PROCESSES:
        raise bad_value(flag, world, f"a job has 1 to {MOST_PROCESSES:,} processes", "check the number")
