"""Which of several failures is told, and how errors survive as JSON."""

import signal

import pytest

from paddock import messages
from paddock.errors import ConfigError, UserError
from paddock.launch import failure


def fail_with(error, rank, directory, exit_time=0.0):
    try:
        raise error
    except BaseException as raised:
        code = failure.record(raised, rank, errors=directory / "errors", reports=directory)
    return failure.read(rank, code, exit_time, directory)


def test_a_rank_that_lost_its_peer_is_never_the_first(tmp_path):
    lost = fail_with(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"), 0, tmp_path)
    wrapped = ValueError("step 3 failed")
    wrapped.__cause__ = RuntimeError("Connection reset by peer")
    also_lost = fail_with(wrapped, 1, tmp_path)
    aborted = failure.read(2, -signal.SIGABRT, lost.time + 1, tmp_path)
    killed = failure.read(3, -signal.SIGKILL, lost.time + 2, tmp_path)
    raised = fail_with(KeyError("x"), 4, tmp_path)

    def first(*failures):
        return failure.likely_cause_first(list(failures))[0].rank

    assert first(lost, also_lost, aborted, killed) == 3
    assert first(lost, also_lost, aborted) == 2
    assert first(also_lost, lost) == 0
    assert first(lost, killed, raised) == 4  # both may be the cause: the earlier
    assert "lost its connection" in lost.to_error(tmp_path).why
    assert raised.to_error(tmp_path).why == ""


class OurOwn(ConfigError):
    """An error class with a constructor of its own, outside the package."""

    def __init__(self):
        super().__init__("a", why="b", fix="c")
        self.exit_code = 11


def test_user_errors_survive(tmp_path, monkeypatch):
    monkeypatch.setattr(
        messages, "is_known", lambda module: module.startswith("paddock.")
    )  # others may have added more
    error = fail_with(ConfigError("a", why="b", fix="c"), 0, tmp_path).to_error(tmp_path)
    assert type(error) is ConfigError
    assert (str(error), error.exit_code) == ("a\n  why: b\n  fix: c", 2)
    # A class that is not in the package is not imported: a report must not choose what code runs.
    error = fail_with(OurOwn(), 1, tmp_path).to_error(tmp_path)
    assert type(error) is UserError
    assert (str(error), error.exit_code) == ("a\n  why: b\n  fix: c", 11)


@pytest.mark.parametrize(("error", "code"), [(SystemExit(5), 5), (SystemExit("no"), 1), (KeyError("x"), 1)])
def test_exit_code_of_the_rank(error, code, tmp_path):
    assert fail_with(error, 0, tmp_path).exit_code == code


def test_an_unwritable_run_directory_does_not_hide_the_error(tmp_path):
    (tmp_path / "errors").write_text("a file where the directory should be")
    assert fail_with(KeyError("gone"), 0, tmp_path).describe() == "rank 0 failed: KeyError: 'gone'"
