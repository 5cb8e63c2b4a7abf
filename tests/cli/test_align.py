"""`paddock align` on real runs and real logs: layouts agree, injected errors do not, and what is wrong is told."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from paddock.alignment.comparison.logged import read_run
from paddock.alignment.comparison.runs import Settings, compare_runs
from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.jobs.train import train
from paddock.launch.options import LaunchOptions
from paddock.telemetry.dllogger import JSONStreamBackend, Logger, Verbosity
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.tiny import TINY, losses
from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun


@pytest.fixture
def copy(trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trained run again, to be changed, without its weights."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained_run, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "copy"


def as_log(run_dir: Path, path: Path, form: str) -> None:
    """The losses of a run, as another program would have logged them, counted from 0."""
    values = enumerate(losses(run_dir))
    if form == "csv":
        path.write_text("step,train.loss\n" + "".join(f"{step},{loss!r}\n" for step, loss in values))
    elif form == "dllogger":
        logger = Logger([JSONStreamBackend(Verbosity.VERBOSE, path)])
        for step, loss in values:
            logger.log((0, step), {"train.loss": torch.tensor(loss, dtype=torch.float64)})
    else:
        lines = [(step, {"train.loss": loss}) for step, loss in values]
        texts = [
            (step, str({"train.loss": str(data["train.loss"])}) if form == "TCAPPDLL" else data) for step, data in lines
        ]
        records = [json.dumps({"type": "LOG", "step": [0, step], "data": data}) for step, data in texts]
        path.write_text("".join(f"{form} {record}\n" for record in records))


def test_two_layouts_of_one_recipe_are_aligned(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = ["--nproc-per-node", "2", "--parallel.tensor", "2", "--run-dir", str(tmp_path / "tensor")]
    assert run(["train", *TINY, *layout]) == 0
    capsys.readouterr()
    report = tmp_path / "reports" / "report.html"
    assert run(["align", str(tmp_path / "tensor"), str(trained_run), "--output", str(report)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("aligned: ") and captured.err == f"written: {report}\n"
    assert "differs    layout: data 1 × tensor 2 × pipeline 1, reference data 1 × tensor 1 × pipeline 1" in captured.out
    assert "same       task, model, seed, training data, global batch" in captured.out
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run(["align", str(tmp_path / "tensor"), str(trained_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["aligned"] and found["loss"]["errors"]["steps"] == 6 and found["loss"]["errors"]["max"] < 1e-4
    assert {metric["name"] for metric in found["metrics"]} >= {"val.loss", "summary.best_metric"}
    states = {fact["name"]: fact["state"] for fact in found["facts"]}
    assert states["training data"] == states["batch.global"] == states["learning rate by step"] == "same"


class Injected(Callback):
    """Scales the last norm of the model after every step: a device that computes it wrong."""

    def __init__(self, size: float) -> None:
        self._size = size

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        with torch.no_grad():
            run.engine.models[0].get_parameter("final_norm.weight").mul_(1 + self._size)


@pytest.mark.parametrize("size", [1e-5, 0.02, 1.0])
def test_an_error_that_moves_the_final_loss_is_never_aligned(trained_run: Path, tmp_path: Path, size: float) -> None:
    recipe = load_recipe(trained_run / "config.yaml")
    train("tiny", recipe, LaunchOptions(), tmp_path / "wrong", callbacks=[Injected(size)])
    found = compare_runs(read_run(str(tmp_path / "wrong")), read_run(str(trained_run)), Settings())
    moved = abs(losses(tmp_path / "wrong")[-1] / losses(trained_run)[-1] - 1)
    assert moved > 0
    if moved > 0.01:
        assert not found.aligned
    if size == 1.0:
        assert moved > 0.05, "the injected error is large"
    if size == 1e-5:
        assert found.aligned


@pytest.mark.parametrize("form", ["csv", "dllogger", "DLLL", "TCAPPDLL"])
def test_a_log_in_any_form_beside_a_run(
    form: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    as_log(trained_run, log, form)
    assert run(["align", str(log), str(trained_run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss"]["errors"]["max"] == 0 and found["loss"]["errors"]["steps"] == 6
    assert {fact["state"] for fact in found["facts"]} == {"unknown"}
    assert any("from 0" in note for note in found["notes"])


def test_a_run_that_was_resumed_counts_as_its_later_attempt(
    trained_run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if it had been killed after step 4, with nonsense on its way, and gone on from step 3."""
    records = [json.loads(line) for line in (trained_run / "metrics.jsonl").read_text().splitlines()]
    before = [record for record in records if record.get("step", [0, 0])[-1:] <= [4] or record["type"] == "METADATA"]
    wrong = [record | {"data": {"train.loss": 77.0}} if record.get("step") == [0, 4] else record for record in before]
    begins = {"type": "METADATA", "metric": "attempt", "metadata": {"number": 2, "after_step": 3}, "attempt": 2}
    after = [record for record in records if "step" in record and (not record["step"] or record["step"][-1] > 3)]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*wrong, begins, *after]))
    assert run(["align", str(copy), str(trained_run)]) == 0
    assert "that a later attempt made again, which counts: " in capsys.readouterr().out


