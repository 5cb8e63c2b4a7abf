"""The calls of dllogger: a ported script changes its import, and its log is valid, its own, and never lost."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paddock.errors import ConfigError, MachineError
from paddock.telemetry import dllogger
from paddock.telemetry.dllogger import JSONStreamBackend, Logger, StdOutBackend, Verbosity
from paddock.telemetry.logs import LogFile

SCRIPT = """
import os
from tcap_dllogger import Logger, StdOutBackend, JSONStreamBackend, Verbosity
json_logger = Logger(
    [
        StdOutBackend(Verbosity.DEFAULT),
        JSONStreamBackend(Verbosity.VERBOSE, 'dlloger_example.json'),
    ]
)
json_logger.metadata("train.loss", {"unit": "", "GOAL": "MINIMIZE", "STAGE": "TRAIN"})
json_logger.metadata("train.ips",{"unit": "imgs/s", "format": ":.3f", "GOAL": "MAXIMIZE", "STAGE": "TRAIN"})
for epoch, step, loss, ips in ((0, 0, 3.5, 812.12345), (0, 1, 3.25, 811.0)):
    json_logger.log(
    step = (epoch, step),
    data = {
            "rank":os.environ["LOCAL_RANK"],
            "train.loss":loss,
            "train.ips":ips,
            },
    verbosity=Verbosity.DEFAULT,
    )
