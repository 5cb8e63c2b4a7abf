"""How many machines there are and which one this is, from each form in which users say it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.errors import ConfigError, DataError, MachineError
from paddock.launch.environment import worker_environment
from paddock.launch.options import LaunchOptions
from paddock.launch.placement import addresses
from paddock.launch.placement.addresses import own_addresses, parse_addresses, reachable
from paddock.launch.placement.find import devices_of, located, placed
from paddock.launch.placement.rank_table import make_rank_table, merge_rank_tables

OWN = "127.0.0.1"  # every machine's
OTHERS = "203.0.113.1", "203.0.113.2"  # of a network for documentation


@pytest.fixture(autouse=True)
def no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def find(*given: str, environment: dict[str, str] | None = None, **options: object) -> LaunchOptions:
    return placed(LaunchOptions(**options), given, environment or {})[0]  # type: ignore[arg-type]


def test_a_list_of_addresses() -> None:
    launch = find("--node-ips", node_ips=f"{OTHERS[0]},{OWN},{OTHERS[1]}")
    assert launch.nnodes == 3
    launch.check()
    here = located(launch)
    assert (here.node_rank, here.master_addr, here.node_ips) == (1, OTHERS[0], None)
    assert located(here) == here


def test_only_so_many_of_the_list_as_are_wanted() -> None:
    """OneFlow-GPT's scripts list all addresses, and count those that take part."""
    launch = find("--node-ips", "--nnodes", node_ips=f"{OWN},{OTHERS[0]}", nnodes=1)
    assert located(launch) == LaunchOptions()
    launch = find("--node-ips", "--nnodes", node_ips=",".join([OWN, *OTHERS]), nnodes=2)
    assert located(launch).nnodes == 2
    with pytest.raises(ConfigError, match="--nnodes = 3"):
        find("--node-ips", "--nnodes", node_ips=f"{OWN},{OTHERS[0]}", nnodes=3)


def test_a_list_without_this_machine() -> None:
    """An error that says which addresses it has; but to count machines, any will do."""
    launch = find("--node-ips", node_ips=",".join(OTHERS))
    assert launch.nnodes == 2
    with pytest.raises(ConfigError, match="none of them is an address of this host") as caught:
        located(launch)
    assert socket.gethostname() in caught.value.why
    assert all(address in caught.value.why for address in own_addresses())


@pytest.mark.parametrize(
    ("text", "message"),
    [("a,,b", "an empty place"), ("", "an empty place"), ("a,b,a", "names a twice"), ("[::1],::1", "names ::1 twice")],
)
def test_lists_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_addresses("--node-ips", text)


def test_two_places_of_one_machine() -> None:
    with pytest.raises(ConfigError, match="are both this machine"):
        located(find("--node-ips", node_ips="127.0.0.1,127.0.0.2"))


def test_ipv6() -> None:
    assert parse_addresses("--node-ips", "[fd00::1],fd00::2") == ["fd00::1", "fd00::2"]
    by_hand = find("--nnodes", "--master-addr", nnodes=2, master_addr="[fd00::1]")
    assert located(by_hand).master_addr == "fd00::1"
    if not addresses.is_own("::1"):
        pytest.skip("this machine has no IPv6")
    launch = located(find("--node-ips", node_ips="[2001:db8::1],[::1]"))
    assert (launch.node_rank, launch.master_addr) == (1, "2001:db8::1")