def test_a_run_that_was_killed_is_not_aligned_until_no_more_is_asked(
    trained_run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (last,) = (at for at, line in enumerate(lines) if b'"step": [0, 5]' in line and b"train.loss" in line)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:last]) + lines[last][:40])
    assert run(["align", str(copy), str(trained_run)]) == 7
    captured = capsys.readouterr()
    assert f"ALARM: {copy} ends at step 4, and was to make 6" in captured.out
    assert "is cut off, as a run that was killed leaves it" in captured.out
    assert captured.err.startswith(f"error: {copy} is not aligned with {trained_run}\n  why: ")
    assert run(["align", str(copy), str(trained_run), "--steps", "4"]) == 0


def test_other_seeds_are_other_experiments(trained_run: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1234", "seed: 7").replace("global: 8", "global: 16"))
    environment = json.loads((copy / "environment.json").read_text())
    del environment["data_position"]  # a run from before this was kept, and without a checkpoint: unknown
    (copy / "environment.json").write_text(json.dumps(environment))
    assert run(["align", str(copy), str(trained_run)]) == 2
    said = capsys.readouterr().err
    assert f"error: {copy} and {trained_run} are different experiments" in said
    assert "seed: 7 and 1234; global batch: 16 and 8" in said
    assert run(["align", str(copy), str(trained_run), "--allow-differences", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {fact["name"]: fact["state"] for fact in found["facts"]}["training data"] == "unknown"


def test_other_samples_at_the_same_place_are_another_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two recipes that are the same to the letter; the file that they name is not."""
    text, words = tmp_path / "text.txt", ["the", "horse", "stands", "in", "its", "paddock", "and", "eats"]
    short = ["--steps", "2", "--evaluate.every", "None", "--checkpoint.every", "None", "--schedule.warmup", "1"]
    for seed, name in enumerate(("one", "other", "again")):
        draw = random.Random(seed % 2)
        text.write_text("\n\n".join(" ".join(draw.choices(words, k=draw.randrange(40, 120))) + "." for _ in range(200)))
        given = ["--data.source", "text", "--data.path", str(text), "--run-dir", str(tmp_path / name)]
        assert run(["train", *TINY, *short, *given]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert run(["align", str(tmp_path / "other"), str(tmp_path / "one")]) == 2
    said = capsys.readouterr().err
    assert "are different experiments" in said and "why: training data: " in said, said
    assert run(["align", str(tmp_path / "again"), str(tmp_path / "one")]) == 0


def test_what_is_kept_of_a_run_for_comparing_it(trained_run: Path) -> None:
    facts = read_run(str(trained_run)).facts
    assert (facts["device"], facts["batch.global"], facts["train.seed"]) == ("cpu", 8, 1234)
    assert facts["layout"] == "data 1 × tensor 1 × pipeline 1" and "tokens" in facts["training data"]
    assert facts["torch"] == torch.__version__


def test_a_run_from_before_says_it_in_its_checkpoint(trained_run: Path, copy: Path) -> None:
    environment = json.loads((copy / "environment.json").read_text())
    for name in ("device", "total_steps", "data_position"):
        del environment[name]
    (copy / "environment.json").write_text(json.dumps(environment))
    os.symlink(trained_run / "checkpoints", copy / "checkpoints")
    older, newer = read_run(str(copy)), read_run(str(trained_run))
    assert older.facts["training data"] == newer.facts["training data"] and older.asked_steps == 6


def test_changes_on_the_way_are_said(trained_run: Path, copy: Path) -> None:
    shutil.copytree(copy / "attempts" / "1", copy / "attempts" / "2")
    config = copy / "attempts" / "2" / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.002", "lr: 0.001"))
    found = compare_runs(read_run(str(copy)), read_run(str(trained_run)), Settings())
    assert any("went on otherwise in its attempt 2: optimizer.lr 0.002 → 0.001" in note for note in found.notes)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "paddock align compares two runs, and none are named"),
        (["copy"], 2, "and 1 is named"),
        (["copy", "copy", "copy"], 2, "and 3 are named"),
        (["copy", "./copy"], 2, "are the same"),
        (["copy", "nowhere"], 4, "there is no run and no log nowhere"),
        (["copy", "empty"], 4, "empty is no run that could be compared"),
        (["copy", "copy/config.yaml"], 4, "is no log"),
        (["copy", "log.csv", "--output", "report.pdf"], 2, "end it in .html or .svg"),
        (["copy", "log.csv", "--tolerance", "-1"], 2, "--tolerance = -1.0"),
        (["copy", "log.csv", "--loss", "accuracy"], 2, "has no such metric"),
        (["copy", "log.csv", "--output", "log.csv/report.html"], 3, "cannot write"),
    ],
)
def test_what_cannot_be_compared(
    words: list[str], code: int, said: str, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    as_log(copy, tmp_path / "log.csv", "csv")
    assert run(["align", *words]) == code
    assert said in capsys.readouterr().err


def test_a_plot_alone(copy: Path, tmp_path: Path) -> None:
    as_log(copy, tmp_path / "log.csv", "csv")
    assert run(["align", "copy", "log.csv", "--output", "losses.svg"]) == 0
    assert (tmp_path / "losses.svg").read_text(encoding="utf-8").startswith('<svg class="plot"')


def test_a_damaged_metrics_file_is_an_error_that_names_the_line(
    trained_run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = copy / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([*lines[:-2], lines[-2][:30] + b"\n", lines[-1]]))
    assert run(["align", "copy", str(trained_run)]) == 4
    assert f"line {len(lines) - 1} is not a metric record" in capsys.readouterr().err
    assert list(metrics_of(record) for record in read_metrics(trained_run / "metrics.jsonl"))
