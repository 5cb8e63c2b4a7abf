"""Bad launch options are refused with exit code 2, before anything starts."""

import subprocess
import sys

import pytest

from paddock.errors import ConfigError
from paddock.launch.environment import process_counts
from paddock.launch.options import LaunchOptions, node_range


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (LaunchOptions(nproc_per_node=0), "--nproc-per-node = 0"),
        (LaunchOptions(nproc_per_node=-2), "--nproc-per-node = -2"),
        (LaunchOptions(nnodes=0), "--nnodes = 0"),
        (LaunchOptions(nnodes=2, node_rank=2, master_addr="a"), "--node-rank = 2"),
        (LaunchOptions(node_rank=-1), "--node-rank = -1"),
        (LaunchOptions(nnodes=2), "--master-addr = None"),
        (LaunchOptions(nproc_per_node=2, master_addr="10.0.0.1"), "--master-addr = 10.0.0.1"),
        (LaunchOptions(nproc_per_node=2, master_port=65536), "--master-port = 65536"),
        (LaunchOptions(max_restarts=-1), "--max-restarts = -1"),
        (LaunchOptions(node_timeout=5), "--node-timeout = 5"),
        (LaunchOptions(nnodes=2, master_addr="a", node_timeout=0), "--node-timeout = 0"),
        (LaunchOptions(nnodes=2, master_addr="a", node_timeout=float("nan")), "--node-timeout = nan"),
        (LaunchOptions(nnodes=2, master_addr="a", rdzv_id="job"), "--rdzv-id = job"),
        (LaunchOptions(nnodes=2, min_nodes=1, master_addr="a"), "--rdzv-id = None"),
        (LaunchOptions(nnodes=2, min_nodes=3, master_addr="a", rdzv_id="job"), "--nnodes = 3:2"),
        (LaunchOptions(nnodes=2, min_nodes=1, node_rank=1, master_addr="a", rdzv_id="job"), "--node-rank = 1"),
    ],
)
def test_refused(options, field):
    with pytest.raises(ConfigError) as caught:
        options.check()
    assert caught.value.what == field
    assert caught.value.exit_code == 2
    assert caught.value.why and caught.value.fix


def test_what_they_say_of_machines():
    elastic = LaunchOptions(nnodes=4, min_nodes=2, rdzv_id="job", master_addr="a")
    assert (elastic.nodes, LaunchOptions(nnodes=4).nodes) == ("2:4", "4")
    lasting = LaunchOptions(nnodes=4, max_restarts=1)
    assert elastic.replaces_machines and lasting.replaces_machines and not LaunchOptions(nnodes=4).replaces_machines


def test_accepted():
    LaunchOptions().check()
    LaunchOptions(nproc_per_node=2, master_addr="localhost", master_port=29501).check()
    several = LaunchOptions(nproc_per_node=4, nnodes=3, node_rank=2, master_addr="10.0.0.1")
    several.check()
    assert several.world_size == 12


def test_options_do_not_import_torch():
    code = "import sys, paddock.launch.options, paddock.launch.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("everywhere", "here", "counts"),
    [
        (None, None, {"nproc_per_node": 3, "nnodes": 2}),
        ("4", "4", {"nproc_per_node": 4, "nnodes": 1}),
        ("6", "2", {"nproc_per_node": 2, "nnodes": 3}),
        ("6", None, {"nproc_per_node": 6, "nnodes": 1}),
    ],
)
def test_options_that_start_as_many_processes_again(everywhere, here, counts, monkeypatch):
    others = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in {**others, "WORLD_SIZE": everywhere, "LOCAL_WORLD_SIZE": here}.items():
        gone = value is None or everywhere is None
        monkeypatch.delenv(name, raising=False) if gone else monkeypatch.setenv(name, value)
    assert process_counts(LaunchOptions(nproc_per_node=3, nnodes=2)) == counts


@pytest.mark.parametrize("given", [["--nnodes", "2:4"], ["--nnodes=2:4"], ["--num-nodes", "2:4"]])
def test_a_range_of_machines_is_two_numbers(given):
    flag = given[0].partition("=")[0]
    assert node_range(["-x", *given, "-y"]) == ["-x", flag, "4", "--min-nodes", "2", "-y"]


def test_a_number_of_machines_is_left_as_it_is():
    for given in (["--nnodes", "2"], ["--nnodes=2"], ["--nnodes"], ["--data.path", "a:b"]):
        assert node_range(given) == given
