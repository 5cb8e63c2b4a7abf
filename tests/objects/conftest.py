"""Stores for tests: ours, which fails when it is told to, and moto, which others wrote, where it is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

import pytest

from paddock.files import user_cache
from paddock.objects import fetch
from paddock.testing.object_server import KEY, SECRET, ObjectServer, object_server

BUCKET = "bucket"


def forget_copies() -> None:
    """Be another machine, that has fetched nothing yet."""
    fetch._copy_of.cache_clear()
    shutil.rmtree(user_cache() / "objects", ignore_errors=True)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings but those that a test makes."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "S3_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "SECONDS_BETWEEN", 0.01)
    forget_copies()
    yield
    forget_copies()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """A function that makes this another machine: other files, nothing fetched."""

    def move() -> None:
        forget_copies()
        (tmp_path / "other-machine").mkdir()
        monkeypatch.chdir(tmp_path / "other-machine")

    return move


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """Our store, which Paddock is told to use."""
    with object_server(BUCKET) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["ours", "moto"])
def any_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Either store, with a bucket in it, by its kind."""
    if request.param == "ours":
        request.getfixturevalue("server")
        yield "ours"
        return
    if find_spec("moto") is None or find_spec("flask") is None:
        pytest.skip("moto is not installed: make test-objects")
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    connection = HTTPConnection(host, port)
    connection.request("PUT", f"/{BUCKET}")
    assert connection.getresponse().status == 200
    settings = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield "moto"
    moto.stop()
