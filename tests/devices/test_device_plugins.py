"""Vendors' plug-ins, made up: one that works, one without a device, one that crashes on import.

Each runs in its own process, because torch takes one plug-in for the life of a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.testing.commands import paddock
from paddock.testing.simulated import write_package
from paddock.testing.tiny import TINY, losses

BROKEN = 'raise OSError("libascendcl.so: cannot open shared object file [acl]\\nand more")'

# A device written in Python, brought to torch as a vendor's package brings a real one.
PLUGIN = """
__version__ = "3.2.0"

from torch.utils import backend_registration


class Module(backend_registration._DummyBackendModule):
    calls = []

    def get_device_name(self, index=None):
        return "TECO_AICARD_01"

    def synchronize(self):
        self.calls.append("synchronize")

    def max_memory_allocated(self):
        return 4096

    def device_count(self):
        return COUNT


class Hook(backend_registration._DummyPrivateUse1Hook):
    def is_available(self):
        return COUNT > 0


backend_registration._setup_privateuseone_for_python_backend("sdaa", Module(), Hook())
"""
WORKING = f"COUNT = 1\n{PLUGIN}"
EMPTY = f"COUNT = 0\n{PLUGIN}"

Run = Callable[..., str]


@pytest.fixture
def run_with_package(tmp_path: Path) -> Run:
    """Run code in a fresh process that has a made-up package on its path; gives what it printed."""

    def run(code: str, **packages: str) -> str:
        for name, source in packages.items():
            (tmp_path / f"{name}.py").write_text(source)
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_auto_takes_the_accelerator_that_is_there(run_with_package: Run) -> None:
    out = run_with_package(
        """
from paddock.devices import adapter_named, probe, select
from paddock.errors import MachineError
device = select("auto")
found = probe(device)
device.activate(0)
device.synchronize()
import torch
try:
    device.activate(1)
except MachineError as error:
    refusal = error.fix
print(device.name, found.available, found.count, found.version, found.names, found.reason == "")
print(device.torch_device(0), device.memory_used(), torch.sdaa.calls, refusal)
print(probe(adapter_named("cuda")).reason)
""",
        torch_sdaa=WORKING,
    )
    lines = out.splitlines()
    assert lines[0] == "sdaa True 1 3.2.0 ('TECO_AICARD_01',) True"
    assert lines[1] == "sdaa:0 4096 ['synchronize'] --nproc-per-node 1, or fewer"
    assert "here it is sdaa" in lines[2]


def test_plugin_without_a_device(run_with_package: Run) -> None:
    out = run_with_package(
        """
from paddock.devices import adapter_named, probe, select
found = probe(adapter_named("sdaa"))
print(found.available, found.broken, found.version, found.reason)
print(select("auto").name)
""",
        torch_sdaa=EMPTY,
    )
    assert out.splitlines() == [
        "False False 3.2.0 no sdaa device is visible to this process: check the driver",
        "cpu",
    ]


def test_plugin_that_crashes_is_reported_and_never_ignored(run_with_package: Run) -> None:
    out = run_with_package(
        """
from paddock.devices import adapter_named, probe, select
from paddock.errors import MachineError
found = probe(adapter_named("npu"))
print(found.available, found.broken, found.reason)
for name in ("npu", "auto"):
    try:
        print(select(name).name)
    except MachineError as error:
        print(name, error.exit_code, error.why)
print(select("cpu").name)
""",
        torch_npu=BROKEN,
    )
    reason = "torch_npu is installed but failed: OSError: libascendcl.so: cannot open shared object file [acl]"
    assert out.splitlines() == [f"False True {reason}", f"npu 3 {reason}", f"auto 3 {reason}", "cpu"]


def test_a_package_with_an_entry_point_is_trained_on(tmp_path: Path, trained_run: Path) -> None:
    """A device that no file of ours knows: its package says what it is, in every process of a job."""
    site, there = tmp_path / "site", tmp_path / "there"
    write_package(site)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    words = [*TINY, "--device", "simulated", "--train.steps", "2", "--run-dir", str(there)]
    refused = paddock("train", *words)
    assert refused.returncode == 2 and "there is no such device" in refused.stderr, refused.stderr
    done = paddock("train", *words, "--nproc-per-node", "2", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert losses(there)[0] == pytest.approx(losses(trained_run)[0], rel=1e-5) and len(losses(there)) == 2
    environment = json.loads((there / "environment.json").read_text())
    assert "simulated" in json.dumps(environment)
