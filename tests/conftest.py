"""What the tests share: a cache of their own, and one small trained run."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from xdist.scheduler.loadfile import LoadFileScheduling

from paddock.cli.main import run
from paddock.devices import threads
from paddock.testing.hosts import why_no_hosts
from paddock.testing.tiny import TINY

Run = Callable[..., int]

# No test depends on how fast the machine is. Whoever develops draws new examples each time; a gate always draws the
# same, so that it judges the change and not the draw.
settings.register_profile(
    "paddock", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("paddock")

if "PYTEST_XDIST_WORKER" in os.environ:  # several test processes share the cores
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))


# Tests in the background, or behind nohup, show all the same what a terminal's signals do.
for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


class FilesAndProcesses(LoadFileScheduling):
    """Each test process takes a file at a time; one takes all tests of `tests/distributed`. Processes that wait for
    each other take many times as long where others' processes take the cores in turns with them."""

    def _split_scope(self, nodeid: str) -> str:
        return PROCESSES if nodeid.startswith(PROCESSES) else super()._split_scope(nodeid)


PROCESSES = "tests/distributed/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndProcesses:
    return FilesAndProcesses(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They begin first, since they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(PROCESSES))


def pytest_runtest_setup() -> None:
    """What a test draws from torch's own generator is the same whichever tests ran before it, and where."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests() -> Iterator[None]:
    """Prepared corpora go to a folder that disappears, not to the user's cache."""
    with tempfile.TemporaryDirectory(prefix="paddock-tests-") as folder:
        previous = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = folder
        yield
        if previous is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = previous


@pytest.fixture(scope="session", autouse=True)
def threads_of_the_tests() -> Iterator[None]:
    """A Trainer has the same number in every test, whatever else the machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "busy_now", lambda: None)
        yield


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of a model that was trained for six steps. Read it, do not change it."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    assert run(["train", *TINY, "--run-dir", str(run_dir)]) == 0
    return run_dir


@pytest.fixture(scope="session")
def network() -> None:
    """For tests with `paddock.testing.hosts`, which not every machine permits."""
    if (reason := why_no_hosts()) is not None:
        pytest.skip(reason)
