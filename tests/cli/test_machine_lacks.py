"""Where memory, files or threads run out, that is what is said: not that a device or a peer is missing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock import process
from paddock.devices import availability
from paddock.devices.cuda import CUDA
from paddock.errors import MachineError
from paddock.launch import failure
from paddock.process import machine_lacks
from paddock.testing.tiny import TINY

LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (250_000_000, resource.RLIM_INFINITY))
from paddock.cli.main import main
main(["train", "gpt2/tiny", "--train.steps", "1"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not keep to this limit")
def test_too_little_address_space(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "error: there is too little address space" in done.stderr
    assert "0.23 GiB of it (ulimit -v)" in done.stderr and "ulimit -v unlimited" in done.stderr
    assert not {"CUDA", "cuda", "Traceback"} & set(done.stderr.split())


def test_no_device_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> int:
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr(type(CUDA), "count", full)
    with pytest.raises(MachineError, match="too little") as caught:
        availability.probe(CUDA)
    assert "failed to map segment" in caught.value.why


def test_of_a_rank_too(tmp_path: Path) -> None:
    error = RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried")
    assert failure.record(error, 0, errors=tmp_path / "errors", reports=tmp_path) == 3
    told = failure.read(0, 3, 0.0, tmp_path).to_error(tmp_path)
    assert isinstance(told, MachineError) and "too little" in told.what
    assert machine_lacks(RuntimeError("the bearing broke")) is None
    assert machine_lacks(OSError(errno.ENOENT, "No such file", "x")) is None
    assert machine_lacks(MemoryError()) is not None


def test_files_and_threads_that_run_out() -> None:
    files = machine_lacks(OSError(errno.EMFILE, os.strerror(errno.EMFILE), "METADATA"))
    assert files is not None and "cannot open another file" in files.what and "ulimit -n" in files.why
    threads = machine_lacks(RuntimeError("can't start new thread"))
    assert threads is not None and "cannot start another thread" in threads.what


def test_a_library_that_ran_out_of_memory_while_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ImportError("cannot import name 'NAMES' from 'library.utils'")
    assert machine_lacks(error) is None
    monkeypatch.setattr(process, "_limit", lambda name: 2**29 if name == "RLIMIT_AS" else None)
    told = machine_lacks(error)
    assert told is not None and "NAMES" in told.why and "0.50 GiB" in told.why and "ulimit -v" in told.fix
    assert machine_lacks(ModuleNotFoundError("No module named 'library'")) is None


LEAVING = """
import multiprocessing.util, os, sys
from paddock.process import leave
print(multiprocessing.util.get_temp_dir(), flush=True)
leave(3)
"""


def test_a_process_that_leaves_takes_its_temporary_folder_along(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, env=environment)
    assert done.returncode == 3 and done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


FEW_FILES = """
import os, resource
import torch.distributed
from paddock.cli.main import main
highest = max(map(int, os.listdir("/proc/self/fd")))
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 9, highest + 9))
main(["train", "gpt2/tiny", "--train.steps", "1", "--nproc-per-node", "2", "--run-dir", "run"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_a_store_without_descriptors_is_not_waited_for(tmp_path: Path) -> None:
    """torch's store cannot connect to itself, and would try for half an hour."""
    done = subprocess.run([sys.executable, "-c", FEW_FILES], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "cannot open another file" in done.stderr and "Traceback" not in done.stderr


NO_THREADS = """
import os, threading
start = threading.Thread.start

def fail(thread):
    if os.environ.get("RANK") == "1":
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = fail
"""


def test_a_rank_that_cannot_even_begin_says_why(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_THREADS)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "paddock", "train", *TINY, "--nproc-per-node", "2", "--run-dir", "run"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 3, done.stderr
    assert "cannot start another thread" in done.stderr and "Traceback" not in done.stderr
