"""A contribution made from a recipe has all that the ModelZoo asks for, and trains as it is. That one from GPT-2 does,
command by command, the test of the guide shows (`tests/documentation/test_contributing_guide.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.samples.contributions import finished
from paddock.testing.tiny import TINY
from paddock.zoo.cases import RunOptions
from paddock.zoo.check import CheckPlan, check_contribution
from paddock.zoo.scaffold import new_contribution


@pytest.mark.parametrize(
    ("recipe", "dataset", "metric"),
    [
        ("gpt2/tiny", "", "val.perplexity"),
        ("gpt2/117m", "dataset", "val.perplexity"),
        ("bert/tiny", "", "val.f1"),
        ("resnet50", "dataset", "val.top1"),
        ("t5/reverse", "", "val.token_accuracy"),
        ("mt5/base", "dataset", "val.perplexity"),
    ],
)
def test_one_of_any_recipe_lacks_only_what_its_author_knows(
    recipe: str, dataset: str, metric: str, tmp_path: Path
) -> None:
    folder = new_contribution("mine", recipe, tmp_path / "mine")
    plan = CheckPlan(folder, run=None, index="file:///")
    failures = check_contribution(plan).failures
    assert failures and all(finding.check == "readme" and "TODO" in finding.what for finding in failures)
    finished(folder)
    assert check_contribution(plan).passed
    [case] = yaml.safe_load((folder / "model.yaml").read_text())
    assert (case["params"]["dataset_path"], case["expect"]["metric"]) == (dataset, metric)
    assert load_recipe(folder / "recipe.yaml") == load_recipe(recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        "bert/tiny",
        pytest.param("t5/reverse", marks=pytest.mark.slow),
        pytest.param("resnet/tiny-synthetic", marks=pytest.mark.slow),
    ],
)
def test_one_of_each_family_trains_as_it_is(recipe: str, tmp_path: Path) -> None:
    """Its recipe, whole, for a step; nothing of it was changed but what stood there as TODO."""
    folder = finished(new_contribution("mine", recipe, tmp_path / "mine"))
    plan = CheckPlan(folder, run=RunOptions(steps=1), index="file:///")
    report = check_contribution(plan)
    assert report.passed and not report.unchecked, report.failures
    [case] = yaml.safe_load((folder / "model.yaml").read_text())
    assert case["expect"]["metric"] in report.cases["mine"].metrics


def test_its_exit_status_is_that_of_training(made: Path, tmp_path: Path) -> None:
    """From any folder; and the command is shown."""
    script = str(made / "run_scripts" / "run_small.py")
    words = [sys.executable, script, "--model_name", "small", "--step", "2", "--lr", "-1", "--autocast", "False"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 2 and "optimizer.lr = -1" in done.stderr
    assert "-m paddock train" in done.stdout and "  --step 2 \\\n" in done.stdout


def test_a_run_of_two_steps_tells_its_speed(tmp_path: Path) -> None:
    assert run(["train", *TINY, "--step", "2", "--run-dir", str(tmp_path / "run")]) == 0
    records = [metrics_of(record) for record in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert [("train.ips" in record) for record in records if "train.loss" in record] == [False, True]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["zoo", "new", "mine", "--from", "resnet/tiny-synthetic", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"folder": "mine", "script": "mine/run_scripts/run_mine.py"} and Path(told["script"]).is_file()
    (tmp_path / "empty").mkdir()
    assert run(["zoo", "new", "mine", "--from", "gpt2/tiny", "empty"]) == 0
    assert capsys.readouterr().out == "empty\n" and (tmp_path / "empty" / "model.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["My-Model", "--from", "gpt2/tiny"], "e.g. my_model"),
        (["mine", "--from", "gpt2/tinny"], 'there is no recipe "gpt2/tinny"'),
        (["mine", "--from", "gpt2/tiny", "taken"], "taken is there already"),
    ],
)
def test_what_cannot_be_made(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("x")
    assert run(["zoo", "new", *words]) == 2
    assert said in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["taken"]
