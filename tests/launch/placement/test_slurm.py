"""SLURM's lists of nodes, as its manual and its users write them, and the variables of a step."""

from __future__ import annotations

import pytest

from paddock.errors import MachineError
from paddock.launch.placement.slurm import PORTS, expand_nodelist, nodes_left_alone, slurm_step


@pytest.mark.parametrize(
    ("nodelist", "nodes"),
    [
        ("node1", "node1"),
        ("node[01-03,7]", "node01 node02 node03 node7"),
        ("lx[15,18,32-33]", "lx15 lx18 lx32 lx33"),  # of the manual of scontrol
        ("tux[1-3]", "tux1 tux2 tux3"),
        ("n[9-11],d[01-02]", "n9 n10 n11 d01 d02"),
        ("cn-d[003-004,006],login", "cn-d003 cn-d004 cn-d006 login"),
        ("node1,cn-d[03-04],node5,kep-d06", "node1 cn-d03 cn-d04 node5 kep-d06"),
        ("tcn[1-4,12,27,30-33]", "tcn1 tcn2 tcn3 tcn4 tcn12 tcn27 tcn30 tcn31 tcn32 tcn33"),
        ("fcn[1-2,35],tcn[2,6,8]", "fcn1 fcn2 fcn35 tcn2 tcn6 tcn8"),
        ("node[098-102]", "node098 node099 node100 node101 node102"),
        ("node[8-10]", "node8 node9 node10"),
        ("rack[0-1]_blade[2-3]", "rack0_blade2 rack0_blade3 rack1_blade2 rack1_blade3"),
        ("gpu[1-2]-ib", "gpu1-ib gpu2-ib"),
        ("c[3-4,6]d,f", "c3d c4d c6d f"),
        ("a[0,7]b[1][3-4]", "a0b13 a0b14 a7b13 a7b14"),
        ("node-3.example.org,node-[4-5].example.org", "node-3.example.org node-4.example.org node-5.example.org"),
        ("10.0.0.[1-2]", "10.0.0.1 10.0.0.2"),
    ],
)
def test_lists_of_nodes(nodelist: str, nodes: str) -> None:
    assert expand_nodelist(nodelist) == nodes.split()


def test_a_room_full_of_nodes() -> None:
    nodes = expand_nodelist("room[1-3]-rack[1-10]-node[1-18]")
    assert len(set(nodes)) == 540
    assert (nodes[0], nodes[18], nodes[-1]) == ("room1-rack1-node1", "room1-rack2-node1", "room3-rack10-node18")


@pytest.mark.parametrize(
    ("nodelist", "why"),
    [
        ("node[1-3", "do not match"),
        ("node1-3]", "do not match"),
        ("node[1[2]]", "do not match"),
        ("", "gap"),
        ("a,,b", "gap"),
        ("node[]", "no number"),
        ("node[a-c]", "no number"),
        ("node[1-]", "no number"),
        ("node[0-8:2]", "no number"),
        ("node[3-1]", "backwards"),
        ("node[0-999999999]", "more than"),
        ("a[0-999]b[0-999]", "more than"),
    ],
)
def test_lists_that_cannot_be_read(nodelist: str, why: str) -> None:
    with pytest.raises(MachineError, match="cannot be read") as caught:
        expand_nodelist(nodelist)
    assert why in caught.value.why and "--nnodes" in caught.value.fix


STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[01-03,7]",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "SLURM_NODEID": "2",
    "SLURM_PROCID": "2",
}


def test_a_step_of_several_nodes() -> None:
    step = slurm_step(STEP)
    assert step is not None
    assert (step.nodes, step.node) == (("node01", "node02", "node03", "node7"), 2)
    assert step.port in PORTS
    assert slurm_step({**STEP, "SLURM_NODEID": "0"}).port == step.port  # type: ignore[union-attr]
    others = {slurm_step({**STEP, "SLURM_JOB_ID": str(job)}).port for job in range(4700, 4720)}  # type: ignore[union-attr]
    assert len(others) == 20, "jobs that share a node as a rule meet at different ports"
    assert slurm_step({**STEP, "SLURM_STEP_ID": "1"}).port != step.port  # type: ignore[union-attr]


def test_a_step_goes_before_its_job() -> None:
    """A step may have fewer nodes than its job, numbered anew."""
    job = {"SLURM_JOB_NODELIST": "node[01-09]", "SLURM_NNODES": "9", "SLURM_TASKS_PER_NODE": "8(x9)"}
    step = slurm_step(STEP | job)
    assert step is not None and len(step.nodes) == 4
    old = {name: value for name, value in STEP.items() if not name.startswith("SLURM_STEP_N")}
    step = slurm_step({**old, "SLURM_JOB_NODELIST": "node[01-03,7]", "SLURM_NNODES": "4"})
    assert step is not None and step.source == "SLURM_JOB_NODELIST"


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_STEP_ID": ""},
        {"SLURM_STEP_ID": "4294967291"},  # the batch script
        {"SLURM_STEP_ID": "4294967290"},  # salloc's shell
        {"SLURM_STEP_NODELIST": "node01", "SLURM_STEP_NUM_NODES": "1"},
        {"SLURM_STEP_NODELIST": ""},
    ],
)
def test_no_step_of_several_nodes(changed: dict[str, str]) -> None:
    assert slurm_step(STEP | changed) is None
    assert slurm_step({}) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SLURM_STEP_NUM_NODES": "5"}, "counts 5 nodes and lists 4"),
        ({"SLURM_NODEID": "4"}, "which node"),
        ({"SLURM_NODEID": ""}, "which node"),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x4)"}, "starts 8 tasks on a node"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1,2(x3)"}, "starts 2 tasks on a node"),
    ],
)
def test_steps_that_make_no_job(changed: dict[str, str], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        slurm_step(STEP | changed)


def test_a_batch_script_without_srun_uses_one_node() -> None:
    batch = {"SLURM_JOB_ID": "1", "SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "node[1-4]"}
    assert nodes_left_alone(batch) == 4
    assert nodes_left_alone(batch | {"SLURM_STEP_ID": "4294967291"}) == 4
    assert nodes_left_alone(batch | {"SLURM_NNODES": "1"}) == 0
    assert nodes_left_alone(STEP) == 0 and nodes_left_alone({}) == 0
