"""Packages from outside, in a folder on the path: found by name, refused in plain words, known to workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import plugins
from paddock.cli.doctor import render
from paddock.devices import adapter_named, all_adapters, device_names, registry, select
from paddock.errors import ConfigError, DataError, MachineError
from paddock.jobs.doctor import diagnose
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run

TWO = LaunchOptions(nproc_per_node=2)
DEVICE = """
from dataclasses import replace
from paddock.devices.cpu import CPU

ADAPTER = replace(CPU, name="abacus", install="beads")
"""
JOBS = """
import json, os
from dataclasses import replace
from paddock import devices, errors
from paddock.devices.cpu import CPU

class GateError(errors.DataError):
    pass

devices.register(replace(CPU, name="counting-frame"))

def look(payload):
    rank = os.environ["RANK"]
    found = devices.select(payload["device"]).name
    open(f"{payload['directory']}/rank{rank}.json", "w").write(json.dumps(found))

def fail(payload):
    raise GateError("the gate is shut")
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put modules, and the metadata of a distribution that has them, where Python looks."""
    monkeypatch.setattr(registry, "_ADAPTERS", dict(registry._ADAPTERS))
    monkeypatch.setattr(plugins, "_modules", {})

    def install(distribution: str = "beads", entries: str = "", **modules: str) -> Path:
        folder = tmp_path / distribution
        metadata = folder / f"{distribution}-1.5.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (metadata / "entry_points.txt").write_text(entries)
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(source)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(folder))
        return folder

    return install


def test_a_device_of_another_package_is_one_of_ours(install: Install) -> None:
    install(entries="[paddock.devices]\nabacus = beads_device:ADAPTER\n", beads_device=DEVICE)
    assert "beads_device" not in sys.modules
    assert device_names()[-1] == "abacus"
    assert "beads_device" not in sys.modules, "a list of names imports nothing"
    assert select("abacus") is adapter_named("abacus")
    assert adapter_named("abacus").install == "beads"
    assert all_adapters()[-1].name == "abacus"
    assert plugins.modules_for_workers() == ["beads_device"]


def test_a_misspelt_name_is_compared_with_theirs_too(install: Install) -> None:
    install(entries="[paddock.devices]\nabacus = beads_device:ADAPTER\n", beads_device=DEVICE)
    with pytest.raises(ConfigError) as error:
        adapter_named("abbacus")
    assert '"abacus"' in error.value.fix


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('raise OSError("libbeads.so: cannot open\\nand more")', "OSError: libbeads.so: cannot open"),
        ("raise SystemExit", "SystemExit: no message"),
        ("OTHER = 1", "AttributeError: "),
        ('ADAPTER = "a string"', "it is a str, and not a DeviceAdapter"),
        (DEVICE.replace("abacus", "slide-rule"), 'the adapter calls itself "slide-rule"'),
    ],
)
def test_a_broken_package_is_named(source: str, words: str, install: Install) -> None:
    install(entries="[paddock.devices]\nabacus = beads_device:ADAPTER\n", beads_device=source)
    with pytest.raises(MachineError) as error:
        adapter_named("abacus")
    assert error.value.exit_code == 3
    assert error.value.why.startswith(f"beads 1.5 (beads_device:ADAPTER): {words}")
    assert "and more" not in str(error.value)
    with pytest.raises(MachineError):  # who installed it means to use it
        select("auto")
    report = diagnose()
    (entry,) = (device for device in report["devices"] if device["name"] == "abacus")
    assert entry["broken"] and not entry["available"] and "beads 1.5" in entry["reason"]
    assert report["auto"]["device"] is None
    render(report)


def test_two_packages_with_one_name(install: Install) -> None:
    for distribution in ("beads", "pearls"):
        install(distribution, "[paddock.tasks]\ncounting = json:dumps\n")
    assert plugins.names("tasks") == ["counting"]
    with pytest.raises(MachineError, match=r'several packages bring "counting".*beads 1.5.*pearls 1.5|pearls.*beads'):
        plugins.find("tasks", "counting")


def test_what_nobody_brings(install: Install) -> None:
    assert plugins.find("tasks", "counting") is None
    assert "counting" not in plugins.names("tasks")


def test_workers_import_what_registered_itself_here(install: Install, tmp_path: Path) -> None:
    install(beads_jobs=JOBS)
    with pytest.raises(ConfigError, match="cannot launch"):
        run("beads_jobs:look", {}, TWO, tmp_path)
    __import__("beads_jobs")
    payload = {"directory": str(tmp_path), "device": "counting-frame"}
    run("beads_jobs:look", payload, TWO, tmp_path)
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank{rank}.json").read_text()) == "counting-frame"
    with pytest.raises(DataError, match="the gate is shut") as error:
        run("beads_jobs:fail", payload, TWO, tmp_path)
    assert type(error.value).__name__ == "GateError"


def test_workers_find_what_is_installed_where_this_process_looks(install: Install, tmp_path: Path) -> None:
    install(entries="[paddock.devices]\nabacus = beads_device:ADAPTER\n", beads_device=DEVICE, beads_jobs=JOBS)
    __import__("beads_jobs")
    run("beads_jobs:look", {"directory": str(tmp_path), "device": "abacus"}, TWO, tmp_path)
    assert json.loads((tmp_path / "rank1.json").read_text()) == "abacus"


def test_a_module_that_workers_cannot_import_is_told(install: Install, tmp_path: Path) -> None:
    plugins.remember("made_up_in_memory")
    with pytest.raises(MachineError, match="made_up_in_memory cannot be imported in a worker process"):
        run("paddock.testing.jobs:report_job", {"directory": str(tmp_path)}, TWO, tmp_path)


def test_what_a_script_registers_itself_stays_in_its_process(install: Install, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
from pathlib import Path
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
{JOBS}
payload = {{"directory": {str(tmp_path)!r}}}
run("paddock.testing.jobs:report_job", payload, LaunchOptions(), Path({str(tmp_path)!r}))
print("one")
run("paddock.testing.jobs:report_job", payload, LaunchOptions(nproc_per_node=2), Path({str(tmp_path)!r}))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout == "one\n"
    assert "ConfigError: what this script or notebook registers is unknown to other processes" in done.stderr


def test_nothing_is_scanned_for_our_own() -> None:
    code = "import sys; from paddock.devices import adapter_named; adapter_named('cpu')"
    code += "; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
