"""`paddock doctor`: the report is true, is JSON, and reads well at 80 columns."""

from __future__ import annotations

import copy
import json
import os
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from paddock.cli.doctor import render, render_job
from paddock.cli.main import run
from paddock.jobs import doctor
from paddock.launch.facts import Facts
from paddock.launch.preflight import Meeting
from paddock.parallel.preflight import Examination, Link, Probe


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor.diagnose()


def shown(report: dict[str, Any], width: int = 80, show: Callable[[dict[str, Any]], Table] = render) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"), color_system=None)  # noqa: SIM115
    console.print(show(report))
    return console.export_text()


def test_report_is_json(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report


def test_report_is_true_of_this_machine(report: dict[str, Any]) -> None:
    import platform

    import torch

    devices = {device["name"]: device for device in report["devices"]}
    assert devices["cpu"]["available"] and devices["cpu"]["count"] == 1
    assert set(devices) >= {"cpu", "cuda", "npu", "mlu", "sdaa", "xpu"}
    assert all(device["reason"] for device in devices.values() if not device["available"])
    assert report["auto"]["device"] in devices
    assert ("gloo" in report["collectives"]) == torch.distributed.is_gloo_available()
    assert ("nccl" in report["collectives"]) == torch.distributed.is_nccl_available()
    assert "fake" not in report["collectives"]
    assert report["host"]["python"] == platform.python_version()
    assert 1 <= report["host"]["cores"] <= (os.cpu_count() or 1)
    assert report["libraries"]["core"]["torch"] == metadata.version("torch")


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux")
def test_memory_is_in_bytes(report: dict[str, Any]) -> None:
    memory = report["host"]["memory"]
    assert 2**28 < memory["available"] <= memory["total"] < 2**50


def test_types_that_are_emulated_are_named(report: dict[str, Any]) -> None:
    types = {"bfloat16": False, "float16": None}
    text = " ".join(shown({**report, "host": {**report["host"], "number_types": types}}).split())
    assert "bfloat16 emulated, slower than float32, float16 unknown" in text
    assert set(report["host"]["number_types"]) == set(types)


def test_core_libraries_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert [line.partition(">")[0] for line in project["dependencies"]] == list(doctor.CORE)


def test_libraries_are_not_imported_to_be_found() -> None:
    import subprocess
    import sys

    code = "import sys; from paddock.jobs import doctor; doctor.diagnose(); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_compiler_is_the_one_torch_would_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "cxx"
    fake.write_text("#!/bin/sh\necho fake++ 1.0 $1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert doctor._compiler() == {"command": str(fake), "version": "fake++ 1.0 --version", "reason": None}
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert (doctor._compiler() or {})["version"] is None


@pytest.mark.parametrize("command", ["touch {0}", "{1} {0}", "sh -c 'touch {0}'", "$(touch {0})", "; touch {0}", " "])
def test_a_compiler_with_arguments_is_not_run(
    command: str, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "fake++"
    fake.write_text('#!/bin/sh\ntouch "$1"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", command.format(tmp_path / "made", fake))
    compiler = doctor._compiler()
    assert compiler is not None and compiler["version"] is None
    assert "not the name or the path of an executable" in str(compiler["reason"])
    assert "not the name or the path" in shown(report | {"compiler": compiler}, width=200)
    assert not (tmp_path / "made").exists()


def test_table_fits_80_columns_and_says_everything(report: dict[str, Any]) -> None:
    text = shown(report)
    assert max(map(len, text.splitlines())) <= 80
    for device in report["devices"]:
        assert f" {device['name']} " in text
    assert "taken by --device auto" in " ".join(text.split())
    for name in (*doctor.CORE, *doctor.OPTIONAL):
        assert name in text


def test_table_shows_what_is_broken_or_missing(report: dict[str, Any]) -> None:
    changed = copy.deepcopy(report)
    changed["devices"][-1] |= {"available": False, "broken": True, "reason": "OSError: [acl] gone"}
    changed["compiler"] = None
    changed["collectives"] = []
    changed["libraries"]["core"]["tyro"] = None
    text = " ".join(shown(changed).split())
    assert "broken: OSError: [acl] gone" in text
    assert "missing: torch.compile on the CPU needs g++" in text
    assert "collectives missing:" in text
    assert "tyro missing: pip install paddock" in text


def test_table_counts_several_devices_once(report: dict[str, Any]) -> None:
    changed = copy.deepcopy(report)
    changed["devices"][1] |= {"available": True, "count": 8, "names": ["Model X"] * 8, "backend": "xyz"}
    assert "yes: 8 × Model X, xyz" in shown(changed)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--recipe", "gpt2/tiny"], "--recipe is about a job of several processes"),
        (["--run-dir", "runs/one", "--device", "cpu"], "--device is about a job"),
        (["--nnodes", "2", "--master-addr", "a", "--preflight", "off"], "leaves nothing to do"),
        (["--nnodes", "2"], "--master-addr = None"),
        (["--nnodes", "1:2", "--rdzv-id", "job", "--master-addr", "127.0.0.1"], "leaves open which machines"),
    ],
)
def test_flags_of_a_job_that_would_be_ignored(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *flags]) == 2
    assert said in capsys.readouterr().err


def test_the_report_of_a_job_fits_into_80_columns() -> None:
    versions = {"paddock": "1.0", "torch": "2.13.0", "torch_npu": "2.13.0"}
    facts = [Facts(number, f"node-{number}", 8, versions, "npu", 8) for number in range(3)]
    meeting = Meeting(facts, {1: 0.0012, 2: -3.25}, {1: 0.0002, 2: 0.0003})
    probes = [Probe(rank, rank // 8, f"node-{rank // 8}", f"npu:{rank % 8}", flops=1e14 + rank) for rank in range(24)]
    links = [Link((0, 1), 2e-5, 1e10), Link((0, 2), 2e-5, 1e10), Link((1, 2), 2e-5, 2e9)]
    note = "machine 1 (node-1) and machine 2 (node-2) exchange data at 20% of the usual speed"
    examined = Examination(probes, "hccl", 3e-5, 2e10, links, [note]).to_dict()
    text = shown({"machines": meeting.to_list(), **json.loads(json.dumps(examined))}, show=render_job)
    assert "24 processes on 3 machines are ready" in text
    assert "2 node-2" in text and "clock -3.250 s" in text and "1 – 2" in text
    assert " ".join(note.split()[-6:]) in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_processes_of_one_machine_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--nproc-per-node", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [probe["rank"] for probe in report["probes"]] == [0, 1] and report["machines"] == report["links"] == []
    assert report["latency"] > 0 and report["bandwidth"] > 0 and report["probes"][1]["flops"] > 0
