"""The process that forks workers: it is none of theirs, and its death is theirs."""

import json
import os
import sys

import pytest

from paddock.launch import fork_server as module
from paddock.launch.fork_server import fork_server
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.testing.processes import is_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked")


def test_a_server_serves_job_after_job_until_a_library_would_be_loaded_otherwise(tmp_path, monkeypatch):
    def served_by() -> int:
        target = "paddock.testing.jobs:all_reduce_job"
        run(target, {"directory": str(tmp_path)}, LaunchOptions(nproc_per_node=2), tmp_path)
        assert json.loads((tmp_path / "rank1.json").read_text())["sum"] == 3
        (server,) = module._idle
        return server._process.pid

    first = served_by()
    assert served_by() == first
    monkeypatch.setenv("OMP_SCHEDULE", "static")
    assert served_by() != first
    assert is_gone(first)


def test_a_worker_that_cannot_be_forked_is_an_error_and_the_server_goes_on(tmp_path):
    with fork_server() as server, open(os.devnull, "w") as nowhere:
        gone = server.fork(str(tmp_path / "missing.json"), dict(os.environ), nowhere.fileno(), nowhere.fileno())
        assert gone.wait() == 1
        assert server.is_idle
