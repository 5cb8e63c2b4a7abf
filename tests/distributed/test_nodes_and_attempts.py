"""Training runs of several machines, and of several attempts: one run directory, and one word about what went wrong.

The machines are launchers on this one; they share a filesystem, or each works in a folder of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import saved_tensors
from paddock.data.language.embedded import embedded_documents
from paddock.errors import DataError
from paddock.telemetry.jsonl import read_metrics
from paddock.testing.commands import Command, paddock
from paddock.testing.processes import reserved_port
from paddock.testing.tiny import TINY, losses

Done = list[tuple[int, str]]


def on_two_nodes(*arguments: str, folders: list[Path], caches: list[Path] | None = None, late: bool = False) -> Done:
    """`paddock train` on two machines, each in its folder: exit code and standard error of both. The second one comes
    late, if so asked: when the first has made its run directory, and the clock shows another second. (A preflight would
    wait for the second one.)"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["train", *TINY, *arguments, "--nnodes", "2"]
    command += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command += ["--preflight", "off"] if late else []
    nodes: list[Command] = []
    try:
        for rank, folder in enumerate(folders):
            if late and rank == 1:
                while not list(folder.glob("runs/*/config.yaml")) and nodes[0].poll() is None:
                    time.sleep(0.1)
                time.sleep(1)
            environment = os.environ | ({"XDG_CACHE_HOME": str(caches[rank])} if caches else {})
            nodes.append(Command(*command, "--node-rank", str(rank), cwd=folder, environment=environment))
        said = [node.communicate()[1] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    return [(node.wait(), words) for node, words in zip(nodes, said, strict=True)]


@pytest.mark.parametrize(
    "named", [pytest.param(True, id="with --run-dir", marks=pytest.mark.slow), pytest.param(False, id="without")]
)
def test_two_nodes_on_one_filesystem_share_a_run_directory(named: bool, tmp_path: Path) -> None:
    done = on_two_nodes(*(["--run-dir", "runs/one"] if named else []), folders=[tmp_path, tmp_path], late=True)
    assert [code for code, _ in done] == [0, 0], done
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert len(losses(run_dir)) == 6
    files = json.loads((run_dir / "checkpoints" / "latest" / "checkpoint.json").read_text())["files"]
    assert len(files) == 2
    assert "step     6/6" in done[0][1] and done[1][1] == ""


def test_simulated_nodes_give_the_losses_of_one_process(trained_run: Path, tmp_path: Path) -> None:
    """One command on one machine: two launchers, one run directory, the output of the first."""
    done = paddock("train", *TINY, "--simulate-nodes", "2", "--run-dir", "runs/one", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("step     6/6  loss") == 1
    run_dir = tmp_path / "runs" / "one"
    assert losses(run_dir) == pytest.approx(losses(trained_run), rel=1e-5)
    processes = json.loads((run_dir / "environment.json").read_text())["processes"]
    assert (processes["nproc_per_node"], processes["nnodes"]) == (1, 2)


@pytest.mark.slow
def test_an_error_of_simulated_nodes_is_told_with_its_exit_code(tmp_path: Path) -> None:
    bad = ["--optimizer.lr", "1e30", "--optimizer.clip", "None", "--schedule.warmup", "0", "--checkpoint.every", "None"]
    done = paddock("train", *TINY, *bad, "--simulate-nodes", "2", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert "\nerror: " in done.stderr


def rank_table(folder: Path) -> Path:
    """Of two servers with a device each, which are both this machine."""
    servers = []
    for rank in (0, 1):
        devices = [{"device_id": "0", "device_ip": f"192.1.27.{rank + 6}", "rank_id": str(rank)}]
        servers.append({"server_id": f"127.0.0.{rank + 1}", "device": devices, "host_nic_ip": "reserve"})
    table = {"version": "1.0", "server_count": "2", "server_list": servers, "status": "completed"}
    (folder / "table.json").write_text(json.dumps(table))
    return folder / "table.json"


@pytest.mark.parametrize(
    "form",
    [
        "MindFormers' rank table",
        pytest.param("LiBai's variables", marks=pytest.mark.slow),
        pytest.param("OneFlow-GPT's flags", marks=pytest.mark.slow),
        pytest.param("SLURM's step", marks=pytest.mark.slow),
    ],
)
def test_the_forms_in_which_users_start_two_nodes(form: str, trained_run: Path, tmp_path: Path) -> None:
    """The same command on both, with what those systems say of a node; the losses are those of one process."""
    command = ["train", *TINY, "--schedule.decay-steps", "6"]
    length, place = ("--train-iters", "--save") if "OneFlow" in form else ("--steps", "--run-dir")
    command += [length, "2", place, "runs/one"]
    with reserved_port() as port:
        flags: list[list[str]] = [[], []]
        variables: list[dict[str, str]] = [{}, {}]
        if form == "MindFormers' rank table":
            table = ["--rank-table", str(rank_table(tmp_path)), "--master-port", str(port), "--device-range"]
            flags = [[*table, "[0,1]"], [*table, "[1,2]"]]
        elif form == "LiBai's variables":
            said = {"NODE": "2", "ADDR": "127.0.0.1", "PORT": str(port)}
            variables = [{**said, "NODE_RANK": str(rank)} for rank in (0, 1)]
        elif form == "OneFlow-GPT's flags":
            size = ["--num-nodes", "2", "--num-gpus-per-node", "1", "--tensor-model-parallel-size", "2"]
            size += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
            flags = [[*size, "--node-rank", str(rank)] for rank in (0, 1)]
        else:
            flags = [["--master-port", str(port)]] * 2
            step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "127.0.0.[1-2]"}
            step |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
            variables = [{**step, "SLURM_NODEID": str(rank)} for rank in (0, 1)]
        nodes = [
            Command(*command, *own, cwd=tmp_path, environment=os.environ | said)
            for own, said in zip(flags, variables, strict=True)
        ]
        words = [node.communicate()[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], words
    assert losses(tmp_path / "runs" / "one") == pytest.approx(losses(trained_run)[:2], rel=1e-5)
    from_environment = form in ("LiBai's variables", "SLURM's step")
    assert ("note: node 1 of 2, which meet at 127.0.0.1" in words[1]) == from_environment


def test_a_run_directory_that_is_taken_is_refused_on_every_node(trained_run: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in trained_run.rglob("*"))
    done = on_two_nodes("--run-dir", str(trained_run), folders=[tmp_path, tmp_path])
    assert [code for code, _ in done] == [2, 2], done
    for _, words in done:
        assert words.count("error:") == 1
        assert words.count("already holds a run") == 1
        assert words.count("--checkpoint.load auto") == 1
    assert done[1][1].startswith("error: machine 0: ")
    assert sorted(path.name for path in trained_run.rglob("*")) == before


@pytest.mark.slow
def test_nodes_without_a_common_filesystem_prepare_their_own_data(tmp_path: Path) -> None:
    folders, caches = ([tmp_path / f"{what}{rank}" for rank in (0, 1)] for what in ("node", "cache"))
    for folder in folders:
        folder.mkdir()
    bad = "--checkpoint.every", "None", "--optimizer.lr", "1e30", "--optimizer.clip", "None", "--schedule.warmup", "0"
    done = on_two_nodes(*bad, folders=folders, caches=caches)
    assert [code for code, _ in done] == [5, 5], done
    assert all(list((cache / "paddock").glob("**/corpus_text_document.bin")) for cache in caches)
    (run_dir,) = (folders[0] / "runs").iterdir()
    assert (run_dir / "config.yaml").exists()
    assert [path.name for path in (folders[1] / "runs").iterdir()] == [run_dir.name]
    assert [path.name for path in (folders[1] / "runs" / run_dir.name / "errors").iterdir()] == ["rank1.txt"]


def test_nodes_without_a_common_filesystem_keep_their_parts(tmp_path: Path) -> None:
    """Both say so, checkpoints lie in two places, and one that is to be loaded names the machine that has the rest."""
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for folder in folders:
        folder.mkdir()
    done = on_two_nodes("--run-dir", "runs/one", "--checkpoint.every", "2", "--checkpoint.keep", "2", folders=folders)
    assert [code for code, _ in done] == [0, 0], done
    here, there = (folder / "runs" / "one" for folder in folders)
    host = socket.gethostname()
    assert "does not share runs/one with machine 0; its part of checkpoints" in done[1][1] and str(there) in done[1][1]
    assert done[0][1].count("the machines share no storage") == 1 and f"{host}:{there}" in done[0][1]
    kept = sorted(path.name for path in (here / "checkpoints").glob("step-*"))
    assert kept[-1] == "step-00000006" and "step-00000002" not in kept, "the oldest one is dropped"
    for run_dir, file in ((here, "shard-00000.safetensors"), (there, "shard-00001.safetensors")):
        checkpoints = run_dir / "checkpoints"
        assert sorted(path.name for path in checkpoints.glob("step-*")) == kept
        assert [path.name for path in (checkpoints / kept[0]).glob("shard-*")] == [file]
        assert not list(checkpoints.glob(".*")), "nothing half written, and no mark"
    with pytest.raises(DataError, match=f"lacks parts that {host} keeps") as caught:
        saved_tensors(find_checkpoint(here))
    assert f"shard-00001.safetensors is in {host}:{there}/checkpoints/step-00000006" in caught.value.why
    with pytest.raises(DataError, match="holds a part of a checkpoint only"):
        find_checkpoint(there)
    newest = here / "checkpoints" / kept[-1]
    shutil.copy(there / "checkpoints" / kept[-1] / "shard-00001.safetensors", newest)
    assert saved_tensors(newest)


def test_what_one_node_lacks_stops_all(trained_run: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for folder in folders:
        folder.mkdir()
    shutil.copy(trained_run / "tokenizer.json", folders[0])
    done = on_two_nodes("--tokenizer.kind", "file", "--tokenizer.path", "tokenizer.json", folders=folders)
    assert [code for code, _ in done] == [4, 4], done
    assert "error: machine 1: there is no tokenizer file" in done[0][1]
    assert "error: there is no tokenizer file" in done[1][1]


def test_other_data_on_one_node_stops_all(tmp_path: Path) -> None:
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for rank, folder in enumerate(folders):
        folder.mkdir()
        (folder / "book.txt").write_text("\n\n".join(embedded_documents()[: 30 + rank]), encoding="utf-8")
    book = ["--data.source", "text", "--data.path", "book.txt", "--data.cache", "cache"]
    done = on_two_nodes(*book, folders=folders)
    assert [code for code, _ in done] == [3, 3], done
    assert "error: machine 1: " in done[0][1] and "has other data than machine 0" in done[0][1]
    assert "why: training data: " in done[1][1] and "on machine 0" in done[1][1]


DIES = """
import os, sys
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.cli.main import main

def save_and_die(*arguments, **options):
    save(*arguments, **options)
    if os.environ["RANK"] == "1" or os.environ["WORLD_SIZE"] == "1":
        os._exit(9)

def die(*arguments, **options):
    os._exit(9)

when = sys.argv.pop(1)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    save = CheckpointDirectory.save
    CheckpointDirectory.save = save_and_die if when == "after" else die
main()
"""


def with_torchrun(folder: Path, script: str, *arguments: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a script under a user's torchrun, which restarts it once."""
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    command += ["--nproc-per-node", str(processes), "script.py", *arguments]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("processes", "named"), [pytest.param(1, True, marks=pytest.mark.slow), (2, False)])
def test_a_restarted_attempt_goes_on(processes: int, named: bool, tmp_path: Path) -> None:
    where = ["--run-dir", "runs/one"] if named else []
    done = with_torchrun(tmp_path, DIES, "after", "train", *TINY, *where, processes=processes)
    assert done.returncode == 0, done.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert len(losses(run_dir)) == 6
    assert done.stderr.count("step     1/6") == 1, done.stderr
    assert done.stderr.count("step     6/6  loss") == 1
    assert sorted(path.name for path in (run_dir / "attempts").iterdir()) == ["1", "2"]
    assert {record["attempt"] for record in read_metrics(run_dir / "metrics.jsonl")} == {1, 2}
    assert "step-00000003, step 3" in done.stderr


@pytest.mark.slow
def test_an_attempt_without_a_checkpoint_begins_as_the_first_did(trained_run: Path, tmp_path: Path) -> None:
    origin = ["--checkpoint.load", str(trained_run), "--checkpoint.weights-only", "--run-dir", "runs/one"]
    done = with_torchrun(tmp_path, DIES, "before", "train", *TINY, *origin)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"weights of {trained_run}") == 2
    assert len(losses(tmp_path / "runs" / "one")) == 6


def test_a_restart_does_not_go_on_in_a_directory_that_was_refused(trained_run: Path, tmp_path: Path) -> None:
    done = with_torchrun(
        tmp_path, "from paddock.cli.main import main; main()", "train", *TINY, "--run-dir", str(trained_run)
    )
    assert done.returncode != 0
    assert done.stderr.count("already holds a run") == 2  # once in each attempt