def resolve(answers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names be known as /etc/hosts would make them."""
    known: Callable[..., object] = socket.getaddrinfo

    def answer(host: str, *arguments: object, **named: object) -> object:
        if host.startswith("node") and host not in answers:
            raise OSError("Name or service not known")
        return known(answers.get(host, host), *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_the_name_that_debian_gives_to_127_0_1_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machine 0 is told by its own name: it meets the others where they can reach it, and its rank is found."""
    resolve({"node0": "127.0.1.1", "node1": OTHERS[0]}, monkeypatch)
    monkeypatch.setattr(addresses, "_source_towards", lambda place: "10.0.0.5" if place == OTHERS[0] else None)
    launch = located(find("--node-ips", node_ips="node0,node1"))
    assert (launch.node_rank, launch.master_addr) == (0, "10.0.0.5")
    assert capsys.readouterr().err.endswith("/etc/hosts; the nodes meet at 10.0.0.5\n")
    # By hand nobody says where the others are: the way to the outside is taken, or the only address.
    monkeypatch.setattr(addresses, "_source_towards", lambda place: None)
    monkeypatch.setattr(addresses, "own_addresses", lambda: ["10.0.0.6"])
    by_hand = find("--nnodes", "--master-addr", nnodes=2, master_addr="node0")
    assert located(by_hand).master_addr == "10.0.0.6"
    monkeypatch.setattr(addresses, "own_addresses", lambda: ["10.0.0.6", "172.16.0.1"])
    with pytest.raises(MachineError, match="which no other machine can reach") as caught:
        located(by_hand)
    assert "10.0.0.6, 172.16.0.1" in caught.value.why


def test_addresses_that_are_meant_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve({"node1": OTHERS[0]}, monkeypatch)
    assert [reachable(name) for name in ("127.0.0.1", "localhost", "node1", "node7")] == [
        *("127.0.0.1", "localhost", "node1", "node7")
    ]


SLURM = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
}
LIBAI = {"NODE": "2", "NODE_RANK": "1", "ADDR": "192.168.30.21", "PORT": "12345"}


def test_a_step_of_slurm() -> None:
    launch, notes = placed(LaunchOptions(nproc_per_node=8), ["--nproc-per-node"], SLURM)
    assert (launch.nnodes, launch.node_rank, launch.master_addr) == (2, 1, "gpu07")
    assert launch.nproc_per_node == 8 and launch.master_port == 20_087
    where = "from SLURM's variables (SLURM_STEP_NODELIST=gpu[07-08])"
    assert notes == [f"node 1 of 2, which meet at gpu07, port 20087: {where}"]
    assert find("--master-port", environment=SLURM, master_port=5).master_port == 5


def test_the_variables_of_libai() -> None:
    launch, notes = placed(LaunchOptions(nproc_per_node=4), ["--nproc-per-node"], LIBAI)
    expected = LaunchOptions(nproc_per_node=4, nnodes=2, node_rank=1, master_addr="192.168.30.21", master_port=12345)
    assert launch == expected
    assert notes[0].endswith("from LiBai's variables (NODE=2 NODE_RANK=1 ADDR=192.168.30.21 PORT=12345)")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NODE": "1", "NODE_RANK": "0", "ADDR": "192.168.30.21", "PORT": "12345"},  # as in most of its examples
        {"NODE": "/usr/bin/node", "PORT": "8080"},
        {"NODE": "2"},
        {"ADDR": "10.0.0.1", "PORT": "8080"},
    ],
)
def test_variables_that_mean_no_job(environment: dict[str, str]) -> None:
    assert placed(LaunchOptions(), [], environment) == (LaunchOptions(), [])


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"NODE_RANK": "one"}, "NODE_RANK = one"), ({"PORT": "http"}, "PORT = http"), ({"ADDR": ""}, "ADDR is not")],
)
def test_variables_that_are_wrong(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        placed(LaunchOptions(), [], LIBAI | changed)


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = LaunchOptions(nnodes=2, master_addr="10.0.0.9")
    assert placed(by_hand, ["--nnodes", "--master-addr"], SLURM | LIBAI) == (by_hand, [])
    launch, notes = placed(LaunchOptions(nnodes=4), ["--nnodes"], SLURM)
    assert launch == LaunchOptions(nnodes=4)
    assert notes == ["SLURM's variables of 2 nodes are not used: --nnodes is 4"]
    assert placed(LaunchOptions(), ["--nnodes"], SLURM)[0] == LaunchOptions()
    assert find(environment=SLURM | LIBAI).master_addr == "gpu07"
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "1")  # a worker of torchrun
    assert placed(LaunchOptions(), [], SLURM) == (LaunchOptions(), [])


