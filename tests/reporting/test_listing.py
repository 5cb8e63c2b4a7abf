"""Runs are found and described by what is in their directories; damage is described, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import ConfigError, DataError
from paddock.reporting.details import look_at
from paddock.reporting.listing import describe_run, find_runs, named_run
from paddock.streams import let_every_text_pass
from paddock.testing.samples.run_directories import MadeRun, falling
from paddock.training.run_directory.lock import holder_of, is_held, locked


def state(path: Path) -> str:
    return describe_run(str(path)).state


def test_a_run_that_came_to_its_end(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 101)).checkpoint(50, "best", best=2.25).checkpoint(100, "latest")
    found = describe_run(str(tmp_path / "run"))
    assert (found.state, found.recipe, found.family, found.step, found.total_steps) == (
        *("done", "gpt2/tiny", "gpt2"),
        *(100, 100),
    )
    assert found.loss == falling(100) and (found.speed, found.speed_unit) == (2048.0, "tokens/s")
    assert (found.measure, found.best) == ("loss", 2.5) and found.attempts == 1
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert found.bytes == sum(path.stat().st_size for path in files) > 2000


def test_states(tmp_path: Path) -> None:
    MadeRun(tmp_path / "stopped").attempt(range(1, 41)).checkpoint(43, "latest")
    MadeRun(tmp_path / "killed").attempt(range(1, 41), ends=False)
    MadeRun(tmp_path / "begun").attempt(range(1, 1), ends=False)
    MadeRun(tmp_path / "went on").attempt(range(1, 41), ends=False).attempt(range(31, 101))
    MadeRun(tmp_path / "died again").attempt(range(1, 101)).attempt(range(91, 95), ends=False)
    with suppress(ZeroDivisionError), locked(tmp_path / "locked", "train"):
        shutil.copy(tmp_path / "locked" / ".lock", tmp_path / "kept")
        raise ZeroDivisionError
    (tmp_path / "locked").mkdir()
    (tmp_path / "kept").rename(tmp_path / "locked" / ".lock")
    found = {path.name: state(path) for path in tmp_path.iterdir()}
    assert found == {
        **{"stopped": "stopped", "killed": "failed", "begun": "never began", "went on": "done"},
        **{"died again": "failed", "locked": "never began"},
    }
    assert describe_run(str(tmp_path / "stopped")).step == 43, "it was saved after its last record"


def test_a_loss_that_was_taken_back_is_not_the_last_one(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run").attempt(range(1, 41), ends=False)
    made.attempt(range(21, 21), ends=False)
    found = describe_run(str(tmp_path / "run"))
    assert found.step == 20 and found.loss == falling(20)


def test_the_lock_tells_who_is_running(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 101))
    with locked(tmp_path / "run", "train") as lock:
        assert state(tmp_path / "run") == "running"
        lock.share()
        assert state(tmp_path / "run") == "running"
        holder = holder_of(tmp_path / "run")
        assert holder is not None and holder.verb == "train"
    assert not is_held(tmp_path / "run") and holder_of(tmp_path / "run") is None
    assert state(tmp_path / "run") == "done"


def test_looking_keeps_nobody_out(tmp_path: Path) -> None:
    """One process looks again and again, while another one begins."""
    code = (
        "import sys; from pathlib import Path; from paddock.training.run_directory.lock import is_held\n"
        "print('looks', flush=True)\nwhile True: is_held(Path(sys.argv[1]))"
    )
    (tmp_path / ".lock").touch()
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as looker:
        assert looker.stdout is not None and looker.stdout.readline() == "looks\n"
        for _ in range(20):
            with locked(tmp_path, "train") as lock:
                lock.share()
        looker.kill()


DAMAGE = {
    "no config": lambda run: (run / "config.yaml").unlink(),
    "half a config": lambda run: (run / "config.yaml").write_text("model: {family: gp"),
    "a config of something else": lambda run: (run / "config.yaml").write_text("- 1\n- 2\n"),
    "an environment that is none": lambda run: (run / "environment.json").write_text('{"processes": 3}'),
    "metrics overwritten": lambda run: (run / "metrics.jsonl").write_bytes(b"{\x00}\n" * 50),
    "a checkpoint without its numbers": lambda run: next(run.rglob("checkpoint.json")).write_text("{}"),
    "a folder in place of the metrics": lambda run: ((run / "metrics.jsonl").unlink(), (run / "metrics.jsonl").mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_listed_as_damage(damage: str, tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 101)).checkpoint(100, "latest")
    DAMAGE[damage](tmp_path / "run")
    found = describe_run(str(tmp_path / "run"))
    if damage == "a folder in place of the metrics":
        assert found.state in ("damaged", "stopped", "failed")
        return
    assert found.state == "damaged" and found.why
    assert look_at(str(tmp_path / "run")).entry.state == "damaged"


def test_a_torn_last_line_is_no_damage(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 51), ends=False)
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as stream:
        stream.write(b'{"type": "LOG", "step": [0, 51], "da')
    assert (state(tmp_path / "run"), describe_run(str(tmp_path / "run")).step) == ("failed", 50)


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run", total_steps=9000).attempt(range(1, 3001))
    metrics = tmp_path / "run" / "metrics.jsonl"
    assert metrics.stat().st_size > 2**19
    with open(metrics, "r+b") as stream:  # nobody looks there
        stream.seek(1000)
        stream.write(b"\0" * 1000)
    found = describe_run(str(tmp_path / "run"))
    assert (found.state, found.step, found.loss) == ("stopped", 3000, falling(3000))


def test_runs_are_found_below_folders_and_not_inside_each_other(tmp_path: Path) -> None:
    MadeRun(tmp_path / "a").attempt(range(1, 3))
    MadeRun(tmp_path / "group" / "b").attempt(range(1, 3))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text.txt").touch()
    (tmp_path / "notes" / ".lock").touch()  # somebody else's
    assert find_runs([str(tmp_path)]) == [str(tmp_path / "a"), str(tmp_path / "group" / "b")]
    assert find_runs([str(tmp_path / "a"), str(tmp_path)])[0] == str(tmp_path / "a")
    with pytest.raises(DataError, match="does not exist"):
        find_runs([str(tmp_path / "nowhere")])


def test_the_recipe_is_that_of_the_first_command(tmp_path: Path) -> None:
    named = {"command": ["python", "train", "--model_name", "gpt2/tiny", "--steps", "3"]}
    MadeRun(tmp_path / "flag").attempt(range(1, 3), environment=named)
    MadeRun(tmp_path / "yaml").attempt(range(1, 3), environment={"command": ["paddock", "train", "a/mine.yaml"]})
    MadeRun(tmp_path / "python").attempt(range(1, 3), environment={"command": ["script.py"]})
    MadeRun(tmp_path / "named").attempt(range(1, 3), environment={"command": ["script.py"], "recipe": "gpt2/345m"})
    made = MadeRun(tmp_path / "resumed").attempt(range(1, 3)).attempt(range(3, 5))
    assert made.attempts == 2
    names = {path.name: describe_run(str(path)).recipe for path in tmp_path.iterdir()}
    assert names == {
        "flag": "gpt2/tiny",
        "yaml": "mine",
        "python": "gpt2",
        "named": "gpt2/345m",
        "resumed": "gpt2/tiny",
    }


def test_a_wrong_name_is_told_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MadeRun(Path("runs/tour")).attempt(range(1, 3)).checkpoint(2)
    with pytest.raises(ConfigError) as caught:
        named_run("runs/tuor")
    assert '"runs/tour"' in caught.value.fix
    with pytest.raises(ConfigError, match="in a run") as caught:
        named_run("runs/tour/checkpoints")
    assert "runs/tour" in caught.value.fix
    with pytest.raises(ConfigError, match="is not a run"):
        named_run("runs")


def test_one_run_in_detail(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run").attempt(range(1, 41), ends=False).checkpoint(20, "best")
    made.attempt(range(21, 61), ends=False).checkpoint(50, "latest")
    (tmp_path / "run" / "errors").mkdir()
    (tmp_path / "run" / "errors" / "rank3.txt").write_text("Traceback\nRuntimeError: the bearing broke\n")
    found = look_at(str(tmp_path / "run"))
    assert [(one.number, one.processes, one.device) for one in found.attempts] == [(1, 1, "cpu"), (2, 1, "cpu")]
    assert found.attempts[1].command == f"paddock resume {tmp_path / 'run'}"
    assert [(one.name, one.names) for one in found.checkpoints] == [
        ("step-00000020", ("best",)),
        ("step-00000050", ("latest",)),
    ]
    assert found.facts["optimizer.lr"] == 0.002 and found.last["train.loss"] == falling(60)
    assert "the bearing broke" in found.last_words[-1]
    assert found.next[0] == f"paddock resume {tmp_path / 'run'}"
    assert json.loads(json.dumps(found.to_dict()))["state"] == "failed"


@pytest.mark.parametrize("ending", ["html", "svg", "csv", "json"])
def test_a_name_that_is_no_utf_8_is_shown_by_its_bytes(ending: str, odd_name: str) -> None:
    written = Path(f"report.{ending}")
    assert run(["report", odd_name, "--output", str(written)]) == 0
    assert "r\\udcff" in written.read_text(encoding="utf-8")


def test_it_is_aligned_plotted_and_said_as_a_shell_takes_it(odd_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    let_every_text_pass(as_json=False)  # as the command does
    shutil.copytree(odd_name, "plain")
    run(["align", "plain", odd_name, "--output", "beside.html"])  # made runs have no versions to agree on
    assert "r\\udcff" in Path("beside.html").read_text(encoding="utf-8")
    assert run(["runs", "plot", odd_name, "--output", "plot.svg"]) == 0
    capsys.readouterr()
    assert r"paddock evaluate $'r\xff'" in look_at(odd_name).next


@pytest.fixture
def odd_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    MadeRun(Path(name := os.fsdecode(b"r\xff"))).attempt(range(1, 11)).checkpoint(10, "latest")
    return name