"""
"""As the adaptation guide of the ModelZoo writes it."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One process, in a folder of its own."""
    for name in dllogger.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a file that must be valid JSON."""

    def forbid(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return [json.loads(line, parse_constant=forbid) for line in path.read_text(encoding="utf-8").splitlines()]


def logger_to(path: str | Path, **options: Any) -> Logger:
    return Logger([JSONStreamBackend(Verbosity.VERBOSE, path, **options)])


def test_a_ported_script_changes_its_import_alone(tmp_path: Path) -> None:
    script = SCRIPT.replace("from tcap_dllogger", "from paddock.telemetry.dllogger")
    environment = {**os.environ, "LOCAL_RANK": "0"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    first, second = done.stdout.splitlines()
    assert re.fullmatch(
        r"DLL .* - Epoch: 0 Iteration: 0  rank : 0  train.loss : 3.5  train.ips : 812.123 imgs/s", first
    )
    assert "Iteration: 1" in second and "811.000 imgs/s" in second
    loss, ips, *logs = lines_of(tmp_path / "dlloger_example.json")
    assert loss["metric"] == "train.loss" and loss["type"] == "METADATA"
    assert ips["metadata"] == {"unit": "imgs/s", "format": ":.3f", "GOAL": "MAXIMIZE", "STAGE": "TRAIN"}
    assert [record["step"] for record in logs] == [[0, 0], [0, 1]]
    assert logs[0]["data"] == {"rank": "0", "train.loss": 3.5, "train.ips": 812.12345}
    assert {"timestamp", "elapsedtime", "datetime"} <= logs[0].keys()
    assert [record["type"] for record in LogFile(tmp_path / "dlloger_example.json")] == ["METADATA"] * 2 + ["LOG"] * 2


def test_torch_is_not_imported() -> None:
    code = "import sys, paddock.telemetry.dllogger; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("form", "value", "said"),
    [
        (":.3f", 1.23456, "1.235 imgs/s"),
        (".3f", 1.23456, "1.235 imgs/s"),
        ("{:.3f}", 1.23456, "1.235 imgs/s"),
        (":.3f", torch.tensor(1.23456), "1.235 imgs/s"),
        (":.3f", np.float32(2), "2.000 imgs/s"),
        (":.3f", math.nan, "nan imgs/s"),
        (":.3f", "fast", "fast imgs/s"),
        (":.3f", None, "None imgs/s"),
        (":nonsense", 1.5, "1.5 imgs/s"),
        ("", 1.5, "1.5 imgs/s"),
    ],
)
def test_format_and_unit_count_on_standard_output(
    form: str, value: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = Logger([StdOutBackend(Verbosity.DEFAULT)])
    logger.metadata("train.ips", {"format": form, "unit": "imgs/s"})
    logger.log((0, 1), {"train.ips": value}, verbosity=Verbosity.DEFAULT)
    assert capsys.readouterr().out.endswith(f" - Epoch: 0 Iteration: 1  train.ips : {said}\n")


def test_verbosity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backends = [
        StdOutBackend(Verbosity.DEFAULT),
        StdOutBackend(Verbosity.OFF),
        JSONStreamBackend(Verbosity.VERBOSE, "a.json"),
    ]
    logger = Logger(backends)
    logger.log((0, 1), {"a": 1}, verbosity=Verbosity.DEFAULT)
    logger.log((0, 2), {"a": 1})  # verbose, as theirs
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert [record["step"] for record in lines_of(tmp_path / "a.json")] == [[0, 1], [0, 2]]


def test_an_existing_file_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.json").write_text("the log of another day")
    for number in (2, 3):
        logger_to("log.json").log((0, number), {"a": 1})
        assert f"log-{number}.json" in capsys.readouterr().err
    assert (tmp_path / "log.json").read_text() == "the log of another day"
    assert [lines_of(tmp_path / f"log-{number}.json")[0]["step"] for number in (2, 3)] == [[0, 2], [0, 3]]


def test_every_rank_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in ("0", "1", "12"):
        monkeypatch.setenv("RANK", rank)
        logger_to("deep/log.json").log((0, 1), {"rank": rank})
    names = {"log.json": "0", "log.rank1.json": "1", "log.rank12.json": "12"}
    assert {path.name: lines_of(path)[0]["data"]["rank"] for path in (tmp_path / "deep").iterdir()} == names


def test_rank_0_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(variable, "3")
        logger = Logger([JSONStreamBackend(0, "log.json", ranks="main"), StdOutBackend(0, ranks="main")])
        logger.log((0, 1), {"a": 1}, verbosity=0)
        assert list(tmp_path.iterdir()) == [] and capsys.readouterr().out == ""
        monkeypatch.delenv(variable)
    monkeypatch.setenv("RANK", "no number")
    logger_to("log.json", ranks="main").log((0, 1), {"a": 1})
    assert (tmp_path / "log.json").exists()
    with pytest.raises(ConfigError, match="ranks = some"):
        JSONStreamBackend(0, "log.json", ranks="some")  # type: ignore[arg-type]


def test_a_process_that_was_forked_does_not_write_into_its_parents_file(tmp_path: Path) -> None:
    logger = logger_to("log.json")
    logger.log((0, 1), {"a": 1})
    if (child := os.fork()) == 0:
        logger.log((0, 2), {"a": 2})
        os._exit(0)
    os.waitpid(child, 0)
    logger.log((0, 3), {"a": 3})
    assert [record["step"] for record in lines_of(tmp_path / "log.json")] == [[0, 1], [0, 3]]
    assert [record["step"] for record in lines_of(tmp_path / "log-2.json")] == [[0, 2]]


def test_a_logger_that_goes_flushes_and_closes_its_files() -> None:
    flushed: list[str] = []

    class Remembering(StdOutBackend):
        def flush(self) -> None:
            flushed.append("now")

    logger = Logger([JSONStreamBackend(Verbosity.VERBOSE, "log.json"), Remembering(Verbosity.DEFAULT)])
    logger.log((0, 1), {"a": 1})
    sink = weakref.ref(logger.backends[0])
    assert not flushed and sink() is not None
    del logger
    gc.collect()
    assert flushed == ["now"] and sink() is None


def test_who_logs_nothing_leaves_no_file(tmp_path: Path) -> None:
    logger = logger_to("log.json")
    logger.metadata("a", {"unit": "s"})
    logger.flush()
    assert list(tmp_path.iterdir()) == []


def test_appending_drops_a_torn_line_and_goes_on(tmp_path: Path) -> None:
    logger_to("log.json").log((0, 1), {"a": 1})
    with open("log.json", "ab") as stream:
        stream.write(b'{"type": "LOG", "st')
    logger_to("log.json", append=True).log((0, 2), {"a": 1})
    assert [record["step"] for record in lines_of(tmp_path / "log.json")] == [[0, 1], [0, 2]]


def test_whatever_is_logged_is_valid_json(tmp_path: Path) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    endless: list[Any] = [1]
    endless.append(endless)
    data = {
        "nan": math.nan,
        "inf": [math.inf, {"deep": -math.inf}],
        "tensor": torch.tensor(1.5, requires_grad=True),
        "several": torch.tensor([1.0, 2.0]),
        "numpy": np.int64(7),
        "half": np.float16(0.5),
        "object": Odd(),
        "set": {1},
        "text": "half of \ud800, a line\nbreak",
        7: None,
        "endless": endless,
    }
    logger_to("log.json").log((0, 1), data)  # type: ignore[arg-type]
    (record,) = lines_of(tmp_path / "log.json")
    said = record["data"]
    assert (said["nan"], said["inf"], said["tensor"]) == ("nan", ["inf", {"deep": "-inf"}], 1.5)
    assert (said["several"], said["numpy"], said["half"]) == ("tensor([1., 2.])", 7, 0.5)
    assert (said["object"], said["set"], said["7"]) == ("odd", [1], None)
    assert said["text"] == "half of ?, a line\nbreak"
    (back,) = LogFile(tmp_path / "log.json")
    assert math.isnan(back["data"]["nan"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("step", "written"),
    [
        ((1, 2), [1, 2]),
        ([3], [3]),
        ((), []),
        (5, [5]),
        ((0, 2.0), [0, 2]),
        ((0, torch.tensor(4)), [0, 4]),
        ("PARAMETER", "PARAMETER"),
        ((0, -1), "(0, -1)"),
        (0.5, "0.5"),
        (math.nan, "nan"),
        (2**70, str(2**70)),
        (None, "None"),
    ],
)
def test_steps(step: object, written: object, tmp_path: Path) -> None:
    logger_to("log.json").log(step, {"a": 1})
    assert lines_of(tmp_path / "log.json")[0]["step"] == written
    (record,) = LogFile(tmp_path / "log.json")
    assert record["step"] == (written if isinstance(written, list) else [])
    assert record.get("label") == (written if isinstance(written, str) else None)


def test_information_and_several_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger([StdOutBackend(0), JSONStreamBackend(1, "log.json")])
    logger.info(argparse.Namespace(lr=0.1, seed=3))
    logger.info("a word")
    logger.metadata_batch(["a", "b"], {"unit": "s"})
    assert "Namespace(lr=0.1, seed=3)\na word\n" in capsys.readouterr().out
    first, second, *described = lines_of(tmp_path / "log.json")
    assert (first["type"], first["data"]) == ("INFO", {"lr": 0.1, "seed": 3})
    assert second["data"] == {"info": "a word"}
    assert [record["metric"] for record in described] == ["a", "b"]


def test_the_module_is_a_logger_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dllogger, "_global_logger", None)
    with pytest.raises(ConfigError, match="call dllogger.init"):
        dllogger.log((0, 1), {"a": 1})
    dllogger.init(backends=[JSONStreamBackend(Verbosity.DEFAULT, "log.json")])
    dllogger.metadata("a", {"unit": "s"})
    dllogger.log(step="PARAMETER", data={"seed": 1})
    dllogger.info({"a": 2})
    dllogger.flush()
    assert [record["type"] for record in lines_of(tmp_path / "log.json")] == ["METADATA", "LOG", "INFO"]
    with pytest.raises(ConfigError, match="called twice"):
        dllogger.init(backends=[])


def test_a_place_that_cannot_be_written_to_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for place in ("file/log.json", "folder"):
        with pytest.raises(MachineError, match="cannot write"):
            JSONStreamBackend(Verbosity.VERBOSE, place)