def test_a_job_of_slurm_of_which_one_node_is_used() -> None:
    batch = {"SLURM_JOB_ID": "12", "SLURM_NNODES": "4"}
    launch, [note] = placed(LaunchOptions(), [], batch)
    assert launch == LaunchOptions()
    assert note.startswith("SLURM gave this job 4 nodes, and this uses one") and "srun" in note
    assert placed(LaunchOptions(), ["--nnodes"], batch)[1] == []


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (("--node-ips", "--node-rank"), {"node_ips": "a,b", "node_rank": 1}, "--node-rank would be ignored"),
        (("--node-ips", "--master-addr"), {"node_ips": "a,b", "master_addr": "a"}, "--master-addr would be ignored"),
        (("--rank-table", "--nnodes"), {"rank_table": Path("x"), "nnodes": 2}, "--nnodes would be ignored"),
        (("--simulate-nodes", "--nnodes"), {"simulate_nodes": 2, "nnodes": 2}, "--nnodes would be ignored"),
        (("--simulate-nodes", "--node-ips"), {"simulate_nodes": 2, "node_ips": "a"}, "exclude each other"),
        (("--simulate-nodes",), {"simulate_nodes": 1}, "--simulate-nodes = 1"),
        (("--device-range",), {"device_range": "[0,8]"}, "would be ignored"),
    ],
)
def test_flags_that_contradict(given: tuple[str, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(*given, **options)


def table(folder: Path, *servers: str, devices: tuple[int, ...] = (0, 1)) -> Path:
    path = folder / "table.json"
    merged = merge_rank_tables([(server, make_rank_table(server, devices)) for server in servers])
    path.write_text(json.dumps(merged.model_dump()))
    return path


def test_a_rank_table(tmp_path: Path) -> None:
    launch = find("--rank-table", rank_table=table(tmp_path, OTHERS[0], OWN, OTHERS[1], devices=(2, 3)))
    assert (launch.nnodes, launch.nproc_per_node) == (3, 2)
    launch.check()
    here = located(launch)
    assert (here.node_rank, here.master_addr) == (1, OTHERS[0])
    assert devices_of(here) == [2, 3]
    seen = worker_environment(here)
    assert {name for name, value in seen.items() if value == "2,3"} == {
        *("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "SDAA_VISIBLE_DEVICES"),
        "ZE_AFFINITY_MASK",
    }


def test_a_range_of_ranks(tmp_path: Path) -> None:
    """As run_distribute.sh had it: ranks a to b - 1 run here, whatever address this machine has."""
    path = table(tmp_path, *OTHERS, devices=(0, 1, 2, 3))
    launch = find("--rank-table", "--device-range", rank_table=path, device_range="[4,8]")
    assert (launch.nnodes, launch.nproc_per_node) == (2, 4)
    here = located(launch)
    assert (here.node_rank, here.master_addr, devices_of(here)) == (1, OTHERS[0], [0, 1, 2, 3])
    half = located(find("--rank-table", "--device-range", rank_table=path, device_range="[6,8]"))
    assert (half.nnodes, half.node_rank, devices_of(half)) == (4, 3, [2, 3])


def test_a_rank_table_of_another_cluster(tmp_path: Path) -> None:
    launch = find("--rank-table", rank_table=table(tmp_path, *OTHERS))
    assert launch.nnodes == 2, "it can be counted anywhere"
    with pytest.raises(ConfigError, match="none of them is an address of this host"):
        located(launch)


@pytest.mark.parametrize("text", ["[0,3]", "[1,3]", "[0,16]", "[4,12]", "x"])
def test_ranges_that_do_not_fit_the_table(text: str, tmp_path: Path) -> None:
    path = table(tmp_path, *OTHERS, devices=(0, 1, 2, 3))
    with pytest.raises(ConfigError, match=r"--device-range = "):
        find("--rank-table", "--device-range", rank_table=path, device_range=text)


def test_the_range_of_another_server(tmp_path: Path) -> None:
    path = table(tmp_path, OTHERS[0], OWN)
    launch = find("--rank-table", "--device-range", rank_table=path, device_range="[0,2]")
    with pytest.raises(ConfigError, match="--device-range") as caught:
        located(launch)
    assert caught.value.why == f"this machine is {OWN}, and these ranks are on {OTHERS[0]}"


def test_a_rank_table_whose_servers_differ(tmp_path: Path) -> None:
    merged = merge_rank_tables([("a", make_rank_table(OWN, [0])), ("b", make_rank_table(OTHERS[0], [0, 1]))])
    path = tmp_path / "table.json"
    path.write_text(json.dumps(merged.model_dump()))
    with pytest.raises(DataError, match="different numbers of devices") as caught:
        find("--rank-table", rank_table=path)
    assert caught.value.why.endswith(f"{OWN} has 1, {OTHERS[0]} has 2")
    with pytest.raises(ConfigError, match="--nproc-per-node = 4"):
        find("--rank-table", "--nproc-per-node", rank_table=table(tmp_path, OWN), nproc_per_node=4)
